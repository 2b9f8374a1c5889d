"""How often a prediction's interval holds what was measured: with a box's own profile, and with a prior alone.

For the prior a host is left out: the profile that was fitted on it is fitted again without it, and what it then says
is as uncertain as the other hosts differ (``calibrate.priors``). The score is that of Gneiting and Raftery for 90 %
intervals, relative to the measurement: the width, plus twenty times what is missed by. It is held against the nearest
host's prediction plus and minus half.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pciesim.calibrate.direct import with_parameters
from pciesim.calibrate.fit import fit_profile
from pciesim.calibrate.points import Point
from pciesim.calibrate.priors import prior_profile
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.formats.points_csv import read_points
from pciesim.formats.profile_yaml import read_profile
from pciesim.formats.recipe_yaml import read_recipe
from pciesim.formats.shipped import find_input
from pciesim.profile import Evidence, Interval, Profile
from pciesim.refit import point_timers
from pciesim.uncertainty import combine, propagate, shifts_of

__all__ = ["HOSTS", "Coverage", "Host", "coverage", "coverage_table"]

MISS: Final = 2 / 0.1
HALF: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A box with measurements: its datasets, the profile that is its own, and the one nearest to it without it."""

    name: str
    runs: str
    datasets: tuple[str, ...]
    own: str
    nearest: str


HOSTS: Final = (
    Host(name="ASUS, 4 GPUs, one-shot and NCCL", runs="rtx_pro_6000_published/collectives.csv",
         datasets=("asus_4gpu",), own="rtx_pro_6000", nearest="rtx_pro_6000"),
    Host(name="ASUS, 8 GPUs", runs="rtx_pro_6000_published/collectives.csv",
         datasets=("asus_8gpu",), own="rtx_pro_6000", nearest="rtx_pro_6000"),
    Host(name="dual Turin, 4 and 8 GPUs", runs="rtx_pro_6000_published/collectives.csv",
         datasets=("turin",), own="rtx_pro_6000", nearest="rtx_pro_6000"),
    Host(name="WRX90, two switches, 8 GPUs", runs="rtx_pro_6000_published/collectives.csv",
         datasets=("wrx90",), own="rtx_pro_6000", nearest="rtx_pro_6000"),
    Host(name="NVIDIA server, 2, 4, 8 GPUs", runs="nvidia_server_published/collectives.csv",
         datasets=("nvidia_server",), own="nvidia_server", nearest="h200"),
    Host(name="2x H200, host memory", runs="h200x2_2026-11-30c/collectives.csv",
         datasets=("h200x2_2026-11-30c/host",), own="h200", nearest="nvidia_server"),
    Host(name="2x H200, NVLink", runs="h200x2_2026-11-30c/collectives.csv",
         datasets=("h200x2_2026-11-30c/p2p",), own="h200", nearest="h200"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of some points under one profile: how many, the share inside, the median of high over low, median error, score.

    ``plain`` is the score of the nearest host's prediction plus and minus half.
    """

    points: int
    inside: float
    width: float
    error: float
    score: float
    plain: float


def coverage_table(root: Path) -> str:
    """The table of the page, by host: with its own profile (points not fitted), and with a prior."""
    lines = [
        "| host | points | error | inside | high / low | prior | error | inside | high / low | score | +- 50 % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for host in HOSTS:
        own, prior = coverage(root, host)
        mine = f"{own.points} | {own.error:.0%} | {own.inside:.0%} | {own.width:.2f}" if own else "0 | | | "
        left = (
            f"{prior.points} | {prior.error:.0%} | {prior.inside:.0%} | {prior.width:.2f} | {prior.score:.2f} | "
            f"{prior.plain:.2f}"
        )
        lines.append(f"| {host.name} | {mine} | {left} |")
    return "\n".join(lines) + "\n"


def coverage(root: Path, host: Host) -> tuple[Coverage | None, Coverage]:
    """Under the host's own profile (its points that were not fitted), and under a prior made without the host."""
    every = read_points(root / "runs" / host.runs)
    points = [point for point in every if point.dataset.startswith(host.datasets)]
    shipped = {name: read_profile(find_input("profiles", name)) for name in {h.own for h in HOSTS}}
    checked = [point for point in points if not point.fitted]
    own = _coverage(checked, shipped[host.own], shipped[host.own]) if checked else None
    nearest = shipped[host.nearest]
    if host.nearest == host.own:
        nearest = _without(root, host, every) or nearest
    others = [profile for name, profile in sorted(shipped.items()) if name not in {host.own, host.nearest}]
    return own, _coverage(points, prior_profile(nearest, others, name="prior"), nearest)


def _without(root: Path, host: Host, points: Sequence[Point]) -> Profile | None:
    """The host's profile fitted again without its points; None where it has none in the fit."""
    recipe = read_recipe(root / "recipes" / f"{host.own}.yaml")
    rest = [point for point in points if point.fitted and not point.dataset.startswith(host.datasets)]
    if len(rest) == sum(point.fitted for point in points):
        return None
    where = host.own
    known = read_profile(find_input("profiles", host.own))
    start = recipe.start_profile(where)
    # Host and draft times are not of collectives; they stay.
    parameters = {**dict(known.parameters), **dict(start.parameters)}
    begin = Profile(name=start.name, gpu=start.gpu, description=start.description, parameters=tuple(parameters.items()))
    fit = fit_profile(begin, recipe.free(where), rest, point_timers(), source="without this host")
    untold = {name: replace(fit.profile.parameter(name), evidence=Evidence.ASSUMED) for name in fit.unidentified}
    return with_parameters(fit.profile, untold)


def _coverage(points: Sequence[Point], profile: Profile, nearest: Profile) -> Coverage:
    """Shares, medians and scores of the points under a profile."""
    timers, near = point_timers(), point_timers()
    intervals = _intervals(points, profile, timers)
    measured = [point.latency for point in points]
    pairs = list(zip(intervals, measured, strict=True))
    plain = [near(p, nearest).time(p.algorithm, p.kind, p.nbytes).latency for p in points]
    return Coverage(
        points=len(points),
        inside=statistics.fmean(each.low <= y <= each.high for each, y in pairs),
        width=statistics.median(each.high / max(each.low, HALF * each.value / 100) for each in intervals),
        error=statistics.median(abs(each.value / y - 1) for each, y in pairs),
        score=statistics.fmean(_score(each.low, each.high, y) for each, y in pairs),
        plain=statistics.fmean(_score((1 - HALF) * x, (1 + HALF) * x, y) for x, y in zip(plain, measured, strict=True)),
    )


def _intervals(
    points: Sequence[Point], profile: Profile, timers: Callable[[Point, Profile], CollectiveTimer]
) -> list[Interval]:
    found: list[Interval] = []
    for point in points:
        reference, shifts = shifts_of(timers(point, profile))

        def answer(timer: CollectiveTimer, point: Point = point) -> float:
            return timer.time(point.algorithm, point.kind, point.nbytes).latency

        found.append(combine(answer(reference), propagate(reference, shifts, answer)))
    return found


def _score(low: float, high: float, measured: float) -> float:
    missed = max(low - measured, 0.0) + max(measured - high, 0.0)
    return (high - low + MISS * missed) / measured
