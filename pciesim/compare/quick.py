"""An outcome without intervals, for searches: what does not change between configurations is prepared once.

The same arithmetic as :func:`pciesim.step.evaluate_step` with the closed form of the timeline (a test holds both to
equality), an order of magnitude faster: a schedule of 1,100 ops has some 60 distinct ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType

from pciesim.compare.configuration import Configuration
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import CallLine, Outcome, outcome_of
from pciesim.memory import check_memory
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, Host, Op, Schedule
from pciesim.step import algorithm_for, host_time, slowest
from pciesim.units import Seconds

__all__ = ["Plan", "plan_of", "quick_outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A schedule by its distinct ops: ``places[i]`` is op i's index in them, ``before[i]`` what it waits for.

    ``overlapped``: some collectives run beside kernels.
    """

    distinct: tuple[Op, ...]
    counts: tuple[int, ...]
    places: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    overlapped: bool


def plan_of(schedule: Schedule) -> Plan:
    """The plan of a schedule."""
    index: dict[Op, int] = {}
    places = tuple(index.setdefault(op, len(index)) for op in schedule.ops)
    latest: dict[int, int] = {}
    before: list[tuple[int, ...]] = []
    for position, op in enumerate(schedule.ops):
        own = (latest[op.stream],) if op.stream in latest else ()
        before.append((*schedule.after[position], *own))
        latest[op.stream] = position
    counted = Counter(places)
    return Plan(
        distinct=tuple(index),
        counts=tuple(counted[place] for place in range(len(index))),
        places=places,
        before=tuple(before),
        overlapped=any(isinstance(op, Collective) and op.stream for op in index),
    )


def quick_outcome(
    configuration: Configuration, scenario: Scenario, memo: Memo, *, notes: tuple[str, ...] = ()
) -> Outcome:
    """As ``outcome_of`` without intervals. Raises Infeasible as that does."""
    memory = check_memory(scenario)
    timer, gap = memo.timer(scenario), scenario.clock.gap().value
    plan: Plan = memo.prepared(scenario, plan_of)
    if plan.overlapped:  # kernels and collectives slow each other down: no chain of durations
        return outcome_of(configuration, scenario, memo, notes=notes, intervals=False)
    own: list[Seconds] = []  # of each distinct op
    gaps: list[Seconds] = []
    calls: Counter[CallLine] = Counter()
    traversals = 0
    for op, count in zip(plan.distinct, plan.counts, strict=True):
        pause = 0.0
        if isinstance(op, Collective):
            timed = slowest(timer, scenario.parallelism, op, algorithm_for(scenario, op)[0])
            crossed = memo.traversals(timed.lowered.program)
            traversals += count * crossed
            line = CallLine(
                kind=str(op.kind), count=1, nbytes=op.nbytes,
                algorithm=f"{timed.lowered.algorithm} {timed.lowered.protocol}",
                latency=timed.latency, traversals=crossed,
            )  # fmt: skip
            calls[line] += count
            own.append(timed.latency)
        elif isinstance(op.kernel, Host):
            own.append(host_time(scenario, op.kernel.place).value)
        else:
            pause = gap
            own.append(scenario.clock.time(op.kernel).value)
        gaps.append(pause)
    critical = Counter(plan.places[position] for position in _critical(plan, own, gaps))
    parts: dict[Category, Seconds] = {}
    for place, count in critical.items():
        category = plan.distinct[place].category
        parts[category] = parts.get(category, 0.0) + count * own[place]
        if gaps[place]:
            parts[Category.SMALL] = parts.get(Category.SMALL, 0.0) + count * gaps[place]
    return Outcome(
        configuration=configuration,
        step=sum(parts.values()),
        tokens=scenario.yields.value,
        sequences=scenario.sequences,
        traversals=traversals,
        parts=MappingProxyType({str(each): parts[each] for each in Category if each in parts}),
        calls=tuple(
            CallLine(kind=line.kind, count=count, nbytes=line.nbytes, algorithm=line.algorithm, latency=line.latency,
                     traversals=line.traversals)
            for line, count in calls.items()
        ),
        memory=memory,
        gpus=tuple(scenario.fabric.device(name).index or 0 for name in scenario.gpus),
        responses=MappingProxyType({}),
        notes=notes,
    )  # fmt: skip


def _critical(plan: Plan, own: list[Seconds], gaps: list[Seconds]) -> list[int]:
    """The ops on the longest chain: its lengths sum to the step, for ops start the instant they may."""
    lengths = [one + pause for one, pause in zip(own, gaps, strict=True)]
    ends: list[Seconds] = []
    last: list[int] = []  # the op whose end lets each one start
    for place, before in zip(plan.places, plan.before, strict=True):
        if len(before) == 1:
            chosen = before[0]
            begin = ends[chosen]
        elif before:
            chosen = max(before, key=lambda other: (ends[other], other))
            begin = ends[chosen]
        else:
            chosen, begin = -1, 0.0
        last.append(chosen)
        ends.append(begin + lengths[place])
    chain: list[int] = []
    position = max(range(len(ends)), key=lambda each: (ends[each], each)) if ends else -1
    while position >= 0:
        chain.append(position)
        position = last[position]
    return chain
