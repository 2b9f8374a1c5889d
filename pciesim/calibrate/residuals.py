"""How a profile's predictions differ from measurements, and how that changes with each parameter to fit.

Both are asked for often and cost a lowering per point, so points that do not depend on a parameter are left out of its
derivative. Which these are is found by moving the parameter, for a few sizes of every curve (the points of one group,
algorithm and collective depend on the same parameters or on neighbours'), and looked at again when a fit has converged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pciesim.calibrate.points import Point, predicted
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.profile import Profile

__all__ = ["Residuals", "TimerFor", "Vector", "with_values"]

Vector = NDArray[np.float64]
TimerFor = Callable[[Point, Profile], CollectiveTimer]

LOOKED_AT: Final = 6  # sizes of a curve
STEP: Final = 2.0**-10  # of a logarithm: large against round-off, small against any curvature


class Residuals:
    """Logs of predicted over measured for a list of points, as a function of the logs of some parameters."""

    __slots__ = ("_curves", "_last", "_measured", "_profile", "_timer_for", "_touched", "names", "points")

    def __init__(self, profile: Profile, names: Sequence[str], points: Sequence[Point], timer_for: TimerFor) -> None:
        self.names, self.points = tuple(names), tuple(points)
        self._profile, self._timer_for = profile, timer_for
        self._measured = np.log([point.latency for point in points])
        self._curves = _curves(points)
        self._touched: NDArray[np.bool_] | None = None
        self._last: tuple[bytes, Vector] | None = None

    def subset(self, chosen: NDArray[np.int_]) -> Residuals:
        """The same function of some of the points."""
        found = Residuals(self._profile, self.names, [self.points[i] for i in chosen], self._timer_for)
        if self._touched is not None:
            found._touched = self._touched[chosen]
        return found

    def at(self, x: Vector) -> Vector:
        """One residual per point."""
        key = x.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = (key, self._logs(x, range(len(self.points))) - self._measured)
        return self._last[1]

    def jacobian(self, x: Vector) -> Vector:
        """Derivatives, points by parameters, of the points known to depend on each parameter."""
        if self._touched is None:
            self.look_again(x)
        assert self._touched is not None
        base = self.at(x)
        found = np.zeros((len(self.points), len(self.names)))
        for column in range(len(self.names)):
            rows = np.flatnonzero(self._touched[:, column])
            if len(rows):
                moved = x.copy()
                moved[column] += STEP
                found[rows, column] = (self._logs(moved, rows) - self._measured[rows] - base[rows]) / STEP
        return found

    def look_again(self, x: Vector) -> bool:
        """Finds out which points depend on which parameter at ``x``; True when there are more than was known."""
        base = self.at(x)
        samples = [curve[np.linspace(0, len(curve) - 1, min(LOOKED_AT, len(curve))).astype(int)]
                   for curve in self._curves]  # fmt: skip
        rows = np.concatenate(samples)
        touched = np.zeros((len(self.points), len(self.names)), dtype=bool)
        for column in range(len(self.names)):
            moved = x.copy()
            moved[column] += STEP
            changed = dict(zip(rows, self._logs(moved, rows) - self._measured[rows] != base[rows], strict=True))
            for curve, sample in zip(self._curves, samples, strict=True):
                touched[curve, column] = any(changed[row] for row in sample)
        more = self._touched is None or bool((touched & ~self._touched).any())
        self._touched = touched if self._touched is None else touched | self._touched
        return more

    def _logs(self, x: Vector, rows: Sequence[int] | NDArray[np.int_]) -> Vector:
        moved = with_values(self._profile, dict(zip(self.names, np.exp(x), strict=True)))
        return np.array([math.log(predicted(self.points[i], moved, self._timer_for)) for i in rows])


def with_values(profile: Profile, values: Mapping[str, float]) -> Profile:
    """A profile with some values moved; their intervals collapse."""
    return replace(
        profile,
        parameters=tuple(
            (name, replace(each, value=v, low=v, high=v) if (v := values.get(name)) is not None else each)
            for name, each in profile.parameters
        ),
    )


def _curves(points: Sequence[Point]) -> list[NDArray[np.int_]]:
    """Positions of the points of each curve, by size."""
    found: dict[tuple[object, ...], list[int]] = {}
    for position, point in enumerate(points):
        key = (point.topology, point.nccl, point.gpus, point.algorithm, point.kind)
        found.setdefault(key, []).append(position)
    return [np.array(sorted(curve, key=lambda position: points[position].nbytes)) for curve in found.values()]
