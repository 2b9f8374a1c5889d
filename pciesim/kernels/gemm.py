"""Dense GEMMs: measured grids over m, n and k, read from device memory as a decode step reads them."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from itertools import product
from typing import Final

from pciesim.hardware import GpuType
from pciesim.kernels.roofline import cold_time, datasheet_floor, roof, roofline_time,
from pciesim.kernels.tables import CurveTable, KernelTables
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import work
from pciesim.schedule import Gemm
from pciesim.units import Seconds, format_seconds

__all__ = ["gemm_time"]

# Half-widths: the 90th percentile of the held-out errors in docs/kernels.md, rounded up. Measured rows: repeatability
# of equal kernels is 3 %; the rest is the spread of the line that stands for cold weights (6 % at the 90th percentile).
MEASURED: Final = Spread(below=0.06, above=0.06)
COLD: Final = Spread(below=0.15, above=0.12)
GRID: Final = Spread(below=0.14, above=0.14)
SCATTERED: Final = Spread(below=0.30, above=0.35)
BEYOND: Final = Spread(below=0.20, above=0.25)
BORROWED: Final = Spread(below=0.20, above=0.30)

NEIGHBOURS: Final = 4

# Tables to use for a precision without its own: the kernel is another one, so the time is borrowed.
_STANDS_IN: Final = {"fp8_block": "fp8"}


def gemm_time(kernel: Gemm, tables: KernelTables, gpu: GpuType) -> KernelTime:
    """Time of one dense GEMM on the GPU the tables were measured on. Shapes without rows end in a roofline."""
    precision = kernel.precision.value
    table = tables.table(f"gemm/{precision}")
    if table is None and (stand_in := _STANDS_IN.get(precision)) is not None:
        table = tables.table(f"gemm/{stand_in}")
        if table is not None:
            return _restated(_from_table(kernel, table, tables, gpu), f"{stand_in} rows")
    if table is None:
        return _weight_only(kernel, tables, gpu)
    return _from_table(kernel, table, tables, gpu)


def _from_table(kernel: Gemm, table: CurveTable, tables: KernelTables, gpu: GpuType) -> KernelTime:
    largest = int(table.points[-1])
    if kernel.m > largest:
        return _many_rows(kernel, largest, table, tables, gpu)
    constants = tables.constants
    floor = datasheet_floor(work(kernel), gpu)
    row = _cell(table, kernel.m, kernel.n, kernel.k)
    if row is not None:
        curve = table.curve(kernel.n, kernel.k)
        measured = curve is not None and curve.measured(kernel.m)
        cold = cold_time(work(kernel), gpu, constants)
        if _fits_l2(kernel, gpu) and cold > row and kernel.m <= _MEMORY_BOUND:
            # The plain bound (bytes at achieved bandwidth, no launch) is the optimistic end.
            low = max(row, cold - constants.launch)
            detail = (
                f"{table.name} row {format_seconds(row)} read its weights from L2; "
                f"{format_seconds(constants.launch)} + bytes from device memory"
            )
            return KernelTime(
                value=cold, low=max(low * (1 - 0.03), floor), high=cold * (1 + COLD.above),
                source=KernelSource.INTERPOLATED, detail=detail, floor=floor,
            )  # fmt: skip
        if measured:
            return KernelTime.around(
                row, MEASURED, source=KernelSource.MEASURED, detail=f"{table.name} row", floor=floor
            )
        return KernelTime.around(
            row, GRID, source=KernelSource.INTERPOLATED, detail=f"{table.name} between m rows", floor=floor
        )
    n0, n1, n_inside = _bracket(table.values(0), kernel.n)
    k0, k1, k_inside = _bracket(table.values(1), kernel.k)
    corners = {(n, k): _cold_cell(table, kernel.m, n, k, kernel, tables, gpu) for n, k in product((n0, n1), (k0, k1))}
    if any(corner is None for corner in corners.values()):
        return _scattered(kernel, table, tables, gpu)
    known = {shape: seconds for shape, seconds in corners.items() if seconds is not None}
    along_n = [_power(kernel.n, n0, known[n0, k], n1, known[n1, k]) for k in (k0, k1)]
    value = _power(kernel.k, k0, along_n[0], k1, along_n[1])
    if n_inside and k_inside:
        detail = f"{table.name} between n {n0}, {n1} and k {k0}, {k1}"
        return KernelTime.around(value, GRID, source=KernelSource.INTERPOLATED, detail=detail, floor=floor)
    edge = replace(kernel, n=min(max(kernel.n, n0), n1), k=min(max(kernel.k, k0), k1))
    value = _rescaled(value, edge, kernel, tables, gpu)
    detail = f"{table.name} edge n {edge.n}, k {edge.k}, scaled by roofline"
    return KernelTime.around(value, BEYOND, source=KernelSource.INTERPOLATED, detail=detail, floor=floor)


def _many_rows(kernel: Gemm, largest: int, table: CurveTable, tables: KernelTables, gpu: GpuType) -> KernelTime:
    """More rows than the table has: the same FLOP and output tiles with ``largest`` rows and wider outputs.

    At the last measured m these GEMMs are bound by compute, so the weights that widening adds cost nothing.
    """
    constants = tables.constants
    at_largest = _from_table(replace(kernel, m=largest), table, tables, gpu)
    linear = at_largest.value * kernel.m / largest
    wide = replace(kernel, m=largest, n=math.ceil(kernel.n * kernel.m / largest))
    widest = table.values(0)[-1]
    if wide.n <= widest:
        widened = _from_table(wide, table, tables, gpu).value
    else:
        at_edge = _from_table(replace(wide, n=widest), table, tables, gpu).value
        widened = at_edge * wide.n / widest
    compute = roof(work(kernel), gpu, constants)
    value = max(min(widened, linear), compute)
    detail = f"{table.name} at m {largest} with outputs widened {kernel.m / largest:.3g}-fold (equal FLOP)"
    return KernelTime(
        value=value, low=min(compute, value) * 0.9, high=max(linear, value) * 1.1, source=KernelSource.BORROWED,
        detail=detail, floor=datasheet_floor(work(kernel), gpu),
    )  # fmt: skip


def _scattered(kernel: Gemm, table: CurveTable, tables: KernelTables, gpu: GpuType) -> KernelTime:
    """Shapes that form no grid: the ratio to the roofline of the nearest shapes, weighted by distance."""
    near = sorted((_distance(kernel, int(key[0]), int(key[1])), int(key[0]), int(key[1])) for key in table.lines)
    total = weighted = 0.0
    used: list[str] = []
    for distance, n, k in near[:NEIGHBOURS]:
        seconds = _cold_cell(table, kernel.m, n, k, kernel, tables, gpu)
        if seconds is None:
            continue
        weight = 1.0 / (distance**2 + 1e-6)
        total += weight
        weighted += weight * math.log(seconds / roof(work(replace(kernel, n=n, k=k)), gpu, tables.constants))
        used.append(f"{n}x{k}")
    value = math.exp(weighted / total) * roof(work(kernel), gpu, tables.constants)
    detail = f"{table.name}: ratio to roofline of n x k {', '.join(used)}"
    return KernelTime.around(
        value, SCATTERED, source=KernelSource.INTERPOLATED, detail=detail, floor=datasheet_floor(work(kernel), gpu)
    )


def _weight_only(kernel: Gemm, tables: KernelTables, gpu: GpuType) -> KernelTime:
    """A precision without rows (INT4, MXFP4, FP32): the roofline, and not below the bf16 row of a tiny output."""
    table = tables.table("gemm/bf16")
    least = 0.0
    if table is not None:
        narrow = table.values(0)[0]
        least = _from_table(replace(kernel, n=narrow, m=min(kernel.m, int(table.points[-1]))), table, tables, gpu).value
    return roofline_time(
        work(kernel), gpu, tables.constants, what=f"no {kernel.precision.value} GEMM rows", least=least
    )


# Up to here a GEMM of these GPUs waits for its weights (bf16 ridge: 262 rows on RTX PRO 6000, 206 on H200).
_MEMORY_BOUND: Final = 64


def _fits_l2(kernel: Gemm, gpu: GpuType) -> bool:
    return work(kernel).weights < gpu.l2


def _cell(table: CurveTable, m: int, n: int, k: int) -> Seconds | None:
    curve = table.curve(n, k)
    return curve.at(m) if curve is not None and curve.covers(m) else None


def _cold_cell(
    table: CurveTable, m: int, n: int, k: int, kernel: Gemm, tables: KernelTables, gpu: GpuType
) -> Seconds | None:
    row = _cell(table, m, n, k)
    if row is None:
        return None
    shape = replace(kernel, m=m, n=n, k=k)
    if m <= _MEMORY_BOUND and _fits_l2(shape, gpu):
        return max(row, cold_time(work(shape), gpu, tables.constants))
    return row


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


def _power(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    if x0 == x1:
        return y0
    weight = math.log(x / x0) / math.log(x1 / x0)
    return math.exp((1 - weight) * math.log(y0) + weight * math.log(y1))


def _rescaled(seconds: Seconds, edge: Gemm, kernel: Gemm, tables: KernelTables, gpu: GpuType) -> Seconds:
    """Beyond the grid: large shapes by bytes or FLOP, shapes below the grid keep its smallest time."""
    if kernel.n <= edge.n and kernel.k <= edge.k:
        return seconds
    ratio = roof(work(kernel), gpu, tables.constants) / roof(work(edge), gpu, tables.constants)
    return seconds * ratio


def _distance(kernel: Gemm, n: int, k: int) -> float:
    return math.hypot(math.log(kernel.n / n), math.log(kernel.k / k))


def _restated(time: KernelTime, rows: str) -> KernelTime:
    return KernelTime.around(
        time.value, BORROWED, source=KernelSource.BORROWED, detail=f"{rows}: {time.detail}", floor=time.floor
    )
