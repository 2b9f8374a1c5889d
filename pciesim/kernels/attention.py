"""Decode attention: measured over context and batch, per backend, KV precision, head dimension and window."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from pciesim.kernels.backends import Backends
from pciesim.kernels.roofline import achieved_bandwidth, datasheet_floor, roof, roofline_time, scaled_time
from pciesim.kernels.tables import CurveTable, Donor, log_between
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import work
from pciesim.schedule import DecodeAttention
from pciesim.units import Seconds, format_seconds

__all__ = ["VERIFY_TOKENS", "attention_time"]

# Half-widths from the held-out errors in docs/kernels.md (about the 90th percentile).
MEASURED: Final = Spread(below=0.06, above=0.08)
CELL: Final = Spread(below=0.14, above=0.16)
HEADS: Final = Spread(below=0.20, above=0.22)
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
        if table is not None and table.lines:
            return _from_table(kernel, table, exact, donor)
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


def _from_table(kernel: DecodeAttention, table: CurveTable, exact: bool, donor: Donor) -> KernelTime:
    heads, kv_heads = _nearest_heads(table, kernel)
    head_dim, window = (int(part) for part in table.name.split("__")[2:])
    context = min(kernel.context, kernel.window) if kernel.window and not window else kernel.context
    stored = replace(kernel, heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window, context=context)
    rows = _Rows(table=table, donor=donor, heads=heads, kv_heads=kv_heads)
    row, value = rows.at(stored, cold=False), rows.at(stored, cold=True)
    floor = datasheet_floor(work(kernel), donor.gpu)
    detail = f"{table.name}, {heads}/{kv_heads} heads"
    in_l2 = value > row
    if in_l2:
        detail += f", row {format_seconds(row)} read its cache from L2: launch + bytes from device memory"
    if exact and (heads, kv_heads) == (kernel.heads, kernel.kv_heads):
        if rows.measured(stored) and not in_l2:
            return KernelTime.around(value, MEASURED, source=KernelSource.MEASURED, detail=detail, floor=floor)
        time = KernelTime.around(value, CELL, source=KernelSource.INTERPOLATED, detail=detail, floor=floor)
        return replace(time, low=max(min(time.low, row), floor))
    from_roof, to_roof = (roof(work(each), donor.gpu, donor.constants) for each in (stored, kernel))
    value, low, high = scaled_time(value, from_roof, to_roof)
    source = KernelSource.INTERPOLATED if exact and kv_heads == kernel.kv_heads else KernelSource.BORROWED
    spread = HEADS if source is KernelSource.INTERPOLATED else BORROWED
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The measured batches and contexts of one (heads, KV heads).

    ``cold`` times are what rows would be had their cache come from device memory: the cache of one layer is gone from
    L2 when the next step reads it, the benchmark's was not. Rows are corrected before they are interpolated, because
    one neighbour may have been in L2 and the other not.
    """

    table: CurveTable
    donor: Donor
    heads: int
    kv_heads: int

    def measured(self, kernel: DecodeAttention) -> bool:
        """Whether there is a row of exactly this batch and context."""
        curve = self.table.curve(self.heads, self.kv_heads, kernel.batch)
        return curve is not None and curve.measured(kernel.context)

    def at(self, kernel: DecodeAttention, *, cold: bool) -> Seconds:
        """Interpolated over batch and context; beyond them by the bytes that are added."""
        if self.table.curve(self.heads, self.kv_heads, kernel.batch) is not None:
            return self._along_context(kernel, cold)
        batches = self._batches()
        below = max((each for each in batches if each < kernel.batch), default=batches[0])
        above = min((each for each in batches if each > kernel.batch), default=batches[-1])
        ends = [self._along_context(replace(kernel, batch=batch), cold) for batch in (below, above)]
        if below < kernel.batch < above:
            return log_between(kernel.batch, below, ends[0], above, ends[1])
        edge, seconds = (below, ends[0]) if kernel.batch > batches[-1] else (above, ends[1])
        return max(seconds + self._added(replace(kernel, batch=edge), kernel), 0.0)

    def _along_context(self, kernel: DecodeAttention, cold: bool) -> Seconds:
        curve = self.table.curve(self.heads, self.kv_heads, kernel.batch)
        if curve is None:
            raise KeyError(f"{self.table.name} has no batch {kernel.batch}")
        below, above = curve.around(kernel.context)
        ends = [self._row(replace(kernel, context=int(x)), y, cold) for x, y in (below, above)]
        if kernel.context > curve.points[-1]:
            return ends[1] + self._added(replace(kernel, context=int(above[0])), kernel)
        return log_between(max(kernel.context, below[0]), below[0], ends[0], above[0], ends[1])

    def _row(self, kernel: DecodeAttention, seconds: Seconds, cold: bool) -> Seconds:
        cache = work(kernel).weights
        if not cold or cache > self.donor.gpu.l2:
            return seconds
        arrival = cache / achieved_bandwidth(self.donor.gpu, self.donor.constants)
        return max(seconds, self._launch() + arrival)

    def _launch(self) -> Seconds:
        """The shortest row: a few keys of one sequence."""
        curve = self.table.curve(self.heads, self.kv_heads, self._batches()[0])
        return curve.seconds[0] if curve is not None else self.donor.constants.launch

    def _batches(self) -> list[int]:
        pair = (str(self.heads), str(self.kv_heads))
        return sorted(int(key[2]) for key in self.table.lines if key[:2] == pair)

    def _added(self, edge: DecodeAttention, kernel: DecodeAttention) -> Seconds:
        more = work(kernel).weights - work(edge).weights
        return more / achieved_bandwidth(self.donor.gpu, self.donor.constants)
