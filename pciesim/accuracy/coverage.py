"""How often a prediction's interval holds what was measured: with a box's own profile, and with a prior alone.

For the prior a host is left out of everything: the profile of its GPU is fitted again without its points, and the
factor by which unmeasured boxes differ (``calibrate.priors``) is the one that the other hosts give. The score is that
of Gneiting and Raftery for 90 % intervals, relative to the measurement: the width, plus twenty times what is missed by.
It is held against the same prediction plus and minus half.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pciesim.api import box_profile
from pciesim.calibrate.direct import with_parameters
from pciesim.calibrate.fit import fit_profile
from pciesim.calibrate.points import Point, predicted
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.formats.points_csv import read_points
from pciesim.formats.profile_yaml import read_profile
from pciesim.formats.recipe_yaml import read_recipe
from pciesim.formats.shipped import find_input
from pciesim.formats.topology import load_fabric
from pciesim.profile import Interval, Profile
from pciesim.refit import point_timers
from pciesim.uncertainty import combine, propagate, shifts_of
from pciesim.units import KIB

__all__ = ["HOSTS", "Coverage", "Host", "coverage_table", "factor", "left_out", "like"]

CONFIDENCE: Final = 0.9
MISS: Final = 2 / (1 - CONFIDENCE)
HALF: Final = 0.5
STEPS: Final = np.arange(0.05, 0.85, 0.05)  # of a logarithm: ends of the factor that are tried

Ratios = NDArray[np.float64]
"""What was measured of a left-out host, over what the nearest one's figures say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A box with measurements: its datasets, and whose figures it gets when it is left out.

    ``nearest`` is the recipe that is fitted again without it, or a profile that it has no part in. ``same_gpu``:
    whether another box of its GPU is known. ``profiled``: whether a profile is of this very box.
    """

    name: str
    runs: str
    datasets: tuple[str, ...]
    nearest: str
    same_gpu: bool = True
    profiled: bool = True


_PUBLISHED: Final = "rtx_pro_6000_published/collectives.csv"
_L40S: Final = "l40s_published/collectives.csv"
HOSTS: Final = (
    Host(name="ASUS with Broadcom partitions", runs=_PUBLISHED, datasets=("asus_",), nearest="rtx_pro_6000"),
    Host(name="dual Turin", runs=_PUBLISHED, datasets=("turin_",), nearest="rtx_pro_6000"),
    Host(name="WRX90, two switches", runs=_PUBLISHED, datasets=("wrx90_",), nearest="rtx_pro_6000"),
    Host(name="WRX90, cascaded switches", runs=_PUBLISHED, datasets=("cpayne_",), nearest="rtx_pro_6000"),
    Host(name="two behind a switch", runs=_PUBLISHED, datasets=("switch_",), nearest="rtx_pro_6000", profiled=False),
    Host(name="NVIDIA's server", runs="nvidia_server_published/collectives.csv", datasets=("nvidia_server",),
         nearest="rtx_pro_6000"),
    Host(name="L40S, first box", runs=_L40S, datasets=("l40s_a",), nearest="l40s"),
    Host(name="L40S, second box", runs=_L40S, datasets=("l40s_b",), nearest="l40s"),
    Host(name="both L40S", runs=_L40S, datasets=("l40s",), nearest="rtx_pro_6000", same_gpu=False,
         profiled=False),
    Host(name="four RTX 4090", runs="rtx_4090_published/collectives.csv", datasets=("mc62",), nearest="l40s",
         same_gpu=False),
    Host(name="two H200 through host memory", runs="h200x2_2026-11-30d/collectives.csv",
         datasets=("h200x2_2026-11-30d/host/default",), nearest="rtx_pro_6000", same_gpu=False),
)  # fmt: skip


LeftOut: TypeAlias = Mapping[Host, tuple[NDArray[np.int_], Ratios]]
"""By host: the bytes of its points, and their ratios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of some points: how many, the share inside, the median of high over low, median errors, score.

    ``small`` is the median error up to 64 KiB; ``plain`` the score of the prediction plus and minus half.
    """

    points: int
    inside: float
    width: float
    error: float
    small: float
    score: float
    plain: float


def coverage_table(root: Path, found: LeftOut | None = None) -> str:
    """The table of the page, by host: with its own profile (points not fitted), and with a prior (``found`` for it)."""
    lines = [
        "| host | points | error | inside | high / low | prior: points | error | up to 64 KiB | inside | high / low "
        "| score | +- 50 % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    found = found or left_out(root)
    for host in HOSTS:
        sizes, ratios = found[host]
        prior = _of_factor(sizes, ratios, factor(like(found, same_gpu=host.same_gpu, but=host)))
        mine = _own(root, host) if host.profiled else "| | | | "
        lines.append(
            f"| {host.name} {mine}| {prior.points} | {prior.error:.0%} | {prior.small:.0%} | {prior.inside:.0%} "
            f"| {prior.width:.2f} | {prior.score:.2f} | {prior.plain:.2f} |"
        )
    for same_gpu, title in ((True, "another box of its GPU is known"), (False, "none of its GPU is")):
        low, high = factor(like(found, same_gpu=same_gpu))
        lines += ["", f"Where {title}, a box nobody measured takes {low:.2f} to {high:.2f} times the prediction."]
    return "\n".join(lines) + "\n"


def left_out(root: Path) -> LeftOut:
    """By host: the bytes of its points, and what was measured over what is said of it without it."""
    found: dict[Host, tuple[NDArray[np.int_], Ratios]] = {}
    for host in HOSTS:
        profile, timers, points = _without(root, host), point_timers(), _points(root, host)
        found[host] = (
            np.array([point.nbytes for point in points]),
            np.array([point.latency / predicted(point, profile, timers) for point in points]),
        )
    return found


def like(found: LeftOut, *, same_gpu: bool, but: Host | None = None) -> list[Ratios]:
    """The hosts that tell how far off a prediction may be: those alike, and all where no box of the GPU is known."""
    return [ratios for host, (_, ratios) in found.items() if host is not but and (host.same_gpu or not same_gpu)]


def factor(hosts: Sequence[Ratios]) -> tuple[float, float]:
    """The least and most of a left-out host's time over the prediction: nine of ten inside, then the best mean score.

    Every host counts alike, however many points it has.
    """
    if not hosts:
        return 1 - HALF, 1 + HALF
    plain = [_score(1 - HALF, 1 + HALF, each) for each in hosts]
    tried = [(float(np.exp(-low)), float(np.exp(high))) for low in STEPS for high in STEPS]
    ends = [each for each in tried if statistics.fmean(_inside(*each, host) for host in hosts) >= CONFIDENCE] or tried

    def ratio_to_plain(each: tuple[float, float]) -> float:
        return statistics.fmean(_score(*each, host) / by for host, by in zip(hosts, plain, strict=True))

    return min(ends, key=ratio_to_plain)


def _inside(low: float, high: float, ratios: Ratios) -> float:
    return float(np.mean((low <= ratios) & (ratios <= high)))


def _score(low: float, high: float, ratios: Ratios) -> float:
    missed = np.maximum(low - ratios, 0.0) + np.maximum(ratios - high, 0.0)
    return float(np.mean((high - low + MISS * missed) / ratios))


def _of_factor(sizes: NDArray[np.int_], ratios: Ratios, ends: tuple[float, float]) -> Coverage:
    low, high = ends
    errors, small = np.abs(1 / ratios - 1), sizes <= 64 * KIB
    return Coverage(
        points=len(ratios),
        inside=_inside(low, high, ratios),
        width=high / low,
        error=float(np.median(errors)),
        small=float(np.median(errors[small])),
        score=_score(low, high, ratios),
        plain=_score(1 - HALF, 1 + HALF, ratios),
    )


def _points(root: Path, host: Host) -> list[Point]:
    return [point for point in read_points(root / "runs" / host.runs) if point.dataset.startswith(host.datasets)]


def _own(root: Path, host: Host) -> str:
    """The part of a line about the box's own profile: points that were not fitted, error, inside, high over low."""
    checked = [point for point in _points(root, host) if not point.fitted]
    boxes = {point.topology: box_profile(load_fabric(find_input("topologies", point.topology))) for point in checked}
    timers = point_timers()
    pairs = [(_interval(point, timers(point, boxes[point.topology])), point.latency) for point in checked]
    error = statistics.median(abs(each.value / measured - 1) for each, measured in pairs)
    inside = statistics.fmean(each.low <= measured <= each.high for each, measured in pairs)
    width = statistics.median(each.high / max(each.low, each.value / 100) for each, _ in pairs)
    return f"| {len(checked)} | {error:.0%} | {inside:.0%} | {width:.2f} "


def _interval(point: Point, timer: CollectiveTimer) -> Interval:
    reference, shifts = shifts_of(timer)

    def answer(other: CollectiveTimer) -> float:
        return other.time(point.algorithm, point.kind, point.nbytes).latency

    return combine(answer(reference), propagate(reference, shifts, answer))


def _without(root: Path, host: Host) -> Profile:
    """What is known of a host when it is left out: its kin's figures, fitted without it."""
    known = read_profile(find_input("profiles", host.nearest))
    recipe = read_recipe(root / "recipes" / f"{host.nearest}.yaml")
    points = [
        replace(each, fitted=each.fitted and not each.dataset.startswith(host.datasets))
        for each in recipe.points(root / "runs")
    ]
    if not any(each.dataset.startswith(host.datasets) for each in points):
        return known
    base = read_profile(find_input("profiles", recipe.base)) if recipe.base else None
    # Hosts' own times, drafts and readings are not of collectives; they stay.
    start = with_parameters(known, dict(recipe.start_profile(host.nearest, base).parameters))
    free = recipe.free(host.nearest, base)
    return fit_profile(start, free, points, point_timers(), source="without it", explore=False).profile
