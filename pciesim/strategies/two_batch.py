"""Two-batch overlap: two half batches take turns, one computes while the sums of the other are under way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from pciesim.errors import Infeasible
from pciesim.scenario import Scenario
from pciesim.schedule import Collective, Compute, Host, Op, Schedule
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["TWO_BATCH", "Interleave"]

_SUMS: Final = 7  # stream of the collectives of both halves
_FAMILIES: Final = ("deepseek", "qwen3-", "qwen3_", "mimo")  # the layers SGLang's operations_strategy.py knows


@dataclass(frozen=True, slots=True)
class Interleave:
    """Runs two copies of a pass (the scenario's batch is half of the whole) on one set of GPUs.

    Kernels of both halves share the main stream, in turns from sum to sum; sums run on a stream of their own, one
    after the other, as one communicator does.
    """

    batches: ClassVar[int] = 2

    def __call__(self, schedule: Schedule) -> Schedule:
        """The pass of both halves, interleaved."""
        pieces = _pieces(schedule)
        ops: list[Op] = []
        after: list[tuple[int, ...]] = []
        where: list[dict[int, int]] = [{}, {}]  # by half: old position -> new
        last: list[int | None] = [None, None]  # by half: its last op, kernel or sum
        for piece in pieces:
            for half in (0, 1):
                for position in piece:
                    op = schedule.ops[position]
                    if isinstance(op, Compute) and isinstance(op.kernel, Host) and half == 0:
                        continue  # the host prepares one step, not two
                    waits = {where[half][other] for other in schedule.after[position] if other in where[half]}
                    previous = last[half]
                    if op.stream == 0:
                        if previous is not None:
                            waits.add(previous)
                        op = replace(op, stream=_SUMS) if isinstance(op, Collective) else op
                        last[half] = len(ops)
                    elif not schedule.after[position]:
                        op = replace(op, stream=op.stream + half)
                    where[half][position] = len(ops)
                    ops.append(op)
                    after.append(tuple(sorted(waits)))
        return Schedule(ops=tuple(ops), after=tuple(after))


def _pieces(schedule: Schedule) -> list[list[int]]:
    """Positions from one sum to the next, the sum included."""
    pieces: list[list[int]] = [[]]
    for position, op in enumerate(schedule.ops):
        pieces[-1].append(position)
        if isinstance(op, Collective):
            pieces.append([])
    return [piece for piece in pieces if piece]


def _apply(scenario: Scenario, _argument: str) -> Scenario:
    workload = scenario.workload
    if workload.batch < 2:
        raise Infeasible("two-batch overlap needs at least two sequences")
    half = replace(workload, batch=-(-workload.batch // 2))
    return replace(scenario, workload=half, transforms=(*scenario.transforms, Interleave()))


def _obstacle(scenario: Scenario, _argument: str) -> str:
    if not scenario.engine.name.startswith("sglang"):
        return f"{scenario.engine.title} has no two-batch overlap of tensor-parallel sums"
    name = scenario.model.name.lower()
    if "qwen3.5" in name or not any(family in name for family in _FAMILIES):
        return f"SGLang has it for DeepSeek, Qwen3-MoE and MiMo layers only, not for {scenario.model.name}"
    return "SGLang interleaves around dispatch and combine of an all-to-all backend, which PCIe boxes do not run"


TWO_BATCH: Final = Strategy(
    axis="overlap",
    name="two-batch",
    sentence="two half batches take turns: sums of one run beside kernels of the other",
    source="ISO, arXiv 2409.11155; TokenWeave, arXiv 2505.11329; SGLang batch_overlap/operations_strategy.py",
    apply=_apply,
    obstacle=_obstacle,
    turn_on=lambda _: (Switch(engine="sglang", flags=("--enable-two-batch-overlap",)),),
    number="twice the calls at half the size",
    size="same in sum",
    criticality="off the critical path while the other half computes",
    risk="multiprocessors and memory are shared: overlap is not free (2x H200: 79 to 86 % of the sum of both)",
    hurts="small batches: weights are read twice and fixed costs paid twice",
)
