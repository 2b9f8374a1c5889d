"""From a scenario to a prediction: the timed step, its intervals, and the parts a reader sees."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pciesim.evaluate.collective import CollectiveTimer
from pciesim.fabric import Assumption
from pciesim.levers import Costs, find_levers
from pciesim.memory import check_memory
from pciesim.prediction import (
    BreakEven,
    BusiestLink,
    CollectiveLine,
    KernelLine,
    OpLine,
    OwnKernelGain,
    Prediction,
    Request,
)
from pciesim.profile import UNMEASURED, Interval
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, CollectiveKind, Compute, Host, Kernel
from pciesim.step import Step, algorithm_for, evaluate_step, host_parameter, host_time, slowest, timer_of
from pciesim.uncertainty import Effect, Shift, combine, propagate, rank, shifts_of, touching
from pciesim.units import Seconds, format_seconds
from pciesim.workload import Phase

__all__ = ["op_lines", "predict"]


def predict(
    scenario: Scenario,
    request: Request,
    timer: CollectiveTimer | None = None,
    *,
    layers: bool = False,
    notes: tuple[str, ...] = (),
) -> Prediction:
    """The prediction for a scenario; ``request`` is how it was asked, for the record.

    A ``timer`` kept between calls is the memo: equal collectives are not evaluated again. ``layers`` adds every op.
    ``notes`` are what its strategies want known.
    Raises Infeasible when the model does not fit in memory.
    """
    timer = timer or timer_of(scenario, request.evaluator)
    memory = check_memory(scenario)
    step = evaluate_step(scenario, timer)
    reference, shifts = shifts_of(timer)
    effects = _collective_effects(step, scenario, reference, shifts)
    host_effects = _host_effects(scenario, step)
    kernel_effects = _kernel_effects(step)
    exposed = step.exposed
    totals = [
        *_step_effects(exposed, effects),
        *host_effects,
        *kernel_effects.values(),
        _gap_effect(step),
    ]
    latency = combine(step.timeline.length, totals)
    workload, prompt = scenario.workload, scenario.workload.phase is Phase.PREFILL
    yields = Interval.exact(1.0) if prompt else scenario.yields
    # A prompt's time is that of all its tokens.
    per_user = _rate(latency.value, totals, yields).scaled(workload.new_tokens if prompt else 1)
    return Prediction(
        request=request,
        step_latency=latency,
        tokens_per_step=yields,
        tokens_per_second_user=per_user,
        tokens_per_second_total=per_user.scaled(workload.batch * scenario.parallelism.dp),
        breakdown=_breakdown(step, effects, kernel_effects, host_effects),
        collectives=_collective_lines(scenario, step, effects),
        ops=op_lines(step) if layers else (),
        kernels=_kernel_lines(step),
        traversals=sum(step.timed[op].lowered.program.traversals * count for op, count in exposed.items()),
        busiest_link=_busiest_link(scenario, step),
        levers=find_levers(
            scenario,
            Costs(
                schedule=step.schedule,
                kernels=step.kernels,
                timed=step.timed,
                counts=step.counts,
                reference=reference,
                shifts=shifts,
                parallelism=scenario.parallelism,
            ),
        ),
        memory=memory,
        sensitivities=rank(totals, 4),
        assumptions=scenario.fabric.assumptions + _assumptions(scenario),
        warnings=notes,
        own_kernel=_own_kernel(scenario, step, timer),
    )


def _rate(length: Seconds, effects: Iterable[Effect], yields: Interval) -> Interval:
    """Tokens per second of one user, of a step that yields so many."""
    of_one = [replace(each, below=each.below / yields.value, above=each.above / yields.value) for each in effects]
    accepted = Effect(
        name="acceptance of drafts",
        below=length / yields.value - length / yields.high,
        above=length / yields.low - length / yields.value,
        evidence="published",
    )
    token = combine(length / yields.value, [*of_one, accepted])
    return Interval(value=1 / token.value, low=1 / token.high, high=1 / token.low)


# -- uncertainty ----------------------------------------------------------------------------------------------------


def _collective_effects(
    step: Step, scenario: Scenario, reference: CollectiveTimer, shifts: tuple[Shift, ...]
) -> dict[Collective, list[Effect]]:
    """The effect of every uncertain parameter on one call of every distinct collective, by the closed form."""

    def latency_of(op: Collective) -> Callable[[CollectiveTimer], Seconds]:
        return lambda timer: slowest(timer, scenario.parallelism, op, step.timed[op].name).latency

    return {
        op: propagate(reference, touching(shifts, (timed.lowered,)), latency_of(op)) for op, timed in step.timed.items()
    }


def _step_effects(calls: Mapping[Collective, int], effects: dict[Collective, list[Effect]]) -> list[Effect]:
    """Per-call effects of one parameter, summed over the calls that a step waits for."""
    names = sorted({effect.name for op in calls for effect in effects[op]})
    total: list[Effect] = []
    for name in names:
        parts = [(effect, count) for op, count in calls.items() for effect in effects[op] if effect.name == name]
        total.append(
            Effect(
                name=name,
                below=sum(effect.below * count for effect, count in parts),
                above=sum(effect.above * count for effect, count in parts),
                evidence=parts[0][0].evidence,
            )
        )
    return total


def _host_effects(scenario: Scenario, step: Step) -> list[Effect]:
    """The effect of each host time: between steps, and around passes of a draft head."""
    critical = [step.schedule.ops[position] for position in step.timeline.critical]
    hosts = [op.kernel for op in critical if isinstance(op, Compute) and isinstance(op.kernel, Host)]
    found: list[Effect] = []
    for place, count in Counter(host.place for host in hosts).items():
        time = host_time(scenario, place)
        found.append(
            Effect(
                name=host_parameter(scenario, place) or "host",
                below=count * (time.value - time.low),
                above=count * (time.high - time.value),
                evidence=time.evidence,
            )
        )
    return found


def _kernel_effects(step: Step) -> dict[Category, Effect]:
    """Kernels of one category err together."""
    below: Counter[Category] = Counter()
    above: Counter[Category] = Counter()
    sources: dict[Category, set[str]] = {}
    for position in step.timeline.critical:
        op = step.schedule.ops[position]
        if isinstance(op, Compute) and op.kernel in step.kernels:
            time = step.kernels[op.kernel]
            below[op.category] += time.value - time.low  # type: ignore[assignment]
            above[op.category] += time.high - time.value  # type: ignore[assignment]
            sources.setdefault(op.category, set()).add(time.source)
    return {
        category: Effect(
            name=f"kernels: {category}",
            below=below[category],
            above=above[category],
            evidence=", ".join(sorted(sources[category])),
        )
        for category in above
    }


def _gaps(step: Step) -> Counter[Category]:
    """Kernels on the critical path by category: each is followed by a gap."""
    ops = (step.schedule.ops[position] for position in step.timeline.critical)
    return Counter(op.category for op in ops if isinstance(op, Compute) and op.kernel in step.kernels)


def _gap_effect(step: Step) -> Effect:
    count = _gaps(step).total()
    gap = step.gap
    return Effect(
        name="launch gap per kernel",
        below=count * (gap.value - gap.low),
        above=count * (gap.high - gap.value),
        evidence=gap.source,
    )


# -- parts of the answer --------------------------------------------------------------------------------------------


def _breakdown(
    step: Step,
    effects: dict[Collective, list[Effect]],
    kernels: dict[Category, Effect],
    hosts: list[Effect],
) -> tuple[tuple[str, Interval], ...]:
    own: dict[Category, list[Effect]] = {category: [effect] for category, effect in kernels.items()}
    own[Category.HOST] = hosts
    for category in {op.category for op in step.timed}:
        calls = {op: count for op, count in step.exposed.items() if op.category is category}
        own[category] = _step_effects(calls, effects)
    parts: dict[Category, Seconds] = defaultdict(float, step.timeline.by_category(step.schedule))
    for category, count in _gaps(step).items():  # gaps are a cost of their own, wherever they fall
        parts[category] -= count * step.gap.value
        parts[Category.SMALL] += count * step.gap.value
    own.setdefault(Category.SMALL, []).append(_gap_effect(step))
    return tuple((str(c), combine(parts[c], own.get(c, []))) for c in Category if c in parts)


def _collective_lines(
    scenario: Scenario, step: Step, effects: dict[Collective, list[Effect]]
) -> tuple[CollectiveLine, ...]:
    merged: dict[tuple[object, ...], tuple[Collective, int]] = {}
    for op in step.timed:
        key = (op.kind, op.nbytes, op.group, step.timed[op].name, step.timed[op].latency)
        count = step.counts[op] + (merged[key][1] if key in merged else 0)
        merged[key] = (op, count)
    lines = []
    for op, count in merged.values():
        timed = step.timed[op]
        lowered = timed.lowered
        lines.append(
            CollectiveLine(
                kind=op.kind,
                count=count,
                nbytes=op.nbytes,
                gathered=op.nbytes * op.ranks if op.kind is CollectiveKind.ALL_GATHER else 0,
                algorithm=lowered.algorithm,
                protocol=lowered.protocol,
                transport=lowered.transport,
                channels=lowered.channels,
                latency=combine(timed.latency, effects[op]),
                traversals=lowered.program.traversals,
                reason=f"{algorithm_for(scenario, op)[1]}; {lowered.reason}",
                in_step=timed.in_step,
            )
        )
    return tuple(lines)


def _own_kernel(scenario: Scenario, step: Step, timer: CollectiveTimer) -> OwnKernelGain | None:
    """The step with the user's all-reduce against the step as the engine would serve it by itself."""
    if scenario.own is None:
        return None
    other = evaluate_step(replace(scenario, allreduce="auto"), timer, step.schedule)
    counts: Counter[tuple[int, Seconds, Seconds, str]] = Counter()
    for op, timed in step.timed.items():
        if timed.name == scenario.own.title:
            then = other.timed[op]
            counts[op.nbytes, timed.latency, then.latency, then.lowered.algorithm] += step.counts[op]
    return OwnKernelGain(
        saves=other.timeline.length - step.timeline.length,
        against=tuple(
            BreakEven(nbytes=nbytes, count=count, own=own, latency=latency, algorithm=algorithm)
            for (nbytes, own, latency, algorithm), count in counts.items()
        ),
    )


