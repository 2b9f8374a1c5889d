"""A step, scheduled and timed: kernels once per distinct shape, collectives once per distinct (kind, bytes)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pciesim.evaluate.collective import CollectiveTimer, Timed
from pciesim.evaluate.timeline import Timeline, chain_schedule, run_schedule
from pciesim.kernels import KernelTime
from pciesim.scenario import Scenario
from pciesim.schedule import Collective, CollectiveKind, Host, Kernel, Schedule, build
from pciesim.units import Seconds

__all__ = ["Step", "algorithm_for", "evaluate_step", "schedule_of", "timer_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A scheduled and timed step: what every report is made of.

    A kernel's span on the timeline is its own time and ``gap``, the pause before the next kernel of the CUDA graph.
    """

    schedule: Schedule
    timeline: Timeline
    gap: KernelTime
    kernels: dict[Kernel, KernelTime]
    timed: dict[Collective, Timed]
    counts: Counter[Collective]


def timer_of(scenario: Scenario, evaluator: str) -> CollectiveTimer:
    """A fresh timer (and memo) for a scenario's group."""
    return CollectiveTimer(
        fabric=scenario.fabric,
        gpus=scenario.gpus,
        compute_capability=scenario.gpu.compute_capability,
        profile=scenario.profile,
        evaluator=evaluator,
    )


def algorithm_for(scenario: Scenario, op: Collective) -> tuple[str, str]:
    """The algorithm that serves a collective, and why: by name, or by the engine's dispatch rule."""
    if op.kind is not CollectiveKind.ALL_REDUCE:
        return "nccl", "only NCCL serves it"
    if scenario.allreduce != "auto":
        return scenario.allreduce, "asked for by name"
    routes = [scenario.fabric.route(scenario.gpus[0], other) for other in scenario.gpus[1:]]
    nccl = scenario.fabric.nccl
    rule = scenario.engine.rule(
        world=op.ranks, nbytes=op.nbytes, p2p=nccl.p2p, nvlink=nccl.p2p and all(route.nvlink for route in routes)
    )
    return rule.algorithm, f"{scenario.engine.title}: {rule.why}"


def schedule_of(scenario: Scenario) -> Schedule:
    """The ops of a step: what the engine would issue, after the scenario's transforms."""
    return scenario.transformed(build(scenario.model, scenario.workload, scenario.parallelism, scenario.engine))


def evaluate_step(scenario: Scenario, timer: CollectiveTimer, schedule: Schedule | None = None) -> Step:
    """Builds the schedule (unless it is given), times its ops and runs it.

    A timer that estimates has the streams run in closed form too.
    """
    schedule = schedule or schedule_of(scenario)
    kernels: dict[Kernel, KernelTime] = {}
    timed: dict[Collective, Timed] = {}
    durations: list[Seconds] = []
    host = scenario.profile.value(scenario.engine.host_parameter)
    gap = scenario.clock.gap()
    for op in schedule.ops:
        if isinstance(op, Collective):
            if op not in timed:
                timed[op] = timer.time(algorithm_for(scenario, op)[0], op.kind, op.nbytes)
            durations.append(timed[op].latency)
        elif isinstance(op.kernel, Host):
            durations.append(host)
        else:
            if op.kernel not in kernels:
                kernels[op.kernel] = scenario.clock.time(op.kernel)
            durations.append(kernels[op.kernel].value + gap.value)
    return Step(
        schedule=schedule,
        timeline=(chain_schedule if timer.evaluator == "estimate" else run_schedule)(schedule, durations),
        gap=gap,
        kernels=kernels,
        timed=timed,
        counts=Counter(op for op in schedule.ops if isinstance(op, Collective)),
    )
