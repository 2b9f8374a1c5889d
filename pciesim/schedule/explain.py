"""Why a collective runs where it runs: every distinct collective of a step with the engine's decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pciesim.schedule.dispatch import Decision
from pciesim.schedule.ops import Collective, Schedule

__all__ = ["ExplainedCollective", "explain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCollective:
    """Equal collectives of a step, after what they come, and what the engine decides for them."""

    kind: str
    after: tuple[str, ...]
    count: int
    nbytes: int
    ranks: int
    group: str
    precision: str
    decision: Decision


def explain(schedule: Schedule, decide: Callable[[Collective], Decision]) -> tuple[ExplainedCollective, ...]:
    """The distinct collectives in the order of their first call."""
    counts: Counter[tuple[str, int, int, str, str]] = Counter()
    first: dict[tuple[str, int, int, str, str], Collective] = {}
    names: dict[tuple[str, int, int, str, str], dict[str, None]] = {}
    for op in schedule.ops:
        if isinstance(op, Collective):
            key = (op.kind.value, op.nbytes, op.ranks, op.group, op.precision.value)
            counts[key] += 1
            first.setdefault(key, op)
            names.setdefault(key, {})[op.name] = None
    return tuple(
        ExplainedCollective(
            kind=key[0], after=tuple(names[key]), count=counts[key], nbytes=key[1], ranks=key[2], group=key[3],
            precision=key[4], decision=decide(op),
        )
        for key, op in first.items()
    )  # fmt: skip