def _kernel_lines(step: Step) -> tuple[KernelLine, ...]:
    counts: Counter[tuple[str, Category, Kernel]] = Counter(
        (op.name, op.category, op.kernel)
        for op in step.schedule.ops
        if isinstance(op, Compute) and op.kernel in step.kernels
    )
    return tuple(
        KernelLine(
            name=name,
            category=category,
            count=count,
            time=Interval(value=time.value, low=time.low, high=time.high),
            floor=time.floor,
            source=time.source,
            detail=time.detail,
        )
        for (name, category, kernel), count in counts.items()
        for time in (step.kernels[kernel],)
    )


def op_lines(step: Step) -> tuple[OpLine, ...]:
    """Every op of the step in issue order, with where its time comes from."""
    lines: list[OpLine] = []
    for op, span in zip(step.schedule.ops, step.timeline.spans, strict=True):
        if isinstance(op, Collective):
            lowered = step.timed[op].lowered
            lines.append(
                OpLine(
                    name=op.name, category=op.category, kind=op.kind, nbytes=op.nbytes, flop=0.0, ranks=op.ranks,
                    group=op.group, stage=op.stage, stream=op.stream, start=span.start, duration=span.end - span.start,
                    source=f"{lowered.algorithm} {lowered.protocol}".strip(), detail=lowered.transport,
                )
            )  # fmt: skip
            continue
        time = step.kernels.get(op.kernel)
        lines.append(
            OpLine(
                name=op.name, category=op.category, kind=type(op.kernel).__name__, nbytes=op.nbytes, flop=op.flop,
                ranks=1, group="", stage=op.stage, stream=op.stream, start=span.start,
                duration=span.end - span.start, source=time.source if time else "profile",
                detail=time.detail if time else "",
            )
        )  # fmt: skip
    return tuple(lines)


