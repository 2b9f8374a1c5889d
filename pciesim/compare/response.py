"""How an answer moves with every uncertain figure, sign included, so that what two answers share cancels.

A :class:`Response` names a figure and gives the answer's change when it is at its low and at its high bound. The
interval of a difference subtracts responses of the same name first and adds what is left in quadrature. Where a figure
stands for many (all kernels of a kind), only the parts that both answers hold cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from pciesim.profile import Interval
from pciesim.units import Seconds

__all__ = ["Response", "Responses", "change_of", "difference", "interval", "ratio"]

Move: TypeAlias = tuple[Seconds, Seconds]
"""The answer's change with a figure at its low and at its high bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer's change with a figure at its low and at its high bound, and where the figure comes from.

    ``parts`` are the shares of what the figure stands for, which err together within one answer and alone between two;
    they sum to ``low`` and ``high``. Empty: the figure is one.
    """

    low: Seconds
    high: Seconds
    evidence: str
    parts: Mapping[Hashable, Move] = field(default_factory=lambda: MappingProxyType({}))

    def scaled(self, factor: float) -> Response:
        """The response of ``factor`` times the answer."""
        return Response(
            low=self.low * factor,
            high=self.high * factor,
            evidence=self.evidence,
            parts=MappingProxyType({key: (low * factor, high * factor) for key, (low, high) in self.parts.items()}),
        )


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


def change_of(mine: Response | None, theirs: Response | None) -> Seconds:
    """How far one figure moves the difference of two answers, either way."""
    moves = [(b[0] - a[0], b[1] - a[1]) for a, b in _side_by_side(mine or _NONE, theirs or _NONE)]
    return math.sqrt(sum(((abs(low) + abs(high)) / 2) ** 2 for low, high in moves))


def _moves(mine: Responses, theirs: Responses, combine: Callable[[float, float], float]) -> Iterator[Move]:
    for name in {**mine, **theirs}:
        for a, b in _side_by_side(mine.get(name, _NONE), theirs.get(name, _NONE)):
            yield combine(a[0], b[0]), combine(a[1], b[1])


def _side_by_side(mine: Response, theirs: Response) -> Iterator[tuple[Move, Move]]:
    """What moves both answers, then what moves one alone."""
    if not (mine.parts or theirs.parts):
        yield (mine.low, mine.high), (theirs.low, theirs.high)
        return
    both = mine.parts.keys() & theirs.parts.keys()
    yield _sum(mine.parts[key] for key in both), _sum(theirs.parts[key] for key in both)
    yield _sum(move for key, move in mine.parts.items() if key not in both), (0.0, 0.0)
    yield (0.0, 0.0), _sum(move for key, move in theirs.parts.items() if key not in both)


def _sum(moves: Iterable[Move]) -> Move:
    listed = list(moves)
    return math.fsum(low for low, _ in listed), math.fsum(high for _, high in listed)


def _around(value: float, moves: list[Move], least: float) -> Interval:
    above = math.sqrt(sum(max(low, high, 0.0) ** 2 for low, high in moves))
    below = math.sqrt(sum(min(low, high, 0.0) ** 2 for low, high in moves))
    return Interval(value=value, low=min(value, max(least, value - below)), high=value + above)
