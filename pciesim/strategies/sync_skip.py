"""Fewer or later sums: all-reduces after attention left out, or waited for a block later. Changes the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pciesim.errors import InputError
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, CollectiveKind, Op, Schedule
from pciesim.strategies.rewrite import rewritten
from pciesim.strategies.strategy import Strategy

__all__ = ["LADDER", "SYNC_SKIP", "DelaySums", "DropSums"]

_BEHIND: Final = 8  # the stream of sums that nobody waits for yet
_PERCENT: Final = 100


def _sums(schedule: Schedule) -> list[int]:
    """Positions of the all-reduces of the layers: the first one is the embedding's."""
    found = [
        position
        for position, op in enumerate(schedule.ops)
        if isinstance(op, Collective) and op.kind is CollectiveKind.ALL_REDUCE and op.category is Category.ALL_REDUCE
    ]
    return found[1:]


@dataclass(frozen=True, slots=True)
class DropSums:
    """Leaves out the given share of the all-reduces after mixers (every other sum of the layers), evenly spread."""

    share: float

    def __call__(self, schedule: Schedule) -> Schedule:
        """The schedule without them."""
        after_mixers = _sums(schedule)[::2]
        dropped = {
            position
            for number, position in enumerate(after_mixers)
            if int((number + 1) * self.share) > int(number * self.share)
        }

        def change(position: int, op: Op) -> Sequence[Op]:
            return () if position in dropped else (op,)

        return rewritten(schedule, change)


@dataclass(frozen=True, slots=True)
class DelaySums:
    """Runs every sum of the layers beside the block that follows; the block after that waits for it."""

    def __call__(self, schedule: Schedule) -> Schedule:
        """The schedule with its sums on a stream of their own."""
        sums = _sums(schedule)
        late = set(sums)
        ops: list[Op] = []
        after: list[tuple[int, ...]] = []
        last: int | None = None  # main-stream op that a sum follows
        flying: int | None = None  # the sum under way
        for position, op in enumerate(schedule.ops):
            waits = set(schedule.after[position])
            if position in late:
                if last is not None:
                    waits.add(last)
                ops.append(replace(op, stream=_BEHIND))
                after.append(tuple(sorted(waits)))
                flying, landed = position, flying
                owed = landed
                continue
            if op.stream == 0:
                if position - 1 in late and owed is not None:
                    waits.add(owed)  # the sum before the one just issued must be there now
                if position == len(schedule.ops) - 1 or isinstance(op, Collective):
                    waits |= {flying} if flying is not None else set()
                last = position
            ops.append(op)
            after.append(tuple(sorted(waits)))
        return Schedule(ops=tuple(ops), after=tuple(after))


def _drop(scenario: Scenario, argument: str) -> Scenario:
    text = argument.removesuffix("%")
    if not text.isdecimal() or not 0 < int(text) <= _PERCENT:
        raise InputError(f"sync=drop:{argument}: expected a share of the attention sums, as in 'drop:50%'")
    return replace(scenario, transforms=(*scenario.transforms, DropSums(share=int(text) / _PERCENT)))


SYNC_SKIP: Final = Strategy(
    axis="sync",
    name="drop",
    argument="share of the attention sums, as in 50%",
    sentence="all-reduces after attention are left out in some blocks",
    source="SPD, arXiv 2502.20727 (about 20 % latency, under 1 % accuracy, LLaMA2-70B on 8 GPUs)",
    apply=_drop,
    number="up to half of all all-reduces less",
    size="same",
    criticality="fewer syncs",
    risk="another model than the trained one: needs block redesign and distillation",
    hurts="quality",
    model_change=True,
)

LADDER: Final = Strategy(
    axis="sync",
    name="ladder",
    sentence="each block reads the residual without the sum of the block just before it, which runs beside it",
    source="Ladder Residual, arXiv 2501.06589; Delayed Tensor Parallelism (kog.ai, 2026-05)",
    apply=lambda scenario, _: replace(scenario, transforms=(*scenario.transforms, DelaySums())),
    number="same",
    size="same",
    criticality="off the critical path while a block lasts longer than a sum",
    risk="another model than the trained one: needs retraining or adaptation; kernels and sums share the GPU",
    hurts="quality",
    model_change=True,
)
