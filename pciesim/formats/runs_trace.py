"""Kernels of a profile: the Chrome trace of ``torch.profiler``, or the CSV of ``nsys stats`` (cuda_gpu_kern_sum)."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.schedule import Category
from pciesim.units import NS, US, Seconds

__all__ = ["KernelTotal", "kernel_totals", "read_kernels"]

# The first pattern that fits a kernel's name says what it is (names of PyTorch, CUTLASS, FlashInfer, vLLM, SGLang).
_CATEGORIES: Final = (
    (re.compile(r"AllGather|all_gather", re.I), Category.LOGITS_GATHER),
    (re.compile(r"AllReduce|all_?reduce|cross_device_reduce|oneshot|one_shot|two_?shot|ReduceScatter", re.I),
     Category.ALL_REDUCE),
    (re.compile(r"moe|grouped|expert|marlin_moe|GroupProblemShape", re.I), Category.EXPERTS),
    (re.compile(r"gated_delta|delta_rule|fused_recurrent|chunk_(?:fwd|scaled|gated)|causal_conv1d", re.I),
     Category.DELTA_RULE),
    (re.compile(r"flash|fmha|attention|BatchDecode|BatchPrefill|paged_attn|mla_", re.I), Category.ATTENTION),
    (re.compile(r"gemm|gemv|cutlass|nvjet|cublas|cudnn.*matmul|splitKreduce|sm\d+_xmma", re.I), Category.GEMM_MIXER),
)  # fmt: skip
_NSYS_TOTAL: Final = "Total Time (ns)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTotal:
    """How often a kernel ran in a profile and how long all of its runs took together."""

    name: str
    count: int
    total: Seconds

    @property
    def category(self) -> Category:
        """What a name says: GEMMs are not told apart by it and all stand under the mixers'."""
        found = next((category for pattern, category in _CATEGORIES if pattern.search(self.name)), None)
        return found if found is not None else Category.SMALL


def read_kernels(path: Path) -> tuple[KernelTotal, ...]:
    """Every kernel of a profile, the costliest first. Raises InputError where there are none."""
    if path.suffix == ".gz":
        try:
            text = gzip.decompress(path.read_bytes()).decode("utf-8")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be unpacked: {error}", where=str(path)) from None
    else:
        text = read_text(path)
    pairs = list(_trace(path, text) if text.lstrip()[:1] in {"{", "["} else _nsys(path, text))
    if not pairs:
        raise InputError("holds no GPU kernels", where=str(path))
    totals: dict[str, tuple[int, Seconds]] = {}
    for name, count, seconds in pairs:
        known = totals.get(name, (0, 0.0))
        totals[name] = (known[0] + count, known[1] + seconds)
    found = [KernelTotal(name=name, count=count, total=total) for name, (count, total) in totals.items()]
    return tuple(sorted(found, key=lambda each: (-each.total, each.name)))


def kernel_totals(kernels: tuple[KernelTotal, ...], steps: int) -> dict[Category, Seconds]:
    """Seconds a step by category."""
    found: dict[Category, Seconds] = {}
    for kernel in kernels:
        found[kernel.category] = found.get(kernel.category, 0.0) + kernel.total / steps
    return found


def _trace(path: Path, text: str) -> Iterator[tuple[str, int, Seconds]]:
    try:
        document: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}") from None
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    for event in events:
        if isinstance(event, dict) and event.get("cat") == "kernel" and "dur" in event:
            yield str(event.get("name", "?")), 1, float(event["dur"]) * US


def _nsys(path: Path, text: str) -> Iterator[tuple[str, int, Seconds]]:
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if _NSYS_TOTAL in line and "Name" in line), None)
    if start is None:
        raise InputError(
            "is neither a torch.profiler trace nor the CSV of 'nsys stats -r cuda_gpu_kern_sum -f csv'", where=str(path)
        )
    for number, row in enumerate(csv.DictReader(lines[start:]), start=start + 2):
        try:
            yield row["Name"], int(row["Instances"]), float(row[_NSYS_TOTAL]) * NS
        except (KeyError, TypeError, ValueError):
            raise InputError("is not a row of cuda_gpu_kern_sum", where=f"{path}:{number}") from None
