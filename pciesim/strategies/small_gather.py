"""Sampling from shards: ranks exchange their best candidates instead of all logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, Op, Schedule
from pciesim.strategies.rewrite import rewritten
from pciesim.strategies.strategy import Strategy, Switch
from pciesim.units import KIB

__all__ = ["GATHER_CANDIDATES", "GatherCandidates"]

_CANDIDATE: Final = 8  # bytes of a (value, index) pair


@dataclass(frozen=True, slots=True)
class GatherCandidates:
    """Every rank passes in ``count`` (value, index) pairs a row instead of its share of the vocabulary."""

    count: int
    rows: int

    def __call__(self, schedule: Schedule) -> Schedule:
        """The schedule with small gathers of logits."""

        def change(_position: int, op: Op) -> Sequence[Op]:
            if isinstance(op, Collective) and op.category is Category.LOGITS_GATHER:
                return (replace(op, nbytes=min(op.nbytes, self.rows * self.count * _CANDIDATE)),)
            return (op,)

        return rewritten(schedule, change)


def _apply(scenario: Scenario, _argument: str) -> Scenario:
    shrink = GatherCandidates(count=1, rows=scenario.workload.tokens)
    return replace(scenario, transforms=(*scenario.transforms, shrink))


def _obstacle(scenario: Scenario, _argument: str) -> str:
    rows = scenario.workload.tokens
    return f"{rows} rows fill the gather anyway" if rows > KIB else ""


GATHER_CANDIDATES: Final = Strategy(
    axis="gather",
    name="argmax",
    sentence="ranks exchange their best token and its logit instead of all logits (greedy sampling)",
    source="vLLM use_local_argmax_reduction (draft passes; default off)",
    apply=_apply,
    obstacle=_obstacle,
    turn_on=lambda _: (
        Switch(engine="vllm", note="for draft passes only: speculative config use_local_argmax_reduction"),
    ),
    number="same",
    size="vocabulary / n x 2 bytes a row -> 8 bytes",
    criticality="exposed, once a pass",
    risk="greedy sampling only; sampling with top-p needs more candidates",
    hurts="nothing, but no engine has it for the target model",
)
