"""Decode attention: measured over context and batch, per backend, KV precision, head dimension and window."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from pciesim.kernels.backends import Backends
from pciesim.kernels.roofline import achieved_bandwidth, datasheet_floor, roof, roofline_time, scaled_time
from pciesim.kernels.tables import CurveTable, Donor, log_between
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import work
from pciesim.schedule import DecodeAttention
from pciesim.units import Seconds, format_seconds

__all__ = ["VERIFY_TOKENS", "attention_time"]

# Half-widths from the held-out errors in docs/kernels.md (90th percentile, rounded up).
MEASURED: Final = Spread(below=0.06, above=0.08)
CELL: Final = Spread(below=0.20, above=0.20)
BORROWED: Final = Spread(below=0.25, above=0.30)
VERIFY: Final = Spread(below=0.15, above=0.50)

# More new tokens than this are a prompt chunk, whose kernel is another one.
VERIFY_TOKENS: Final = 16
_BACKENDS: Final = ("flashinfer", "triton", "sdpa")


def attention_time(kernel: DecodeAttention, donor: Donor, backends: Backends) -> KernelTime:
    """Time of one attention layer on the GPU the tables were measured on.

    Several new tokens of one sequence (verification of drafts) read the cache once and share it as query heads of one
    KV head share it: they are looked up as that many times the heads. No table verifies this, so the range is wide.
    """
    if kernel.new_tokens > VERIFY_TOKENS:
        return roofline_time(work(kernel), donor.gpu, donor.constants, what="attention of a prompt chunk, no rows")
    if kernel.new_tokens > 1:
        merged = replace(kernel, heads=kernel.heads * kernel.new_tokens, new_tokens=1)
        time = attention_time(merged, donor, backends)
        return KernelTime.around(
            time.value, VERIFY, source=KernelSource.BORROWED, floor=time.floor,
            detail=f"{kernel.new_tokens} new tokens as {merged.heads} heads: {time.detail}",
        )  # fmt: skip
    for name, exact in _candidates(kernel, donor, backends):
        table = donor.tables.table(name)
        if table is not None and (found := _from_table(kernel, table, exact, donor)) is not None:
            return found
    return roofline_time(
        work(kernel), donor.gpu, donor.constants, what=f"no attention rows for head dimension {kernel.head_dim}"
    )


def _candidates(kernel: DecodeAttention, donor: Donor, backends: Backends) -> list[tuple[str, bool]]:
    """Tables by how near they are: the engine's backend first, the same window first, then other head dimensions."""
    precision = "fp8" if kernel.kv_precision.value.startswith("fp8") else kernel.kv_precision.value
    order = (backends.attention, *(each for each in _BACKENDS if each != backends.attention))
    found = []
    for name in donor.tables.names:
        folder, _, stem = name.partition("/")
        if folder != "attention":
            continue
        backend, stored, head_dim, window = stem.split("__")
        wide = kernel.window if 0 < kernel.window < kernel.context else 0
        if stored != precision or int(window) not in (0, wide):
            continue
        rank = (
            abs(math.log(int(head_dim) / kernel.head_dim)),
            int(window) != wide,
            order.index(backend) if backend in order else len(order),
        )
        exact = rank[0] == 0 and not rank[1] and rank[2] == 0
        found.append((rank, name, exact))
    return [(name, exact) for _, name, exact in sorted(found)]


