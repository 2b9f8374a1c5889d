"""Joint robust fit of a profile's parameters to collective measurements.

Minimises the soft-L1 of log(predicted / measured) over all points at once, so a microsecond at 8 KiB and a millisecond
at 16 MiB weigh alike and one outlier cannot pull the rest. Parameters are fitted in log space within physical bounds.
Intervals come from a seeded bootstrap over points, widened to the scatter the fit leaves where that is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pciesim.calibrate.points import Point, predicted
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.profile import Evidence, Parameter, Profile

__all__ = ["Fit", "Free", "fit_profile"]

TimerFor = Callable[[Point, Profile], CollectiveTimer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """A parameter to fit: where to start and what is physically possible. All positive, SI units."""

    start: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The fitted profile and, per point, the log of predicted over measured."""

    profile: Profile
    residuals: tuple[float, ...]
    unidentified: tuple[str, ...]


def fit_profile(
    profile: Profile,
    free: Mapping[str, Free],
    points: Sequence[Point],
    timer_for: TimerFor,
    *,
    source: str,
    resamples: int = 40,
    seed: int = 20261130,
) -> Fit:
    """Fits ``free`` of ``profile`` to the points marked as fitted.

    A parameter whose bootstrap interval spans nearly its whole physical range is listed in ``unidentified``: the data
    do not tell it.
    """
    names = sorted(free)
    used = [point for point in points if point.fitted]
    measured = np.log([point.latency for point in used])
    start = np.log([free[name].start for name in names])

    def residuals(x: np.ndarray, subset: np.ndarray) -> np.ndarray:
        moved = _with_values(profile, dict(zip(names, np.exp(x), strict=True)))
        return np.array([math.log(predicted(used[i], moved, timer_for)) - measured[i] for i in subset])

    every = np.arange(len(used))
    best = _solve(residuals, start, every, free, names)
    generator = np.random.default_rng(seed)
    draws = np.array(
        [_solve(residuals, best, generator.integers(0, len(used), len(used)), free, names) for _ in range(resamples)]
    )
    low, high = np.exp(np.quantile(draws, [0.05, 0.95], axis=0))
    values = np.exp(best)
    fitted = {
        name: Parameter(
            value=float(value),
            low=float(min(lo, value)),
            high=float(max(hi, value)),
            evidence=Evidence.FITTED,
            source=source,
        )
        for name, value, lo, hi in zip(names, values, low, high, strict=True)
    }
    return Fit(
        profile=replace(profile, parameters=tuple((n, fitted.get(n, p)) for n, p in profile.parameters)),
        residuals=tuple(float(x) for x in residuals(best, every)),
        unidentified=tuple(
            name
            for name in names
            if math.log(fitted[name].high / fitted[name].low)
            > _SPAN_UNIDENTIFIED * math.log(free[name].most / free[name].least)
        ),
    )


_SPAN_UNIDENTIFIED: Final = 0.6  # of the physical range, in logs
_INSIDE: Final = 2.0**-20  # of the physical range


def _solve(
    residuals: Callable[[np.ndarray, np.ndarray], np.ndarray],
    start: np.ndarray,
    subset: np.ndarray,
    free: Mapping[str, Free],
    names: Sequence[str],
) -> np.ndarray:
    from scipy.optimize import least_squares  # noqa: PLC0415  (half a second to import; only fits need it)

    bounds = (np.log([free[name].least for name in names]), np.log([free[name].most for name in names]))
    margin = _INSIDE * (bounds[1] - bounds[0])  # least_squares wants a strictly interior start
    inside = np.clip(start, bounds[0] + margin, bounds[1] - margin)
    found = least_squares(
        residuals,
        inside,
        args=(subset,),
        bounds=bounds,
        loss="soft_l1",
        f_scale=0.05,
        x_scale="jac",
        ftol=1e-5,
        xtol=1e-4,
        max_nfev=40,
    )
    return np.asarray(found.x)


def _with_values(profile: Profile, values: Mapping[str, float]) -> Profile:
    return replace(
        profile,
        parameters=tuple(
            (name, replace(each, value=v, low=v, high=v) if (v := values.get(name)) is not None else each)
            for name, each in profile.parameters
        ),
    )
