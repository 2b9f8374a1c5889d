"""Joint robust fit of a profile's parameters to collective measurements.

Minimises the soft-L1 of log(predicted / measured) over all points at once, so a microsecond at 8 KiB and a millisecond
at 16 MiB weigh alike and one outlier cannot pull the rest. Parameters are fitted in log space within physical bounds; a
weak pull towards their starts (half of what is believed possible costs as much as one point that is five per cent off)
keeps what the data do not tell from wandering, so that the answer is one.

**Intervals** hold two things. What the data leave open: a seeded bootstrap over points, each draw solved on the linear
model at the optimum (one-step bootstrap: refitting every draw costs a hundred times as much and moves the quantiles
little, since a draw stays near the optimum). And what the model gets wrong: the shift of a parameter that each point
would need which that parameter dominates; without it an interval of many points shrinks to nothing around a model that
is off by five per cent. Points that are kept out of the fit count here: they move no value, but say how far off it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pciesim.calibrate.points import Point
from pciesim.calibrate.residuals import Residuals, TimerFor, Vector
from pciesim.profile import Evidence, Parameter, Profile

__all__ = ["Fit", "Free", "Optimum", "Prior", "fit_profile", "optimise"]

SOFT: Final = 0.05  # beyond this relative error a point weighs less and less
COARSE: Final = 240  # points of the first, cheap fit
DOMINANCE: Final = 0.3  # of a call's time: a parameter that makes up as much answers for the model's error there
NEAR_ONE: Final = 0.95  # correlation of two parameters that the data cannot tell apart
PULL: Final = 0.05  # residual of a parameter that has moved half its range from its start
NARROWEST: Final = 0.05  # of a logarithm: no belief pulls harder than one of five per cent either way
UNTOLD: Final = 0.3  # share of what is known of a parameter that comes from the pull and not from the data
INSIDE: Final = 2.0**-20  # of the physical range
TOLERANCE: Final = 2.0**-27  # tight enough that the digits written are the same on any machine
COARSE_TOLERANCE: Final = 2.0**-14
REWEIGHTINGS: Final = 8
FRESH: Final = 8  # times that derivatives are made anew, and steps for which they are kept
KEPT: Final = 5
RISE: Final = 1.35  # of the cost: half of what 90 % of chi-squared with one degree of freedom allow
STRIDES: Final = 16  # to the end of what is believed
PINNED: Final = 2.0**-20
STEP_ENOUGH: Final = 2.0**-17  # of a logarithm: below the digits that are written
QUANTILES: Final = (0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """A parameter to fit: where to start and what is physically possible. All positive, SI units.

    ``low`` and ``high`` are what is believed of it before (another box's interval); without them, all that is possible.
    """

    start: float
    least: float
    most: float
    low: float | None = None
    high: float | None = None

    @property
    def believed(self) -> tuple[float, float]:
        """Within what is possible, and around the start."""
        low, high = self.low or self.least, self.high or self.most
        return min(max(low, self.least), self.start), max(min(high, self.most), self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The fitted profile and, per fitted point, the log of predicted over measured.

    ``unidentified`` are parameters the data do not tell; ``correlated`` pairs that they tell only together.
    """

    profile: Profile
    residuals: tuple[float, ...]
    unidentified: tuple[str, ...]
    correlated: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Logs of where parameters start, of what is physically possible and what believed, and the slope of the weak pull.

    The pull to the start costs as much at the ends of what is believed as one point that is five per cent off.
    """

    start: Vector
    least: Vector
    most: Vector
    low: Vector
    high: Vector
    slopes: Vector

    @classmethod
    def of(cls, free: Mapping[str, Free], names: Sequence[str]) -> Prior:
        """In the order of ``names``."""
        start, least, most = (
            np.log([getattr(free[name], which) for name in names]) for which in ("start", "least", "most")
        )
        low, high = np.log(np.array([free[name].believed for name in names])).T
        return cls(
            start=start, least=least, most=most, low=low, high=high,
            slopes=PULL / np.maximum(0.5 * (high - low), NARROWEST),
        )  # fmt: skip

    @property
    def bounds(self) -> tuple[Vector, Vector]:
        """As scipy wants them."""
        return self.least, self.most

    def inside(self, x: Vector) -> Vector:
        """Strictly inside the bounds, as a start has to be."""
        margin = INSIDE * (self.most - self.least)
        return np.clip(x, self.least + margin, self.most - margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """Where a fit ended: logs of the parameters, residuals and derivatives there."""

    x: Vector
    residuals: Vector
    jacobian: Vector
    prior: Prior

    def untold(self) -> Vector:
        """By parameter, the share of what is known of it that is not from the data: 1 where no point depends on it."""
        information = self.jacobian.T @ (self.jacobian * _weights(self.residuals)[:, None])
        precision = self.prior.slopes**2
        return np.asarray(precision * np.diag(np.linalg.inv(information + np.diag(precision))))


def fit_profile(
    profile: Profile,
    free: Mapping[str, Free],
    points: Sequence[Point],
    timer_for: TimerFor,
    *,
    source: str,
    resamples: int = 200,
    seed: int = 20261130,
    explore: bool = True,
) -> Fit:
    """Fits ``free`` of ``profile`` to the points marked as fitted.

    A parameter of which the data tell little or nothing is listed in ``unidentified``; its interval is what the data do
    not exclude of its physical range (``explore`` False: all that was believed, which costs nothing to find).
    """
    names = sorted(free)
    model = Residuals(profile, names, [point for point in points if point.fitted], timer_for)
    best = optimise(model, free)
    untold = best.untold() > UNTOLD
    every = Residuals(profile, names, points, timer_for)
    low, high = _interval(best, every, untold, resamples, seed)
    for column in np.flatnonzero(untold & best.jacobian.any(axis=0)) if explore else ():
        low[column], high[column] = (_end(model, best, int(column), up=up) for up in (False, True))
    fitted = {
        name: Parameter(
            value=math.exp(value),
            low=math.exp(min(lo, value)),
            high=math.exp(max(hi, value)),
            evidence=Evidence.FITTED,
            source=source,
        )
        for name, value, lo, hi in zip(names, best.x, low, high, strict=True)
    }
    return Fit(
        profile=replace(profile, parameters=tuple((n, fitted.get(n, p)) for n, p in profile.parameters)),
        residuals=tuple(float(x) for x in best.residuals),
        unidentified=tuple(name for name, missing in zip(names, untold, strict=True) if missing),
        correlated=_correlated(best, names),
    )


def optimise(model: Residuals, free: Mapping[str, Free], start: Vector | None = None) -> Optimum:
    """The best parameters for all points of a model; first on some of them, which costs less."""
    prior = Prior.of(free, model.names)
    x = prior.start if start is None else start
    count = len(model.points)
    if count > 2 * COARSE:
        if start is None:
            some = model.subset(np.linspace(0, count - 1, COARSE).astype(int))
            x = _solve(some, x, prior, xtol=COARSE_TOLERANCE)
        solve = _refine
    else:
        solve = _solve
    model.look_again(x)
    for _ in range(3):
        x = solve(model, x, prior)
        if not model.look_again(x):
            break
    return Optimum(x=x, residuals=model.at(x), jacobian=model.jacobian(x), prior=prior)


def _solve(model: Residuals, start: Vector, prior: Prior, *, xtol: float = TOLERANCE) -> Vector:
    from scipy.optimize import least_squares  # noqa: PLC0415  (half a second to import; only fits need it)

    found = least_squares(
        lambda x: np.concatenate([model.at(x), prior.slopes * (x - prior.start)]),
        prior.inside(start),
        jac=lambda x: np.vstack([model.jacobian(x), np.diag(prior.slopes)]),
        bounds=prior.bounds, loss="soft_l1", f_scale=SOFT, x_scale="jac", ftol=xtol, xtol=xtol, gtol=None, max_nfev=60,
    )  # fmt: skip
    return np.asarray(found.x)


def _refine(model: Residuals, start: Vector, prior: Prior) -> Vector:
    """The end of a fit of many points from a good start: derivatives are kept for some steps, since they cost most."""
    x = start
    for _ in range(FRESH):
        jacobian, fresh = model.jacobian(x), x
        for _ in range(KEPT):
            here = Optimum(x=x, residuals=model.at(x), jacobian=jacobian, prior=prior)
            step = _linear(here, np.arange(len(model.points))) - x
            cost = _cost(here.residuals, x, prior)
            while np.abs(step).max() > TOLERANCE and _cost(model.at(x + step), x + step, prior) > cost:
                step = step / 4
            x = x + step
            if np.abs(step).max() <= STEP_ENOUGH:
                break
        if np.abs(x - fresh).max() <= STEP_ENOUGH:
            break
    return x


def _cost(residuals: Vector, x: Vector, prior: Prior) -> float:
    """The soft-L1 that is minimised, over SOFT squared and twice."""
    every = np.concatenate([residuals, prior.slopes * (x - prior.start)]) / SOFT
    return float(np.sum(np.sqrt(1 + every**2) - 1))


def _linear(best: Optimum, chosen: NDArray[np.int_]) -> Vector:
    """Where the soft-L1 of some of the points (with repeats) has its least value, residuals taken as linear.

    Reweighted least squares; a parameter that leaves its range is held at the end of it.
    """
    prior = best.prior
    residuals, jacobian = best.residuals[chosen], best.jacobian[chosen]
    pull = np.diag(prior.slopes**2)
    x = best.x
    for _ in range(REWEIGHTINGS):
        weighted = jacobian * _weights(residuals + jacobian @ (x - best.x))[:, None]
        information = weighted.T @ jacobian + pull
        target = information @ best.x - weighted.T @ residuals - pull @ (best.x - prior.start)
        x = _clipped(information, target, prior)
    return x


def _clipped(information: Vector, target: Vector, prior: Prior) -> Vector:
    """Solves for the parameters inside their ranges, those outside held at the ends."""
    x = np.linalg.solve(information, target)
    held = (x < prior.least) | (x > prior.most)
    x = np.clip(x, prior.least, prior.most)
    if held.any() and not held.all():
        free = ~held
        rest = target[free] - information[np.ix_(free, held)] @ x[held]
        x[free] = np.clip(np.linalg.solve(information[np.ix_(free, free)], rest), prior.least[free], prior.most[free])
    return np.asarray(x)


def _end(model: Residuals, best: Optimum, column: int, *, up: bool) -> float:
    """How far a parameter that the data tell little of can go before they object, the others following.

    A hop's cost that is nearly nothing is not told in logs, but it cannot be several microseconds either.
    """
    count = len(model.points)
    some = model if count <= 2 * COARSE else model.subset(np.linspace(0, count - 1, COARSE).astype(int))
    x, limit = best.x, (best.prior.high if up else best.prior.low)[column]
    allowed = _cost(some.at(best.x), best.x, best.prior) + RISE
    reached = best.x[column]
    for goal in np.linspace(best.x[column], limit, STRIDES + 1)[1:]:
        least, most = best.prior.least.copy(), best.prior.most.copy()
        least[column], most[column] = goal - PINNED, goal + PINNED
        x = _solve(some, x, replace(best.prior, least=least, most=most), xtol=COARSE_TOLERANCE)
        if _cost(some.at(x), x, best.prior) > allowed:
            break
        reached = goal
    return float(reached)


def _weights(residuals: Vector) -> Vector:
    """How much each point counts under soft-L1."""
    return np.asarray(1 / np.sqrt(1 + (residuals / SOFT) ** 2))


def _interval(
    best: Optimum, every: Residuals, untold: NDArray[np.bool_], resamples: int, seed: int
) -> tuple[Vector, Vector]:
    """Logs of both ends: the wider of what the data leave open and what the model gets wrong; all where untold."""
    generator = np.random.default_rng(seed)
    count = len(best.residuals)
    draws = np.array([_linear(best, generator.integers(0, count, count)) for _ in range(resamples)])
    low, high = np.quantile(draws, QUANTILES, axis=0)
    residuals, jacobian = every.at(best.x), every.jacobian(best.x)
    for column in range(len(best.x)):
        answering = np.abs(jacobian[:, column]) >= DOMINANCE
        if untold[column]:
            low[column], high[column] = best.prior.low[column], best.prior.high[column]
        elif answering.any():
            needed = best.x[column] - residuals[answering] / jacobian[answering, column]
            least, most = np.quantile(needed, QUANTILES)
            low[column], high[column] = min(low[column], least), max(high[column], most)
    return np.maximum(low, best.prior.least), np.minimum(high, best.prior.most)


def _correlated(best: Optimum, names: Sequence[str]) -> tuple[tuple[str, str, float], ...]:
    """Pairs of parameters whose effects on all points are nearly one."""
    told = [column for column in range(len(names)) if best.jacobian[:, column].any()]
    if len(told) < 2:
        return ()
    weighted = best.jacobian[:, told] * np.sqrt(_weights(best.residuals))[:, None]
    covariance = np.linalg.pinv(weighted.T @ weighted)
    spread = np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
    found = covariance / np.outer(spread, spread)
    return tuple(
        (names[told[a]], names[told[b]], round(float(found[a, b]), 2))
        for a in range(len(told))
        for b in range(a + 1, len(told))
        if abs(found[a, b]) > NEAR_ONE
    )
