"""A step, scheduled and timed: kernels once per distinct shape, collectives once per distinct (kind, bytes, group)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from pciesim.collectives.nccl import TRANSPORT_NAMES
from pciesim.evaluate.collective import CollectiveTimer, Timed
from pciesim.evaluate.timeline import Timeline, chain_schedule, interfering_schedule, run_schedule
from pciesim.kernels import KernelTime
from pciesim.model import Precision
from pciesim.profile import Evidence, Parameter, Profile
from pciesim.routing import distinct_experts, expected_maximum, hit_deviation
from pciesim.scenario import Scenario
from pciesim.schedule import (
    Box,
    Category,
    Collective,
    CollectiveKind,
    Compute,
    Decision,
    Host,
    Kernel,
    Pass,
    RoutedExperts,
    Schedule,
    iteration,
    members,
    prompt,
)
from pciesim.units import Seconds
from pciesim.workload import Parallelism, Phase

__all__ = [
    "Step", "algorithm_for", "box_of", "decision_for", "evaluate_step", "host_parameter", "host_time", "passes_of",
    "schedule_of", "slowest", "timer_of",
]  # fmt: skip

_MULTICAST = (90, 100, 103)  # GPUs whose NVLink switches multicast; boxes of them are taken to have switches


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

    @property
    def exposed(self) -> Counter[Collective]:
        """The calls on the critical path: one that hides behind kernels costs no time."""
        ops = (self.schedule.ops[position] for position in self.timeline.critical)
        return Counter(op for op in ops if isinstance(op, Collective))


def timer_of(scenario: Scenario, evaluator: str) -> CollectiveTimer:
    """A fresh timer (and memo) for a scenario's group."""
    return CollectiveTimer(
        fabric=scenario.fabric,
        gpus=scenario.gpus,
        compute_capability=scenario.gpu.compute_capability,
        profile=scenario.profile,
        evaluator=evaluator,
        own=scenario.own,
    )


def box_of(scenario: Scenario, gpus: Iterable[str]) -> Box:
    """What an engine finds out about the GPUs of a group."""
    nccl = scenario.fabric.nccl
    pairs = list(combinations(gpus, 2))
    nvlink = nccl.p2p and bool(pairs) and all(scenario.fabric.route(one, other).nvlink for one, other in pairs)
    return Box(
        capability=scenario.gpu.compute_capability,
        p2p=nccl.p2p,
        nvlink=nvlink,
        multicast=nvlink and scenario.gpu.compute_capability in _MULTICAST,
        experts=any(layer.moe is not None for layer in scenario.model.layers),
    )


def decision_for(scenario: Scenario, op: Collective) -> Decision:
    """What the engine would do by itself: the backend that serves, and why each earlier one does not."""
    group = members(scenario.parallelism, op.group, op.stage)[0]
    return scenario.engine.decide(op, box_of(scenario, [scenario.gpus[rank] for rank in group]))


def algorithm_for(scenario: Scenario, op: Collective) -> tuple[str, str]:
    """The algorithm that serves a collective, and why: by name, or by the engine's dispatch."""
    if op.kind is CollectiveKind.ALL_REDUCE and scenario.allreduce != "auto":
        if op.precision is Precision.BF16:
            return scenario.allreduce, "asked for by name"
        return "nccl", f"{op.precision} sums are served by NCCL whatever is asked for"
    decision = decision_for(scenario, op)
    others = [each for each in scenario.engine.backends if op.kind in each.kinds]
    if others == [decision.backend]:
        return decision.backend.algorithm, f"only {decision.backend.name} serves it"
    return decision.backend.algorithm, f"{scenario.engine.title}: {_reason(decision, op)}"


def _reason(decision: Decision, op: Collective) -> str:
    """Why this backend: its own words, and for the last resort what the engine's default was refused for."""
    defaults = [why for backend, why in decision.refused if "custom" in backend.name and op.kind in backend.kinds]
    if decision.backend.algorithm != "nccl" or not defaults:
        return decision.reason
    return f"custom all-reduce is refused ({defaults[0]}), so {decision.backend.name} serves"


def slowest(timer: CollectiveTimer, parallelism: Parallelism, op: Collective, algorithm: str) -> Timed:
    """The collective, in a step, on the instance of its group that takes longest; instances run at the same time."""
    gpus = timer.gpus
    instances = members(parallelism, op.group, op.stage)
    if len(instances) == 1 and len(instances[0]) == len(gpus):
        found = timer.time(algorithm, op.kind, op.nbytes)
    else:
        each = [timer.among(tuple(gpus[rank] for rank in group)) for group in instances]
        found = max((one.time(algorithm, op.kind, op.nbytes) for one in each), key=lambda timed: timed.latency)
    more = _in_step(timer.profile, found) if op.graph else 0.0
    return replace(found, latency=found.latency + more, in_step=more) if more else found


def _in_step(profile: Profile, timed: Timed) -> Seconds:
    """What a call of NCCL inside a step's CUDA graph costs more than after itself: cold code, ranks that arrive apart.

    Of several transports the most expensive counts; own kernels have none, their fixed cost was measured either way.
    """
    if not timed.lowered.algorithm.startswith("NCCL"):
        return 0.0
    names = [
        f"nccl.{kind.lower()}.in_step"
        for kind, title in TRANSPORT_NAMES.items() if title in timed.lowered.transport.split(" + ")
    ]  # fmt: skip
    return max((profile.value(name) for name in names if name in profile), default=0.0)