def _from_table(kernel: DecodeAttention, table: CurveTable, exact: bool, donor: Donor) -> KernelTime | None:
    heads, kv_heads = _nearest_heads(table, kernel)
    head_dim, window = (int(part) for part in table.name.split("__")[2:])
    context = min(kernel.context, kernel.window) if kernel.window and not window else kernel.context
    stored = replace(kernel, heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window, context=context)
    cell = _cell(table, stored, donor)
    if cell is None:
        return None
    seconds, measured = cell
    # The cache of one layer is gone from L2 when the next step reads it; the benchmark's was not.
    small = table.curve(heads, kv_heads, _least_batch(table, heads, kv_heads))
    launch = small.seconds[0] if small is not None else donor.constants.launch
    cold = launch + work(stored).weights / achieved_bandwidth(donor.gpu, donor.constants)
    in_l2 = work(stored).weights < donor.gpu.l2 and cold > seconds
    detail = f"{table.name}, {heads}/{kv_heads} heads"
    if in_l2:
        detail += f", row {format_seconds(seconds)} read its cache from L2: launch + bytes from device memory"
    value = cold if in_l2 else seconds
    floor = datasheet_floor(work(kernel), donor.gpu)
    same = exact and (heads, kv_heads) == (kernel.heads, kernel.kv_heads)
    if same and measured and not in_l2:
        return KernelTime.around(value, MEASURED, source=KernelSource.MEASURED, detail=detail, floor=floor)
    if same:
        low = min(seconds, value) if in_l2 else value
        time = KernelTime.around(value, CELL, source=KernelSource.INTERPOLATED, detail=detail, floor=floor)
        return replace(time, low=max(min(time.low, low), floor))
    constants = donor.constants
    from_roof, to_roof = (roof(work(each), donor.gpu, constants) for each in (stored, kernel))
    value, low, high = scaled_time(value, from_roof, to_roof)
    source = KernelSource.INTERPOLATED if exact and kv_heads == kernel.kv_heads else KernelSource.BORROWED
    spread = CELL if source is KernelSource.INTERPOLATED else BORROWED
    return KernelTime(
        value=max(value, floor), low=max(low * (1 - spread.below), floor), high=max(high * (1 + spread.above), floor),
        source=source, detail=detail, floor=floor,
    )  # fmt: skip


def _nearest_heads(table: CurveTable, kernel: DecodeAttention) -> tuple[int, int]:
    """The measured (heads, KV heads) that are nearest; the KV heads carry the bytes, so they count more."""
    pairs = {(int(key[0]), int(key[1])) for key in table.lines}
    return min(
        pairs,
        key=lambda pair: (
            4 * abs(math.log(pair[1] / kernel.kv_heads)) + abs(math.log(pair[0] / kernel.heads)),
            pair,
        ),
    )


def _least_batch(table: CurveTable, heads: int, kv_heads: int) -> int:
    return min(int(key[2]) for key in table.lines if key[:2] == (str(heads), str(kv_heads)))


def _cell(table: CurveTable, kernel: DecodeAttention, donor: Donor) -> tuple[Seconds, bool] | None:
    """(seconds, whether a row is exactly here), interpolated over batch and context."""
    curve = table.curve(kernel.heads, kernel.kv_heads, kernel.batch)
    if curve is not None:
        return _along_context(table, kernel, donor), curve.measured(kernel.context)
    batches = sorted(int(key[2]) for key in table.lines if key[:2] == (str(kernel.heads), str(kernel.kv_heads)))
    if not batches:
        return None
    below = max((each for each in batches if each < kernel.batch), default=batches[0])
    above = min((each for each in batches if each > kernel.batch), default=batches[-1])
    low = _along_context(table, replace(kernel, batch=below), donor)
    high = _along_context(table, replace(kernel, batch=above), donor)
    value = log_between(kernel.batch, below, low, above, high)
    if not batches[0] <= kernel.batch <= batches[-1]:
        edge = replace(kernel, batch=below if kernel.batch > batches[-1] else above)
        value += (work(kernel).weights - work(edge).weights) / achieved_bandwidth(donor.gpu, donor.constants)
    return value, False


def _along_context(table: CurveTable, kernel: DecodeAttention, donor: Donor) -> Seconds:
    """Along the context of one measured batch; past its end by the bytes that are added."""
    curve = table.curve(kernel.heads, kernel.kv_heads, kernel.batch)
    if curve is None:
        raise KeyError(f"{table.name} has no batch {kernel.batch}")
    if kernel.context <= curve.points[-1]:
        return curve.at(kernel.context)
    edge = replace(kernel, context=int(curve.points[-1]))
    added = work(kernel).weights - work(edge).weights
    return curve.seconds[-1] + added / achieved_bandwidth(donor.gpu, donor.constants)
