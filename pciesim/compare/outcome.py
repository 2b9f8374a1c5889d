"""What one configuration gives: its step, its rates, its traversals, its memory, and how all that could be wrong."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pciesim.compare.configuration import Configuration
from pciesim.compare.memo import Memo
from pciesim.compare.response import Response, Responses, interval
from pciesim.memory import check_memory
from pciesim.prediction import MemoryUse
from pciesim.profile import Interval
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Compute, Host
from pciesim.step import Step, evaluate_step, host_parameter, host_time, slowest
from pciesim.units import Seconds

__all__ = ["CallLine", "Outcome", "Refusal", "outcome_of", "responses_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """All equal collectives of a step: how many, each rank's bytes, how they run, and how long one takes."""

    kind: str
    count: int
    nbytes: int
    algorithm: str
    latency: Seconds
    traversals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A configuration that cannot run, and why."""

    configuration: Configuration
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One configuration, timed.

    ``step`` is one iteration of the engine's loop, ``tokens`` what it yields each sequence (1 without speculation).
    ``latency`` is the time per token of one user, with ``responses`` to every uncertain figure (empty where intervals
    were not asked for). ``parts`` split the step by category. ``sequences`` are those of the whole box.
    """

    configuration: Configuration
    step: Seconds
    tokens: float
    sequences: int
    traversals: int
    parts: Mapping[str, Seconds]
    calls: tuple[CallLine, ...]
    memory: MemoryUse
    gpus: tuple[int, ...]
    responses: Responses
    notes: tuple[str, ...] = ()

    @property
    def latency(self) -> Seconds:
        """Seconds per token of one user."""
        return self.step / self.tokens

    @property
    def latency_interval(self) -> Interval:
        """The same with its interval (exact where responses were not asked for)."""
        return interval(self.latency, self.responses)

    @property
    def user(self) -> Interval:
        """Tokens per second of one user."""
        time = self.latency_interval
        return Interval(value=1 / time.value, low=1 / time.high, high=1 / time.low if time.low else 1 / time.value)

    @property
    def total(self) -> Interval:
        """Tokens per second of the whole box."""
        return self.user.scaled(self.sequences)

    @property
    def traversals_per_token(self) -> float:
        """Sequential one-way PCIe traversals on the critical path, per token of one user."""
        return self.traversals / self.tokens


def outcome_of(
    configuration: Configuration,
    scenario: Scenario,
    memo: Memo,
    *,
    notes: tuple[str, ...] = (),
    intervals: bool = True,
) -> Outcome:
    """Times a scenario. Raises Infeasible where the model does not fit or a collective cannot run."""
    memory = check_memory(scenario)
    timer = memo.timer(scenario)
    step = evaluate_step(scenario, timer, memo.schedule(scenario))
    return Outcome(
        configuration=configuration,
        step=step.timeline.length,
        tokens=scenario.yields.value,
        sequences=scenario.sequences,
        traversals=sum(count * memo.traversals(step.timed[op].lowered.program) for op, count in step.exposed.items()),
        parts=MappingProxyType(_parts(step)),
        calls=_calls(step, memo),
        memory=memory,
        gpus=tuple(scenario.fabric.device(name).index or 0 for name in scenario.gpus),
        responses=_per_token(scenario, step, responses_of(scenario, step, memo)) if intervals else MappingProxyType({}),
        notes=notes,
    )


def _per_token(scenario: Scenario, step: Step, responses: Responses) -> Responses:
    """Responses of the time per token: those of the step over the tokens it yields, and that of the yield itself."""
    yields, length = scenario.yields, step.timeline.length
    found = {name: each.scaled(1 / yields.value) for name, each in responses.items()}
    if yields.low < yields.high:
        found["acceptance of drafts"] = Response(
            low=length / yields.low - length / yields.value,
            high=length / yields.high - length / yields.value,
            evidence="published",
        )
    return MappingProxyType(found)


def responses_of(scenario: Scenario, step: Step, memo: Memo) -> Responses:
    """How the step's length moves with every parameter and every family of kernels on its critical path."""
    found: dict[str, Response] = {}
    reference, shifts = memo.shifts(memo.timer(scenario))
    critical = [step.schedule.ops[position] for position in step.timeline.critical]
    calls = step.exposed
    for shift in shifts:
        change = sum(
            count
            * (
                slowest(shift.timer, scenario.parallelism, op, step.timed[op].name).latency
                - slowest(reference, scenario.parallelism, op, step.timed[op].name).latency
            )
            for op, count in calls.items()
        )
        if change:
            other = change * shift.down / shift.up
            low, high = (other, change) if shift.up > 0 else (change, other)
            found[shift.name] = Response(low=low, high=high, evidence=shift.evidence)
    parts: dict[Category, dict[Hashable, tuple[Seconds, Seconds]]] = defaultdict(dict)
    gaps = 0
    hosts: Counter[str] = Counter()
    for op in critical:
        if isinstance(op, Compute) and op.kernel in step.kernels:
            time = step.kernels[op.kernel]
            # The same kernel by the same rows errs alike in every answer; other rows err otherwise (docs/kernels.md).
            key = (op.kernel, time.detail)
            low, high = parts[op.category].get(key, (0.0, 0.0))
            parts[op.category][key] = (low + time.low - time.value, high + time.high - time.value)
            gaps += 1
        elif isinstance(op, Compute) and isinstance(op.kernel, Host):
            hosts[op.kernel.place] += 1
    for category, own in parts.items():
        found[f"kernels: {category}"] = Response(
            low=math.fsum(low for low, _ in own.values()),
            high=math.fsum(high for _, high in own.values()),
            evidence="kernel tables",
            parts=MappingProxyType(own),
        )
    gap = step.gap
    found["launch gap per kernel"] = Response(
        low=gaps * (gap.low - gap.value), high=gaps * (gap.high - gap.value), evidence=str(gap.source)
    )
    for place, count in hosts.items():
        host = host_time(scenario, place)
        found[host_parameter(scenario, place) or place] = Response(
            low=count * (host.low - host.value), high=count * (host.high - host.value), evidence=str(host.evidence)
        )
    return MappingProxyType({name: each for name, each in found.items() if each.low or each.high})


def _parts(step: Step) -> dict[str, Seconds]:
    """The step by category, launch gaps counted with the small kernels."""
    parts: dict[Category, Seconds] = defaultdict(float, step.timeline.by_category(step.schedule))
    for position in step.timeline.critical:
        op = step.schedule.ops[position]
        if isinstance(op, Compute) and op.kernel in step.kernels and op.category is not Category.SMALL:
            parts[op.category] -= step.gap.value
            parts[Category.SMALL] += step.gap.value
    return {str(category): parts[category] for category in Category if category in parts}


def _calls(step: Step, memo: Memo) -> tuple[CallLine, ...]:
    counts: Counter[CallLine] = Counter()
    for op, timed in step.timed.items():
        line = CallLine(
            kind=str(op.kind),
            count=1,
            nbytes=op.nbytes,
            algorithm=f"{timed.lowered.algorithm} {timed.lowered.protocol}",
            latency=timed.latency,
            traversals=memo.traversals(timed.lowered.program),
        )
        counts[line] += step.counts[op]
    return tuple(
        CallLine(
            kind=line.kind,
            count=count,
            nbytes=line.nbytes,
            algorithm=line.algorithm,
            latency=line.latency,
            traversals=line.traversals,
        )
        for line, count in counts.items()
    )