def _rank_wait(scenario: Scenario, experts: RoutedExperts, ranks: int) -> Seconds:
    """How long ranks wait for the last where each routes tokens of its own (``ranks_route_alone`` of the engine).

    The ranks' experts hit scatter around the expectation; the fullest of them is behind by the expected maximum of as
    many normal deviates, times what one more expert takes.
    """
    facts = {"experts": experts.experts, "top_k": experts.top_k}
    now, then = (scenario.clock.time(replace(experts, tokens=experts.tokens + more)).value for more in (0, 1))
    hit, more_hit = (distinct_experts(tokens=experts.tokens + more, **facts) for more in (0, 1))
    deviation = hit_deviation(tokens=experts.tokens, **facts)
    return max(0.0, then - now) / (more_hit - hit) * deviation * expected_maximum(ranks)


def host_time(scenario: Scenario, place: str = "step") -> Parameter:
    """The time in which the host keeps the GPUs waiting between steps, or around a pass of the ``draft`` head.

    Zero for an engine that has no host in it.
    """
    name = host_parameter(scenario, place)
    if not name:
        return Parameter(
            value=0.0, low=0.0, high=0.0, evidence=Evidence.ASSUMED, source="a graph replayed back to back"
        )
    return scenario.profile.parameter(name)


def host_parameter(scenario: Scenario, place: str) -> str:
    """The name of that parameter (empty: none)."""
    name = scenario.engine.host_parameter
    return name if place == "step" else name.replace("host.", "draft.", 1)


def passes_of(scenario: Scenario) -> tuple[Pass, ...]:
    """The passes of one answer: a decode step (with drafts and their verification), or the chunks of a prompt."""
    workload = scenario.workload
    if workload.phase is Phase.PREFILL:
        return prompt(
            scenario.model, scenario.parallelism, scenario.engine, tokens=workload.new_tokens, batch=workload.batch,
            chunk=workload.chunk or None, context=workload.context,
        )  # fmt: skip
    passes = iteration(scenario.model, workload, scenario.parallelism, scenario.engine, scenario.speculation)
    return tuple(_launched(scenario, each) if each.name in ("draft", "extend") else each for each in passes)


def _launched(scenario: Scenario, each: Pass) -> Pass:
    """A pass of the draft head with what it costs beyond its kernels: such passes are short and launched one by one."""
    last = len(each.schedule.ops) - 1
    wait = Compute(
        name="draft",
        category=Category.HOST,
        kernel=Host(engine=scenario.engine.name, place="draft"),
        nbytes=0.0,
        flop=0.0,
    )
    return replace(each, schedule=Schedule(ops=(*each.schedule.ops, wait), after=(*each.schedule.after, (last,))))


def schedule_of(scenario: Scenario) -> Schedule:
    """The ops of a step, or of a prompt: what the engine would issue, after the scenario's transforms."""
    passes = [each.schedule for each in passes_of(scenario) for _ in range(each.count)]
    prompt_chunks = scenario.workload.phase is Phase.PREFILL
    return scenario.transformed(Schedule.joined(passes, overlapping=prompt_chunks))


def _overlaps(scenario: Scenario, schedule: Schedule, timed: Mapping[Collective, Timed]) -> dict[int, float]:
    """Collectives that run beside kernels, and the rate at which both then go on."""
    found: dict[int, float] = {}
    for position, op in enumerate(schedule.ops):
        if isinstance(op, Collective) and op.stream:
            name = "overlap.nvl" if "NVLink" in timed[op].lowered.transport else "overlap.pcie"
            found[position] = scenario.profile.value(name)
    return found


def evaluate_step(scenario: Scenario, timer: CollectiveTimer, schedule: Schedule | None = None) -> Step:
    """Builds the schedule (unless it is given), times its ops and runs it.

    A timer that estimates has the streams run in closed form too.
    """
    schedule = schedule or schedule_of(scenario)
    kernels: dict[Kernel, KernelTime] = {}
    timed: dict[Collective, Timed] = {}
    durations: list[Seconds] = []
    gap = scenario.clock.gap()
    apart: RoutedExperts | None = None  # the kernel that lets ranks reach the next collective apart
    for op in schedule.ops:
        if isinstance(op, Collective):
            if op not in timed:
                timed[op] = slowest(timer, scenario.parallelism, op, algorithm_for(scenario, op)[0])
            durations.append(timed[op].latency + (_rank_wait(scenario, apart, op.ranks) if apart else 0.0))
            apart = None
        elif isinstance(op.kernel, Host):
            durations.append(host_time(scenario, op.kernel.place).value)
        else:
            if op.kernel not in kernels:
                kernels[op.kernel] = scenario.clock.time(op.kernel)
            durations.append(kernels[op.kernel].value + gap.value)
            if scenario.engine.ranks_route_alone and isinstance(op.kernel, RoutedExperts):
                apart = op.kernel
    shares = _overlaps(scenario, schedule, timed)
    if shares:
        timeline = interfering_schedule(schedule, durations, shares)
    else:
        timeline = (chain_schedule if timer.evaluator == "estimate" else run_schedule)(schedule, durations)
    return Step(
        schedule=schedule,
        timeline=timeline,
        gap=gap,
        kernels=kernels,
        timed=timed,
        counts=Counter(op for op in schedule.ops if isinstance(op, Collective)),
    )
