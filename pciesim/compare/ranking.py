"""Which outcomes are best: by an objective, and the front where neither users nor the box can gain alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pciesim.compare.outcome import Outcome

__all__ = ["OBJECTIVES", "Front", "front", "ranked"]

OBJECTIVES: Final[Mapping[str, Callable[[Outcome], float]]] = MappingProxyType(
    {
        "latency": lambda outcome: 1 / outcome.latency,
        "throughput": lambda outcome: outcome.sequences / outcome.latency,
    }
)
"""What is to be large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The outcomes that nothing beats in speed per user and total at once, among all that were tried."""

    title: str
    outcomes: tuple[Outcome, ...]
    others: tuple[Outcome, ...]
    refused: int


def ranked(outcomes: Iterable[Outcome], objective: str) -> tuple[Outcome, ...]:
    """Best first; equals in the order given."""
    score = OBJECTIVES[objective]
    return tuple(sorted(outcomes, key=lambda outcome: -score(outcome)))


def front(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Outcomes that no other beats in speed per user without losing in total: fastest per user first."""
    best: list[Outcome] = []
    ordered = sorted(outcomes, key=lambda each: (-1 / each.latency, -each.sequences / each.latency))
    most = 0.0
    for each in ordered:
        total = each.sequences / each.latency
        if total > most:
            best.append(each)
            most = total
    return tuple(best)
