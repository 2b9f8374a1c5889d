"""Fused all-reduce, residual add and RMSNorm: the norm after every all-reduce runs in the all-reduce's own kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, CollectiveKind, Compute, Elementwise, Op, Schedule
from pciesim.strategies.allreduce import needs_peers
from pciesim.strategies.rewrite import rewritten
from pciesim.strategies.strategy import Strategy, Switch
from pciesim.workload import Phase

__all__ = ["FUSED_NORM", "FuseNorm"]

_NORM: Final = "rmsnorm_add"


@dataclass(frozen=True, slots=True)
class FuseNorm:
    """Drops the norm kernel that directly follows an all-reduce on its stream, and with it its launch gap.

    The rows it would read stay in the all-reduce's registers; at decode they are a few KiB, and their time is not
    counted again.
    """

    def __call__(self, schedule: Schedule) -> Schedule:
        """The schedule without those kernels."""
        fused = _norms_after_sums(schedule)

        def change(position: int, op: Op) -> Sequence[Op]:
            return () if position in fused else (op,)

        return rewritten(schedule, change)


def _norms_after_sums(schedule: Schedule) -> frozenset[int]:
    last: dict[int, Op] = {}
    found: set[int] = set()
    for position, op in enumerate(schedule.ops):
        before = last.get(op.stream)
        is_norm = isinstance(op, Compute) and isinstance(op.kernel, Elementwise) and op.kernel.kind == _NORM
        sums = isinstance(before, Collective) and before.kind is CollectiveKind.ALL_REDUCE
        if is_norm and sums and isinstance(before, Collective) and before.category is Category.ALL_REDUCE:
            found.add(position)
        last[op.stream] = op
    return frozenset(found)


def _obstacle(scenario: Scenario, argument: str) -> str:
    if scenario.workload.phase is Phase.PREFILL:
        return "fused kernels hold one row in registers: they serve decode rows, not prefill chunks"
    if scenario.allreduce == "auto" or scenario.allreduce.startswith("nccl"):
        return "NCCL has no fused form: take a one-shot or two-shot kernel too (allreduce=oneshot-push)"
    return needs_peers(scenario, argument)


FUSED_NORM: Final = Strategy(
    axis="fused",
    name="norm",
    sentence="residual add and RMSNorm run inside the all-reduce kernel",
    source="FlashInfer trtllm_allreduce_fusion; rtx6kpro (14,336 B: 11.8 us fused, 56.2 with NCCL + add)",
    apply=lambda scenario, _: replace(scenario, transforms=(*scenario.transforms, FuseNorm())),
    obstacle=_obstacle,
    turn_on=lambda _: (
        Switch(
            engine="sglang-fork",
            note="FlashInfer's fusion is for SM90 and SM10x only (SGLang 0.5.23, vLLM 0.33.0); b12x has one for SM120",
        ),
    ),
    number="same traversals; one to three kernel launches less an all-reduce",
    size="same",
    criticality="a shorter tail after every all-reduce",
    risk="experimental on SM120: a pull request to allow it was closed after a regression at TP4",
    hurts="large messages, where the one-shot form loses (458,752 B: 147 us fused, 93 with NCCL + add)",
)
