"""Held-out error: every group of points predicted by a fit that has not seen it.

A size, a number of GPUs or a host (a topology) is left out at a time; the fit without it starts from the optimum of the
whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from pciesim.calibrate.fit import Free, optimise
from pciesim.calibrate.points import Point
from pciesim.calibrate.residuals import Residuals, TimerFor
from pciesim.profile import Profile

__all__ = ["GROUPINGS", "HeldOut", "held_out"]

GROUPINGS: Final[Mapping[str, Callable[[Point], str]]] = MappingProxyType(
    {
        "size": lambda point: str(point.nbytes),
        "GPUs": lambda point: str(len(point.gpus)),
        "host": lambda point: point.topology,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A point and what a fit said that had not seen its group. ``relative`` is predicted over measured, less one."""

    point: Point
    grouping: str
    group: str
    relative: float


def held_out(
    profile: Profile, free: Mapping[str, Free], points: Sequence[Point], timer_for: TimerFor
) -> tuple[HeldOut, ...]:
    """Every point under every grouping that has at least two groups."""
    used = [point for point in points if point.fitted]
    model = Residuals(profile, sorted(free), used, timer_for)
    best = optimise(model, free)
    found: list[HeldOut] = []
    for grouping, key in GROUPINGS.items():
        groups: dict[str, list[int]] = {}
        for position, point in enumerate(used):
            groups.setdefault(key(point), []).append(position)
        if len(groups) < 2:
            continue
        for group, members in groups.items():
            kept = model.subset(np.delete(np.arange(len(used)), members))
            rest = model.subset(np.array(members)).at(optimise(kept, free, best.x).x)
            found += [
                HeldOut(point=used[member], grouping=grouping, group=group, relative=math.expm1(residual))
                for member, residual in zip(members, rest, strict=True)
            ]
    return tuple(found)