def _busiest_link(scenario: Scenario, step: Step) -> BusiestLink | None:
    carried: Counter[int] = Counter()
    for op, timed in step.timed.items():
        count = step.counts[op]
        for constraint, nbytes in timed.lowered.program.link_bytes().items():
            carried[constraint] += count * nbytes  # type: ignore[assignment]
    if not carried:
        return None
    links, constraints = scenario.fabric.links, scenario.fabric.constraints
    capacity = [link.bandwidth for link in links] + [each.capacity for each in constraints]
    names = [f"{link.source} -> {link.target}" for link in links] + [each.name for each in constraints]
    busiest = max(carried, key=lambda each: (carried[each] / capacity[each], -each))
    busy = carried[busiest] / capacity[busiest] / step.timeline.length
    return BusiestLink(name=names[busiest], nbytes=carried[busiest], busy=busy)


def _assumptions(scenario: Scenario) -> tuple[Assumption, ...]:
    """What the calculation took for granted beyond the topology's own assumptions."""
    host = host_time(scenario).value
    found = [
        Assumption(
            text=f"{scenario.engine.title} keeps the GPUs waiting {format_seconds(host)} between steps",
            settle="profile a decode step: its length less the sum of its kernels and collectives",
            matters="the step, one for one",
        ),
        Assumption(
            text="ranks reach every collective together and nothing else uses the links",
            settle="a profile of all ranks; other replicas and KV transfers on the box",
            matters="every collective waits for its last rank",
        ),
    ]
    if any(layer.moe is not None for layer in scenario.model.layers):
        found.append(
            Assumption(
                text=f"experts differ in popularity (log-normal, spread {scenario.workload.skew:g}) and tokens choose "
                "independently",
                settle="expert counts from the engine's metrics",
                matters="routed-expert time above one token",
            )
        )
    if UNMEASURED in scenario.profile:
        factor = scenario.profile.parameter(UNMEASURED)
        found.append(
            Assumption(
                text="nobody measured this box: collectives take what they take on the nearest known ones",
                settle="'pciesim measure' and 'pciesim calibrate fit', two minutes on the box",
                matters=f"every collective: of hosts left out, nine of ten points took {factor.low:g} to "
                f"{factor.high:g} times that",
            )
        )
    if scenario.own is not None:
        found.append(
            Assumption(
                text=f"{scenario.own.title} takes here and in a step what it took where it was measured",
                settle="measure it between other kernels inside a CUDA graph, on these GPUs",
                matters="every all-reduce it serves, one for one",
            )
        )
    if not scenario.fabric.registry_override:
        found.append(
            Assumption(
                text="without the driver's ForceP2P option a GPU loads 1.5 GB/s from peers across a root complex (one "
                "published point); stores, copies and NCCL are as with it",
                settle="time a kernel that loads from peers at two sizes, with and without the option",
                matters="one-shot pull and vLLM's custom all-reduce on root ports",
            )
        )
    nccl = scenario.fabric.nccl
    if nccl.graph_file and len(scenario.gpus) > 1:
        found.append(
            Assumption(
                text="an NCCL_GRAPH_FILE gives NCCL the ring that its own search would miss (topology overlay)",
                settle="NCCL_DEBUG_SUBSYS=GRAPH prints the ring; --nccl NCCL_GRAPH_FILE=0 predicts without it",
                matters="NCCL's protocol, and so every all-reduce",
            )
        )
    return tuple(found)
