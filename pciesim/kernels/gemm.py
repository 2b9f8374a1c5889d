"""Dense GEMMs: measured grids over m, n and k, read from device memory as a decode step reads them."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from itertools import product
from typing import Final

from pciesim.kernels.roofline import cold_time, datasheet_floor, roof, roofline_time
from pciesim.kernels.tables import CurveTable, Donor, log_between
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import work
from pciesim.schedule import Gemm
from pciesim.units import Seconds, format_seconds

__all__ = ["gemm_time"]

# Half-widths: about the 90th percentile of the held-out errors in docs/kernels.md. Measured rows: repeatability
# of equal kernels is 3 %; the rest is the spread of the line that stands for cold weights (6 % at the 90th percentile).
MEASURED: Final = Spread(below=0.06, above=0.06)
COLD: Final = Spread(below=0.15, above=0.12)
ROWS: Final = Spread(below=0.20, above=0.20)
GRID: Final = Spread(below=0.14, above=0.14)
SCATTERED: Final = Spread(below=0.18, above=0.20)
BEYOND: Final = Spread(below=0.20, above=0.25)
BORROWED: Final = Spread(below=0.20, above=0.30)

NEIGHBOURS: Final = 4
_SAME_SHAPE: Final = 0.05**2  # squared log distance below which a neighbour counts as the same shape

# Tables to use for a precision without its own: the kernel is another one, so the time is borrowed.
_STANDS_IN: Final = {"fp8_block": "fp8", "mxfp8": "fp8"}


def gemm_time(kernel: Gemm, donor: Donor) -> KernelTime:
    """Time of one dense GEMM on the GPU the tables were measured on. Shapes without rows end in a roofline."""
    if kernel.n == 1 and kernel.m > 1:
        # One output column (a gate) is the transposed product: a matrix-vector kernel, not a GEMM of m rows.
        return _restated(gemm_time(replace(kernel, m=1, n=kernel.m), donor), "transposed")
    precision = kernel.precision.value
    table = donor.tables.table(f"gemm/{precision}")
    if table is None and (stand_in := _STANDS_IN.get(precision)) is not None:
        table = donor.tables.table(f"gemm/{stand_in}")
        if table is not None:
            return _restated(_from_table(kernel, table, donor), f"{stand_in} rows")
    if table is None:
        return _weight_only(kernel, donor)
    return _from_table(kernel, table, donor)


def _from_table(kernel: Gemm, table: CurveTable, donor: Donor) -> KernelTime:
    largest = int(table.points[-1])
    if kernel.m > largest:
        return _many_rows(kernel, largest, table, donor)
    row = _row(table, kernel)
    return _between(kernel, table, donor) if row is None else _at_shape(kernel, row, table, donor)


def _at_shape(kernel: Gemm, row: Seconds, table: CurveTable, donor: Donor) -> KernelTime:
    """The row of a measured (n, k), or what it would be with its weights in device memory."""
    floor = datasheet_floor(work(kernel), donor.gpu)
    cold = _cold(kernel, donor)
    if cold > row:
        # The plain bound (bytes at achieved bandwidth, no launch) is the optimistic end.
        low = max(row, cold - donor.constants.launch)
        detail = (
            f"{table.name} row {format_seconds(row)} read its weights from L2; "
            f"{format_seconds(donor.constants.launch)} + bytes from device memory"
        )
        return KernelTime(
            value=max(cold, floor), low=max(low * (1 - COLD.below), floor), high=cold * (1 + COLD.above),
            source=KernelSource.INTERPOLATED, detail=detail, floor=floor,
        )  # fmt: skip
    curve = table.curve(kernel.n, kernel.k)
    if curve is not None and curve.measured(kernel.m):
        return KernelTime.around(row, MEASURED, source=KernelSource.MEASURED, detail=f"{table.name} row", floor=floor)
    detail = f"{table.name} between m rows"
    return KernelTime.around(row, ROWS, source=KernelSource.INTERPOLATED, detail=detail, floor=floor)


def _between(kernel: Gemm, table: CurveTable, donor: Donor) -> KernelTime:
    """Between the four measured (n, k) around a shape; beyond the grid its edge scaled by the roofline."""
    n0, n1, n_inside = _bracket(table.values(0), kernel.n)
    k0, k1, k_inside = _bracket(table.values(1), kernel.k)
    corners: dict[tuple[int, int], Seconds] = {}
    for n, k in product((n0, n1), (k0, k1)):
        corner = replace(kernel, n=n, k=k)
        row = _row(table, corner)
        if row is None:
            return _scattered(kernel, table, donor)
        corners[n, k] = max(row, _cold(corner, donor))
    along_n = [log_between(kernel.n, n0, corners[n0, k], n1, corners[n1, k]) for k in (k0, k1)]
    value = log_between(kernel.k, k0, along_n[0], k1, along_n[1])
    floor = datasheet_floor(work(kernel), donor.gpu)
    if n_inside and k_inside:
        detail = f"{table.name} between n {n0}, {n1} and k {k0}, {k1}"
        return KernelTime.around(value, GRID, source=KernelSource.INTERPOLATED, detail=detail, floor=floor)
    edge = replace(kernel, n=min(max(kernel.n, n0), n1), k=min(max(kernel.k, k0), k1))
    value = _rescaled(value, edge, kernel, donor)
    detail = f"{table.name} edge n {edge.n}, k {edge.k}, scaled by roofline"
    return KernelTime.around(value, BEYOND, source=KernelSource.INTERPOLATED, detail=detail, floor=floor)


def _many_rows(kernel: Gemm, largest: int, table: CurveTable, donor: Donor) -> KernelTime:
    """More rows than the table has: the same FLOP and output tiles with ``largest`` rows and wider outputs.

    At the last measured m these GEMMs are bound by compute, so the weights that widening adds cost nothing.
    """
    constants = donor.constants
    at_largest = _from_table(replace(kernel, m=largest), table, donor)
    linear = at_largest.value * kernel.m / largest
    wide = replace(kernel, m=largest, n=math.ceil(kernel.n * kernel.m / largest))
    widest = table.values(0)[-1]
    if wide.n <= widest:
        widened = _from_table(wide, table, donor).value
    else:
        at_edge = _from_table(replace(wide, n=widest), table, donor).value
        widened = at_edge * wide.n / widest
    compute = roof(work(kernel), donor.gpu, constants)
    value = max(min(widened, linear), compute)
    detail = f"{table.name} at m {largest} with outputs widened {kernel.m / largest:.3g}-fold (equal FLOP)"
    floor = datasheet_floor(work(kernel), donor.gpu)
    return KernelTime(
        value=value, low=max(min(compute, value) * 0.9, floor), high=max(linear, value) * 1.1,
        source=KernelSource.BORROWED, detail=detail, floor=floor,
    )  # fmt: skip


def _scattered(kernel: Gemm, table: CurveTable, donor: Donor) -> KernelTime:
    """Shapes that form no grid: the ratio to the roofline of the nearest shapes, weighted by distance."""
    near = sorted((_distance(kernel, int(key[0]), int(key[1])), int(key[0]), int(key[1])) for key in table.lines)
    total = weighted = 0.0
    used: list[str] = []
    for distance, n, k in near[:NEIGHBOURS]:
        near_shape = replace(kernel, n=n, k=k)
        row = _row(table, near_shape)
        if row is None:
            continue
        seconds = max(row, _cold(near_shape, donor))
        weight = 1.0 / (distance**2 + _SAME_SHAPE)
        total += weight
        weighted += weight * math.log(seconds / roof(work(near_shape), donor.gpu, donor.constants))
        used.append(f"{n}x{k}")
    value = math.exp(weighted / total) * roof(work(kernel), donor.gpu, donor.constants)
    detail = f"{table.name}: ratio to roofline of n x k {', '.join(used)}"
    return KernelTime.around(
        value,
        SCATTERED,
        source=KernelSource.INTERPOLATED,
        detail=detail,
        floor=datasheet_floor(work(kernel), donor.gpu),
    )


def _weight_only(kernel: Gemm, donor: Donor) -> KernelTime:
    """A precision without rows (INT4, MXFP4, FP32): the roofline, and not below the bf16 row of a tiny output."""
    table = donor.tables.table("gemm/bf16")
    least = 0.0
    if table is not None:
        narrow = table.values(0)[0]
        least = _from_table(replace(kernel, n=narrow, m=min(kernel.m, int(table.points[-1]))), table, donor).value
    return roofline_time(
        work(kernel), donor.gpu, donor.constants, what=f"no {kernel.precision.value} GEMM rows", least=least
    )


# Up to here a GEMM of these GPUs waits for its weights (bf16 ridge: 262 rows on RTX PRO 6000, 206 on H200).
_MEMORY_BOUND: Final = 64


def _row(table: CurveTable, kernel: Gemm) -> Seconds | None:
    curve = table.curve(kernel.n, kernel.k)
    return curve.at(kernel.m) if curve is not None and curve.covers(kernel.m) else None


def _cold(kernel: Gemm, donor: Donor) -> Seconds:
    """Time with weights from device memory where the benchmark may have had them in L2, else 0."""
    weights = work(kernel).weights
    if kernel.m > _MEMORY_BOUND or weights >= donor.constants.l2_resident * donor.gpu.l2:
        return 0.0
    return cold_time(work(kernel), donor.gpu, donor.constants)


def _bracket(grid: tuple[int, ...], value: int) -> tuple[int, int, bool]:
    """Neighbours on a grid, and whether the value lies between them; outside, the end twice."""
    index = bisect_left(grid, value)
    if index < len(grid) and grid[index] == value:
        return value, value, True
    if index == 0:
        return grid[0], grid[0], False
    if index == len(grid):
        return grid[-1], grid[-1], False
    return grid[index - 1], grid[index], True


def _rescaled(seconds: Seconds, edge: Gemm, kernel: Gemm, donor: Donor) -> Seconds:
    """Beyond the grid: large shapes by bytes or FLOP, shapes below the grid keep its smallest time."""
    if kernel.n <= edge.n and kernel.k <= edge.k:
        return seconds
    ratio = roof(work(kernel), donor.gpu, donor.constants) / roof(work(edge), donor.gpu, donor.constants)
    return seconds * ratio


def _distance(kernel: Gemm, n: int, k: int) -> float:
    return math.hypot(math.log(kernel.n / n), math.log(kernel.k / k))


def _restated(time: KernelTime, rows: str) -> KernelTime:
    """Another kernel's time, as borrowed."""
    return KernelTime.around(
        time.value, BORROWED, source=KernelSource.BORROWED, detail=f"{rows}: {time.detail}", floor=time.floor
    )
