"""Kernel tables of other GPUs from the database of the library aiconfigurator-core, where it is installed.

An optional extra (``pip install pciesim[aiconfigurator]``): the library is Apache-2.0 and ships measured kernels as
Parquet files, ``systems/data/<system>/<op>/<engine>/<version>/``. They become the same tables as those under
``calibration/kernels``, made when asked for. Only its files are read; none of its own models of time is used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pciesim.errors import InputError, UnknownName
from pciesim.formats.kernel_tables import load_kernel_tables
from pciesim.kernels.constants import KernelConstants
from pciesim.kernels.tables import CurveTable, KernelTables
from pciesim.units import MS, US

__all__ = ["LIBRARY", "SYSTEMS", "library_tables"]

LIBRARY: Final = "aiconfigurator-core"
SYSTEMS: Final[Mapping[str, str]] = MappingProxyType(
    {"l40s": "l40s", "h200": "h200_sxm", "b200": "b200_sxm", "rtx_pro_6000": "rtx_pro_6000_server"}
)
"""Catalogue keys of GPUs that the library has kernels of, by its names."""

_PACKAGE: Final = "aiconfigurator_core"
_PRECISIONS: Final = {
    "bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4", "fp8_block": "fp8_block", "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4",
}  # fmt: skip
_EXPERTS: Final = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "distribution")
_DELTA_RULE: Final = {
    "causal_conv1d_update": "conv_decode", "fused_recurrent_gated_delta_rule_packed_decode": "recurrent_decode",
    "causal_conv1d_fn": "conv_prefill", "chunk_gated_delta_rule": "chunk_prefill",
}  # fmt: skip
# The library's own general figures: achieved share of the memory bandwidth, and a kernel's constant.
_BANDWIDTH: Final = 0.8
_LAUNCH: Final = 3 * US

Row = Mapping[str, Any]
Cells = dict[tuple[str, ...], dict[float, float]]


def library_tables(gpu: str) -> tuple[KernelTables, str]:
    """The library's kernels of a GPU, and its name and version.

    Raises InputError where the library is not installed or has no rows, UnknownName for a GPU that it does not have.
    """
    try:
        found = f"{LIBRARY} {version(LIBRARY)}"
    except PackageNotFoundError:
        raise InputError(f"{LIBRARY} is not installed; pip install 'pciesim[aiconfigurator]'") from None
    if gpu not in SYSTEMS:
        raise UnknownName(f"GPU in {LIBRARY}", gpu, SYSTEMS)
    spec = find_spec(_PACKAGE)
    root = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else Path()
    folder = root / "systems" / "data" / SYSTEMS[gpu]
    if not folder.is_dir():
        raise InputError(f"{found} has no folder of kernels for '{gpu}'")
    readers: dict[str, Callable[[], CurveTable]] = {}
    for make in (_gemm, _attention, _experts, _delta_rule):
        for name, cells in make(folder):
            if cells:
                readers[name] = partial(_table, name, cells)
    if not readers:
        raise InputError(f"{found} has no rows for '{gpu}'")
    tables = KernelTables(
        gpu=gpu, names=tuple(sorted(readers)), read_table=lambda name: readers[name](), read_constants=_constants
    )
    return tables, found


def _constants() -> KernelConstants:
    """Small kernels and throughputs as on RTX PRO 6000, memory as the library takes it."""
    return replace(load_kernel_tables("rtx_pro_6000").constants, bandwidth_fraction=_BANDWIDTH, launch=_LAUNCH)


def _gemm(folder: Path) -> Iterable[tuple[str, Cells]]:
    tables: dict[str, Cells] = defaultdict(lambda: defaultdict(dict))
    for row in _rows(folder, "gemm", "sglang", "gemm_perf"):
        if precision := _PRECISIONS.get(row["gemm_dtype"]):
            _keep(tables[f"gemm/{precision}"][str(row["n"]), str(row["k"])], row["m"], row)
    return tables.items()


def _attention(folder: Path) -> Iterable[tuple[str, Cells]]:
    tables: dict[str, Cells] = defaultdict(lambda: defaultdict(dict))
    for row in _rows(folder, "attention", "sglang", "generation_attention_perf"):
        if precision := _PRECISIONS.get(row["kv_cache_dtype"]):
            name = f"attention/{row['kernel_source']}__{precision}__{row['head_dim']}__{row['window_size']}"
            key = (str(row["num_heads"]), str(row["num_key_value_heads"]), str(row["batch_size"]))
            _keep(tables[name][key], row["isl"] + row["step"], row)
    return tables.items()


def _experts(folder: Path) -> Iterable[tuple[str, Cells]]:
    tables: dict[str, Cells] = defaultdict(lambda: defaultdict(dict))
    for engine in ("sglang", "vllm"):
        for row in _rows(folder, "moe", engine, "moe_perf"):
            source, precision = row["kernel_source"], _PRECISIONS.get(row["moe_dtype"])
            family = next((each for each in ("flashinfer_cutlass", "marlin", "triton") if each in source), None)
            if precision and family:
                key = tuple(str(row[column]) for column in _EXPERTS)
                _keep(tables[f"moe/{engine}__{family}__{precision}"][key], row["num_tokens"], row)
    return tables.items()


def _delta_rule(folder: Path) -> Iterable[tuple[str, Cells]]:
    tables: dict[str, Cells] = defaultdict(lambda: defaultdict(dict))
    for row in _rows(folder, "linear_attention", "sglang", "gdn_perf"):
        if name := _DELTA_RULE.get(row["kernel_source"]):
            heads = (str(row["num_k_heads"]), str(row["num_v_heads"]))
            decode = name.endswith("decode")
            key = heads if decode else (*heads, str(row["batch_size"]))
            _keep(tables[f"delta_rule/{name}"][key], row["batch_size" if decode else "seq_len"], row)
    return tables.items()


def _keep(curve: dict[float, float], point: float, row: Row) -> None:
    """The shortest of rows that stand twice, in microseconds."""
    curve[float(point)] = min(row["latency"] * MS / US, curve.get(float(point), math.inf))


def _rows(folder: Path, op: str, engine: str, name: str) -> Iterable[Row]:
    """Rows of the newest version that has the file; none where there is none."""
    from pyarrow import parquet  # noqa: PLC0415  (comes with the library)

    files = sorted((folder / op / engine).glob(f"*/{name}.parquet"), key=lambda path: _numbers(path.parent.name))
    if not files:
        return []
    try:
        rows: list[Row] = parquet.read_table(files[-1]).to_pylist()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as Parquet: {error}", where=str(files[-1])) from None
    return rows


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace("rc", ".").split(".") if part.isdecimal())


_COLUMNS: Final = {
    "gemm": (("n", "k"), "m"), "attention": (("heads", "kv_heads", "batch"), "context"),
    "moe": (("hidden", "intermediate", "top_k", "experts", "tp", "ep", "distribution"), "tokens"),
    "delta_rule": (("key_heads", "value_heads"), "batch"),
}  # fmt: skip


def _table(name: str, cells: Cells) -> CurveTable:
    columns, axis = _COLUMNS[name.partition("/")[0]]
    if name.endswith("prefill"):
        columns, axis = (*columns, "batch"), "tokens"
    points = tuple(sorted({point for curve in cells.values() for point in curve}))
    lines = {
        key: ",".join(f"{curve[point]:g}" if point in curve else "" for point in points) for key, curve in cells.items()
    }
    return CurveTable(name=name, columns=columns, axis=axis, points=points, lines=lines)
