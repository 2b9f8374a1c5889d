"""How an answer moves with every uncertain figure, sign included, so that what two answers share cancels.

A :class:`Response` names a figure and gives the answer's change when it is at its low and at its high bound. The
interval of a difference subtracts responses of the same name first and adds what is left in quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pciesim.profile import Interval
from pciesim.units import Seconds

__all__ = ["Response", "Responses", "difference", "interval", "ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer's change with a figure at its low and at its high bound, and where the figure comes from."""

    low: Seconds
    high: Seconds
    evidence: str

    def scaled(self, factor: float) -> Response:
        """The response of ``factor`` times the answer."""
        return Response(low=self.low * factor, high=self.high * factor, evidence=self.evidence)


Responses: TypeAlias = Mapping[str, Response]
"""By the name of the figure."""

_NONE = Response(low=0.0, high=0.0, evidence="")


def interval(value: float, responses: Responses, *, least: float = 0.0) -> Interval:
    """A value with the quadrature sums of its responses around it."""
    return _around(value, [(each.low, each.high) for each in responses.values()], least)


def difference(one: float, other: float, mine: Responses, theirs: Responses) -> Interval:
    """``other - one`` with its interval; figures that both depend on move both."""
    return _around(other - one, list(_moves(mine, theirs, lambda a, b: b - a)), -math.inf)


def ratio(one: float, other: float, mine: Responses, theirs: Responses) -> Interval:
    """``one / other`` with its interval: how many times faster ``other`` is, where both are times."""
    moves = _moves(mine, theirs, lambda a, b: (one + a) / max(other + b, math.ulp(other)) - one / other)
    return _around(one / other, list(moves), 0.0)


def _moves(mine: Responses, theirs: Responses, combine: Callable[[float, float], float]) -> list[tuple[float, float]]:
    found = []
    for name in {**mine, **theirs}:
        a, b = mine.get(name, _NONE), theirs.get(name, _NONE)
        found.append((combine(a.low, b.low), combine(a.high, b.high)))
    return found


def _around(value: float, moves: list[tuple[float, float]], least: float) -> Interval:
    above = math.sqrt(sum(max(low, high, 0.0) ** 2 for low, high in moves))
    below = math.sqrt(sum(min(low, high, 0.0) ** 2 for low, high in moves))
    return Interval(value=value, low=min(value, max(least, value - below)), high=value + above)
