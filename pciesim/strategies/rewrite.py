"""Rewriting a schedule: ops dropped, replaced or inserted, with the waits between streams kept right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pciesim.schedule import Op, Schedule

__all__ = ["rewritten"]


def rewritten(schedule: Schedule, change: Callable[[int, Op], Sequence[Op]]) -> Schedule:
    """The schedule with every op replaced by what ``change`` gives for it (none: dropped).

    Who waited for an op waits for its last replacement; who waited for a dropped one, for what came before it on its
    stream.
    """
    ops: list[Op] = []
    after: list[tuple[int, ...]] = []
    ends: list[int | None] = []  # by old index: the new op that stands for its end
    latest: dict[int, int] = {}
    owed: dict[int, tuple[int, ...]] = {}  # by stream: waits of dropped ops, inherited by the next one
    for position, op in enumerate(schedule.ops):
        waits = tuple(ends[other] for other in schedule.after[position])
        known = (*owed.pop(op.stream, ()), *(each for each in waits if each is not None))
        made = change(position, op)
        if not made:
            owed[op.stream] = known
            ends.append(latest.get(op.stream))
            continue
        for number, new in enumerate(made):
            ops.append(new)
            after.append(tuple(sorted(set(known))) if number == 0 else ())
            latest[new.stream] = len(ops) - 1
        ends.append(len(ops) - 1)
    return Schedule(ops=tuple(ops), after=tuple(after))
