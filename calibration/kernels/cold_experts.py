"""What routed experts cost more in a step than in a benchmark that kept their weights in L2, from the tables alone.

    python calibration/kernels/cold_experts.py

The same tokens hit the same experts however these are cut: at TP 1 their weights may exceed L2 where at TP 4 they stay
in it. From the larger row, less the difference in bytes at the memory's speed, follows what the smaller one would take
with its weights in device memory; what it took less, over its bytes at the memory's speed, is the share of that time
which the benchmark did not see. The median over a kernel's rows goes into ``constants.yaml`` (``experts_cold``); 0
where the quartiles hold both signs: such a kernel is not bound by memory at few tokens.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pciesim.formats.catalogue import gpu_type
from pciesim.formats.kernel_tables import load_kernel_tables
from pciesim.kernels import Donor
from pciesim.kernels.cold import GONE, KEPT
from pciesim.kernels.roofline import achieved_bandwidth
from pciesim.kernels.work import work
from pciesim.model import Precision
from pciesim.schedule import RoutedExperts

HERE = Path(__file__).resolve().parent
MOST_TOKENS = 16
LEAST = 0.03  # of L2: below, the bytes take no time worth dividing by
FEWEST = 10  # rows


def shares() -> dict[str, float]:
    """Share by table (``vllm__marlin__int4``), tables of one kernel together."""
    base = Donor(gpu=gpu_type("rtx_pro_6000"), tables=load_kernel_tables("rtx_pro_6000", HERE))
    found: dict[str, list[float]] = defaultdict(list)
    names = [name for name in base.tables.names if name.startswith("moe/") and "nongated" not in name]
    for name in names:
        found[kernel_of(name)] += list(seen_less(base, name))
    return {name.removeprefix("moe/"): share_of(found[kernel_of(name)]) for name in names}


def kernel_of(name: str) -> str:
    """Tables of one kernel: CUTLASS's and Marlin's are the same in every engine, Marlin's in both formats."""
    engine, backend, precision = name.removeprefix("moe/").split("__")
    if backend == "marlin":
        return backend
    return f"cutlass {precision}" if backend.endswith("cutlass") else f"{engine} {backend} {precision}"


def share_of(values: list[float]) -> float:
    """The median in 0..1, or 0 where there are few rows or half of them are on both sides of nothing."""
    if len(values) < FEWEST or statistics.quantiles(values, n=4)[0] <= 0:
        return 0.0
    return round(min(statistics.median(values), 1.0), 2)


def seen_less(base: Donor, name: str) -> Iterator[float]:
    """Of every row with its weights in L2 and a wider row of the same experts beyond: the share it did not see."""
    table, l2, bandwidth = base.tables.table(name), base.gpu.l2, achieved_bandwidth(base.gpu, base.constants)
    if table is None:
        return
    for key in table.lines:
        if key[6] != "balanced" or (curve := table.curve(*key)) is None:
            continue
        hidden, width, top_k, experts, tp, ep = map(int, key[:6])
        kernel = RoutedExperts(
            tokens=1, hidden=hidden, intermediate=width, experts=experts, top_k=top_k, tp=tp, ep=ep,
            precision=Precision(name.split("__")[2]),
        )  # fmt: skip
        for tokens, seconds in zip(curve.points, curve.seconds, strict=True):
            weights = work(replace(kernel, tokens=int(tokens)), "balanced").weights
            if tokens > MOST_TOKENS or not LEAST * l2 <= weights <= KEPT * l2:
                continue
            for wider in (each for each in (4, 2, 1) if each < tp):
                other = table.curve(*key[:4], wider, *key[5:])
                more = weights * tp / wider
                if other is not None and other.measured(tokens) and more >= GONE * l2:
                    yield (other.at(tokens) - (more - weights) / bandwidth - seconds) / (weights / bandwidth)
                    break


def main() -> None:
    """Print what constants.yaml should say."""
    for name, share in shares().items():
        sys.stdout.write(f"  {name}: {share}\n")


if __name__ == "__main__":
    main()
