"""Sequence parallelism: an all-reduce becomes a reduce-scatter and an all-gather, the norm between on 1 / n of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, CollectiveKind, Compute, Elementwise, Op, Schedule
from pciesim.strategies.rewrite import rewritten
from pciesim.strategies.strategy import Strategy

__all__ = ["SEQUENCE_PARALLEL", "ScatterAndGather"]

_NORM: Final = "rmsnorm_add"


@dataclass(frozen=True, slots=True)
class ScatterAndGather:
    """Splits the all-reduces that a norm follows; the norm works on a rank's own rows."""

    def __call__(self, schedule: Schedule) -> Schedule:
        """The schedule with both halves around every norm."""
        owed: list[Collective] = []

        def change(position: int, op: Op) -> Sequence[Op]:
            if _is_sum(op) and isinstance(op, Collective) and _norm_follows(schedule, position):
                owed.append(op)
                return (replace(op, kind=CollectiveKind.REDUCE_SCATTER, name=f"{op.name} (scatter)"),)
            if owed and isinstance(op, Compute) and isinstance(op.kernel, Elementwise) and op.kernel.kind == _NORM:
                whole = owed.pop()
                share = replace(op, kernel=replace(op.kernel, nbytes=op.kernel.nbytes / whole.ranks))
                gather = replace(
                    whole,
                    kind=CollectiveKind.ALL_GATHER,
                    name=f"{whole.name} (gather)",
                    nbytes=max(1, whole.nbytes // whole.ranks),
                )
                return (share, gather)
            return (op,)

        return rewritten(schedule, change)


def _is_sum(op: Op) -> bool:
    return isinstance(op, Collective) and op.kind is CollectiveKind.ALL_REDUCE and op.category is Category.ALL_REDUCE


def _norm_follows(schedule: Schedule, position: int) -> bool:
    for op in schedule.ops[position + 1 :]:
        if op.stream == schedule.ops[position].stream:
            return isinstance(op, Compute) and isinstance(op.kernel, Elementwise) and op.kernel.kind == _NORM
    return False


def _obstacle(scenario: Scenario, _argument: str) -> str:
    rows, tp = scenario.workload.tokens, scenario.parallelism.tp
    if rows % tp:
        return f"{rows} rows do not divide over {tp} ranks: sequence parallelism needs at least one row a rank"
    return ""


SEQUENCE_PARALLEL: Final = Strategy(
    axis="sequence",
    name="parallel",
    sentence="reduce-scatter before every norm and all-gather after it, instead of an all-reduce",
    source="Megatron sequence parallelism, arXiv 2205.05198; vLLM pass --enable-sequence-parallelism (older versions)",
    apply=lambda scenario, _: replace(scenario, transforms=(*scenario.transforms, ScatterAndGather())),
    obstacle=_obstacle,
    number="two collectives for one: twice the fixed costs",
    size="(n - 1) / n S each way: the same in sum",
    criticality="exposed; both halves could be fused with GEMMs",
    risk="neither SGLang 0.5.23 nor vLLM 0.33.0 does it for plain decode",
    hurts="decode: two calls cost more than one",
)
