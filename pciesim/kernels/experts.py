"""Routed experts of one layer: measured per engine, backend, precision and routing skew."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pciesim.kernels.backends import SPREAD, Backends, spread_of
from pciesim.kernels.cold import GONE, as_cold
from pciesim.kernels.roofline import achieved_bandwidth, datasheet_floor, roof, roofline_time, scaled_time
from pciesim.kernels.tables import Curve, CurveTable, Donor
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import work
from pciesim.model import Precision
from pciesim.routing import distinct_experts, fullest_rank, independent_tokens
from pciesim.schedule import RoutedExperts
from pciesim.units import Seconds, format_seconds

__all__ = ["experts_time", "rows_of"]

# Half-widths from the held-out errors in docs/kernels.md (about the 90th percentile). ``ENGINE``: another engine's
# rows of the same kernel family and shape. ``SHAPE``: the nearest shape's rows, scaled.
MEASURED: Final = Spread(below=0.06, above=0.08)
TOKENS: Final = Spread(below=0.20, above=0.20)
ENGINE: Final = Spread(below=0.15, above=0.15)
BACKEND: Final = Spread(below=0.35, above=0.30)
SHAPE: Final = Spread(below=0.20, above=0.20)
BEYOND: Final = Spread(below=0.30, above=0.40)

# Rows to stand in for a precision without any, in order of preference.
_STANDS_IN: Final = {
    "bf16": ("fp8_block", "fp8"), "fp32": ("fp8_block", "fp8"), "fp8": ("fp8_block",), "fp8_block": ("fp8",),
    "mxfp8": ("fp8", "fp8_block"), "mxfp4": ("nvfp4",), "nvfp4": ("mxfp4",), "int4": ("mxfp4", "nvfp4"),
    "int4_awq": ("int4", "mxfp4", "nvfp4"),
}  # fmt: skip
_NOTICED: Final = 1.01  # times a row: less is not worth a word
BALANCED: Final = "balanced"
UNIFORM: Final = "uniform"
_ALL_BUT: Final = 0.5  # of an expert: fewer missed ones count as none
_CUTLASS: Final = frozenset({"cutlass", "flashinfer_cutlass"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A table, and how far it is from the kernel asked for: 0 same engine and backend, 1 same kernel family, 2 not."""

    table: str
    engine: str
    backend: str
    rank: int


def experts_time(kernel: RoutedExperts, donor: Donor, backends: Backends) -> KernelTime:
    """Time of one layer's routed experts on the GPU the tables were measured on."""
    precision = kernel.precision.value
    if kernel.alike:  # tokens that share experts hit as many as fewer independent ones
        alone = independent_tokens(kernel.tokens, kernel.group, kernel.alike)
        kernel = replace(kernel, tokens=max(1, round(alone)), group=1, alike=0.0)
    for candidate in _candidates(donor, precision, backends, gated=kernel.gated):
        if (found := _same_shape(kernel, candidate, donor, backends)) is not None:
            return found
    # Experts of two matrices where only gated ones were measured: those rows, scaled by their three matrices.
    for gated in dict.fromkeys((kernel.gated, True)):
        for stored in (precision, *_STANDS_IN.get(precision, ())):
            for candidate in _candidates(donor, stored, backends, gated=gated):
                if (found := _nearest_shape(kernel, Precision(stored), candidate, donor, backends)) is not None:
                    return found
    return roofline_time(work(kernel, backends.routing), donor.gpu, donor.constants, what="no routed-expert rows")


def _candidates(donor: Donor, precision: str, backends: Backends, *, gated: bool) -> list[_Candidate]:
    found = []
    for name in donor.tables.names:
        folder, _, stem = name.partition("/")
        if folder != "moe":
            continue
        engine, backend, stored = stem.split("__")
        if stored != precision or ("nongated" in backend) is gated:
            continue
        family = backend.removesuffix("_nongated")
        same_family = family == backends.experts or {family, backends.experts} <= _CUTLASS
        exact = engine == backends.engine and backend == backends.experts
        rank = 0 if exact else 1 if same_family else 2
        found.append(_Candidate(table=name, engine=engine, backend=backend, rank=rank))
    # Among equals the engine's own rows first, then vLLM's: its kernel is FlashInfer's, as SGLang's is.
    order = {backends.engine: 0, "vllm": 1}
    return sorted(found, key=lambda each: (each.rank, order.get(each.engine, 2), each.table))


