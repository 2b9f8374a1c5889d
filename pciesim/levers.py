"""The largest costs of a step that could be removed, and by what. Each saving is computed, not quoted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pciesim.errors import PciesimError
from pciesim.evaluate.collective import CollectiveTimer, Timed
from pciesim.fabric import Fabric
from pciesim.kernels import KernelTime
from pciesim.model import Precision
from pciesim.prediction import Lever
from pciesim.profile import Interval
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, CollectiveKind, Compute, Kernel, Schedule
from pciesim.step import host_time, slowest
from pciesim.uncertainty import Shift, combine, propagate, touching
from pciesim.units import Seconds
from pciesim.workload import Parallelism

__all__ = ["Costs", "find_levers"]

# What to try instead of the engine's all-reduce, and what stands in its way.
_ALTERNATIVES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "oneshot-push": "a kernel that the stock engine refuses on this box; needs a patched engine and peer-to-peer",
        "oneshot-pull": "a kernel that the stock engine refuses on this box; needs a patched engine and peer-to-peer",
        "oneshot-host": "through host memory, no peer-to-peer needed; measured on two GPUs, in no stock engine",
        "nccl": "what the engine falls back to when its own kernel is switched off",
    }
)
_COUNT: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a timed step is made of, and the timers to ask how it could be otherwise."""

    schedule: Schedule
    kernels: Mapping[Kernel, KernelTime]
    timed: Mapping[Collective, Timed]
    counts: Mapping[Collective, int]
    reference: CollectiveTimer
    shifts: tuple[Shift, ...]
    parallelism: Parallelism = field(default_factory=Parallelism)

    def latency(self, timer: CollectiveTimer, op: Collective, algorithm: str) -> Seconds:
        """One call on the slowest instance of its group."""
        return slowest(timer, self.parallelism, op, algorithm).latency

    @property
    def all_reduces(self) -> list[Collective]:
        """The distinct all-reduces, the most frequent first."""
        found = [op for op in self.timed if op.kind is CollectiveKind.ALL_REDUCE]
        return sorted(found, key=lambda op: -self.counts[op])


def find_levers(scenario: Scenario, costs: Costs) -> tuple[Lever, ...]:
    """The three that save most, largest first."""
    found = [
        *_other_all_reduce(costs),
        *_mended_nccl(scenario, costs),
        *_expert_kernel(costs),
        *_host(scenario),
    ]
    return tuple(sorted(found, key=lambda lever: -lever.saves.value)[:_COUNT])


def _saving(costs: Costs, algorithm: str, fabric: Fabric | None = None) -> Interval:
    """What all all-reduces of the step would save by another algorithm, or on a changed fabric."""

    def saved(timer: CollectiveTimer) -> float:
        then = timer if fabric is None else timer.on(fabric)
        return sum(
            costs.counts[op]
            * (
                costs.latency(timer, op, costs.timed[op].name)
                - costs.latency(then, op, algorithm if op.precision is Precision.BF16 else "nccl")
            )
            for op in costs.all_reduces
        )

    other = costs.reference if fabric is None else costs.reference.on(fabric)
    both = [
        slowest(timer, costs.parallelism, op, name).lowered
        for op in costs.all_reduces
        for timer, name in ((costs.reference, costs.timed[op].name), (other, algorithm))
    ]
    shifts = touching(costs.shifts, both)
    return combine(saved(costs.reference), propagate(costs.reference, shifts, saved), least=-math.inf)


def _other_all_reduce(costs: Costs) -> Iterable[Lever]:
    if not costs.all_reduces:
        return
    options: list[tuple[float, str]] = []
    op = costs.all_reduces[0]
    now = slowest(costs.reference, costs.parallelism, op, costs.timed[op].name)
    for name in _ALTERNATIVES:
        try:
            options.append((now.latency - costs.latency(costs.reference, op, name), name))
        except PciesimError:
            continue  # cannot run on this box
    gain, name = max(options, default=(0.0, ""))
    if gain > 0:
        then = slowest(costs.reference, costs.parallelism, op, name).lowered.program.traversals
        before = now.lowered.program.traversals or "unknown"  # a kernel of one's own
        yield Lever(
            what=f"all-reduce: {before} -> {then} traversals a call",
            how=f"--allreduce {name}",
            saves=_saving(costs, name),
            caveat=_ALTERNATIVES[name],
        )


def _mended_nccl(scenario: Scenario, costs: Costs) -> Iterable[Lever]:
    """NCCL with peer-to-peer everywhere and a ring that its search did not find."""
    nccl = scenario.fabric.nccl
    uses_nccl = any(costs.timed[op].lowered.algorithm.startswith("NCCL") for op in costs.all_reduces)
    if not nccl.p2p or not uses_nccl or (nccl.graph_file and nccl.p2p_level == "SYS"):
        return
    mended = replace(scenario.fabric, nccl=replace(nccl, p2p_level="SYS", graph_file=True))
    saves = _saving(costs, "nccl", mended)
    if saves.value > 0:
        yield Lever(
            what="NCCL's transport and ring",
            how="--nccl NCCL_P2P_LEVEL=SYS and an NCCL_GRAPH_FILE with the ring it did not find",
            saves=saves,
            caveat="check peer-to-peer for right data first: some boxes say it works and hang or corrupt",
        )


def _expert_kernel(costs: Costs) -> Iterable[Lever]:
    ops = [op for op in costs.schedule.ops if isinstance(op, Compute) and op.category is Category.EXPERTS]
    total = sum(costs.kernels[op.kernel].value for op in ops)
    floor = sum(costs.kernels[op.kernel].floor for op in ops)
    if total > 2 * floor:
        yield Lever(
            what="routed-expert kernels",
            how="another MoE backend; at most down to their bytes at memory bandwidth",
            saves=Interval(value=total - floor, low=0.0, high=total - floor),
            caveat="an upper bound: no measured kernel reaches it at this batch",
        )


def _host(scenario: Scenario) -> Iterable[Lever]:
    host = host_time(scenario)
    if host.value:
        yield Lever(
            what="host time between steps",
            how="overlap scheduling, a faster CPU core, performance governor",
            saves=Interval(value=host.value, low=0.0, high=host.high),
            caveat="an upper bound, and the least certain figure of the profile",
        )