def _same_shape(kernel: RoutedExperts, candidate: _Candidate, donor: Donor, backends: Backends) -> KernelTime | None:
    table = donor.tables.table(candidate.table)
    if table is None:
        return None
    shape = (kernel.hidden, kernel.intermediate, kernel.top_k, kernel.experts, kernel.tp, kernel.ep)
    rows = rows_of(backends.routing, table)
    curve = table.curve(*shape, rows)
    if curve is None:
        return None
    warm = _along_tokens(curve, kernel, donor, backends.routing, rows).seconds
    curve = as_cold(curve, kernel, candidate.table, donor, rows)
    found = _along_tokens(curve, kernel, donor, backends.routing, rows)
    needs = work(kernel, backends.routing)
    # Experts that fit L2 were read from there by the benchmark; a step reads them from device memory, in no less than
    # their bytes take.
    arrival = needs.weights / achieved_bandwidth(donor.gpu, donor.constants)
    value = max(found.seconds, arrival) if needs.weights < GONE * donor.gpu.l2 else found.seconds
    in_l2 = value > _NOTICED * warm
    detail = f"{candidate.table}, {found.rows}"
    if in_l2:
        detail += f", row {format_seconds(warm)} read its weights from L2: their time from device memory"
    if not found.inside:
        spread, source = BEYOND, KernelSource.ROOFLINE
        detail += f", scaled by roofline from {curve.points[-1]:.0f} tokens"
    elif candidate.rank == 0:
        measured = found.measured and not in_l2
        spread = MEASURED if measured else TOKENS
        source = KernelSource.MEASURED if measured else KernelSource.INTERPOLATED
    else:
        spread = ENGINE if candidate.rank == 1 else BACKEND
        source = KernelSource.BORROWED
        detail += f" standing in for {backends.engine} {backends.experts}"
    floor = min(datasheet_floor(needs, donor.gpu), value)  # the number of experts hit is an expectation
    doubt = (value - warm) / value / 2  # half of what was added
    spread = Spread(below=math.hypot(spread.below, doubt), above=math.hypot(spread.above, doubt))
    time = KernelTime.around(value, spread, source=source, detail=detail, floor=floor)
    return _routed_otherwise(time, curve, kernel, donor, routing=backends.routing, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A time along a curve of tokens. ``inside`` the measured tokens, ``measured`` exactly at a row."""

    seconds: Seconds
    inside: bool
    measured: bool
    rows: str


def rows_of(routing: str, table: CurveTable) -> str:
    """The label of the rows that answer a routing: an expected number of experts hit is read from balanced rows.

    A table without them has rows of random tokens with equal chances, ``uniform``, which say it as well.
    """
    if spread_of(routing) is None:
        return routing
    labels = {key[-1] for key in table.lines}
    return BALANCED if BALANCED in labels or UNIFORM not in labels else UNIFORM


def _along_tokens(curve: Curve, kernel: RoutedExperts, donor: Donor, routing: str, rows: str) -> _Found:
    """Rows of the same routing by their tokens; else rows that hit as many experts.

    The time of a few rows an expert is that of reading the experts hit, and only balanced and uniform rows say how many
    these are: tokens x top_k, or the expectation. Once those have hit all, fewer experts save what they saved there.
    """
    if spread_of(routing) is None:
        seconds, inside = _at(curve, float(kernel.tokens), kernel, donor, routing)
        return _Found(seconds=seconds, inside=inside, measured=curve.measured(kernel.tokens), rows=routing)
    hit = _experts_hit(kernel, routing)
    alike = max(_tokens_that_hit(hit, kernel, rows), 1.0)
    # The first row that hits every expert: the step up to it is part of what fewer experts save.
    every = next((p for p in curve.points if _tokens_that_hit(kernel.experts, kernel, rows) <= p), curve.points[-1])
    detail = f"{rows} rows at {hit:.0f} experts hit"
    if kernel.tokens <= every:
        seconds, inside = _at(curve, alike, kernel, donor, rows)
        return _Found(seconds=seconds, inside=inside, measured=curve.measured(round(alike, 6)), rows=detail)
    seconds, inside = _at(curve, float(kernel.tokens), kernel, donor, rows)
    fewer = _at(curve, every, kernel, donor, rows)[0] - _at(curve, min(alike, every), kernel, donor, rows)[0]
    return _Found(seconds=seconds - fewer, inside=inside, measured=False, rows=detail)


def _tokens_that_hit(hit: float, kernel: RoutedExperts, rows: str) -> float:
    """Tokens of balanced or uniform rows that hit so many experts. All but half of one count as all: random tokens
    never hit every one for certain.
    """
    if rows != UNIFORM:
        return hit / kernel.top_k
    missed = max(kernel.experts - hit, _ALL_BUT)
    return math.log(missed / kernel.experts) / math.log1p(-kernel.top_k / kernel.experts)


def _experts_hit(kernel: RoutedExperts, routing: str) -> float:
    """Experts hit on all ranks, or as many times the fullest rank's as there are ranks."""
    spread = spread_of(routing) or 0.0
    if kernel.ep == 1:
        return distinct_experts(experts=kernel.experts, top_k=kernel.top_k, tokens=kernel.tokens, spread=spread)
    fullest, _ = fullest_rank(
        experts=kernel.experts, top_k=kernel.top_k, tokens=kernel.tokens, ranks=kernel.ep, spread=spread
    )
    return fullest * kernel.ep


def _at(curve: Curve, tokens: float, kernel: RoutedExperts, donor: Donor, rows: str) -> tuple[Seconds, bool]:
    """Between measured token counts, and True; beyond them scaled by the roofline, and False."""
    if curve.covers(tokens):
        return curve.at(tokens), True
    edge = int(min(max(tokens, curve.points[0]), curve.points[-1]))
    at_edge = roof(work(replace(kernel, tokens=edge), rows), donor.gpu, donor.constants)
    wanted = roof(work(replace(kernel, tokens=round(tokens)), rows), donor.gpu, donor.constants)
    return curve.at(edge) * wanted / at_edge, False


def _routed_otherwise(
    time: KernelTime, curve: Curve, kernel: RoutedExperts, donor: Donor, *, routing: str, rows: str
) -> KernelTime:
    """The range widened by what the least and the most skewed usual routing would change."""
    if spread_of(routing) is None:
        return time
    usual = _along_tokens(curve, kernel, donor, routing, rows).seconds
    ends = [_along_tokens(curve, kernel, donor, f"lognormal_{spread}", rows).seconds / usual for spread in SPREAD[::2]]
    low, high = min(*ends, 1.0), max(*ends, 1.0)
    below, above = 1 - time.low / time.value, time.high / time.value - 1
    return replace(
        time,
        low=max(time.value * (1 - math.hypot(below, 1 - low)), time.floor),
        high=time.value * (1 + math.hypot(above, high - 1)),
    )


def _nearest_shape(
    kernel: RoutedExperts,
    stored: Precision,
    candidate: _Candidate,
    donor: Donor,
    backends: Backends,
) -> KernelTime | None:
    """Rows of the nearest local shape (hidden, width per rank, experts per rank, top_k), scaled by the rooflines."""
    table = donor.tables.table(candidate.table)
    if table is None:
        return None
    best: tuple[float, RoutedExperts, Curve] | None = None
    label = rows_of(backends.routing, table)
    for shape in _shapes(table, kernel, label, gated="nongated" not in candidate.backend):
        distance = _distance(kernel, shape)
        if best is not None and distance >= best[0]:
            continue
        curve = table.curve(shape.hidden, shape.intermediate, shape.top_k, shape.experts, shape.tp, shape.ep, label)
        if curve is not None:
            best = (distance, shape, curve)
    if best is None:
        return None
    distance, shape, curve = best
    stored_shape = replace(shape, precision=stored)
    curve = as_cold(curve, stored_shape, candidate.table, donor, label)
    found = _along_tokens(curve, stored_shape, donor, backends.routing, label)
    constants = donor.constants
    value, low, high = scaled_time(
        found.seconds,
        roof(work(stored_shape, backends.routing), donor.gpu, constants),
        roof(work(kernel, backends.routing), donor.gpu, constants),
    )
    extra = BACKEND if candidate.rank > 1 or stored is not kernel.precision else SHAPE
    detail = (
        f"{candidate.table}, {found.rows}: rows of hidden {shape.hidden}, width {shape.intermediate}/{shape.tp}, "
        f"{shape.top_k} of {shape.experts}/{shape.ep}, scaled by roofline"
    )
    floor = datasheet_floor(work(kernel, backends.routing), donor.gpu)
    time = KernelTime(
        value=max(value, floor), low=max(low * (1 - extra.below), floor), high=max(high * (1 + extra.above), floor),
        source=KernelSource.BORROWED, detail=detail, floor=floor,
    )  # fmt: skip
    return _routed_otherwise(time, curve, stored_shape, donor, routing=backends.routing, rows=label)


def _shapes(table: CurveTable, kernel: RoutedExperts, routing: str, *, gated: bool) -> Iterator[RoutedExperts]:
    for key in table.lines:
        if key[6] != routing or (gated and key[2] == "22"):
            continue  # 22 of 512 is Nemotron's: two matrices an expert, not three
        hidden, intermediate, top_k, experts, tp, ep = map(int, key[:6])
        yield replace(
            kernel, hidden=hidden, intermediate=intermediate, top_k=top_k, experts=experts, tp=tp, ep=ep, gated=gated
        )  # fmt: skip


def _distance(a: RoutedExperts, b: RoutedExperts) -> float:
    """In natural logs. The number of hit experts and their size matter; how the product is split matters less."""
    return (
        abs(math.log(a.hidden / b.hidden))
        + abs(math.log(a.intermediate / a.tp * b.tp / b.intermediate))
        + abs(math.log(a.top_k / b.top_k))
        + 0.5 * abs(math.log(a.experts / a.ep * b.ep / b.experts))
        + 0.25 * abs(math.log(a.ep / b.ep))
    )
