"""The closed form of a Program.

Steps at the same depth of the graph are a phase. A transfer ends no sooner than its latency and its bytes alone allow.
Where several flows of a phase cross one link, the link serves them as equals (weighted by their lanes): those that
start together with equal bytes end together, when the link has passed all of them; those that start apart share it
while they overlap. The slowest link of a flow decides. The answer is the longest chain of these ends.

Where links are not shared, or shared by equals that start together, this equals the simulation. Elsewhere it is an
approximation: it does not see what a flow that is held up elsewhere leaves to others. Where flows of different
phases overlap (pieces of a pipeline, uneven loads), each link also counts as a whole: it starts with its first flow,
passes all its bytes without a pause, and what must follow its last flow follows. The agreement tests bound the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pciesim.collectives.program import Local, Program, Step, Transfer
from pciesim.units import BytesPerSecond, Seconds

__all__ = ["estimate"]

Group: TypeAlias = tuple[Seconds, tuple[int, ...], tuple[tuple[Seconds, float], ...]]
"""A link that several flows of a phase cross: time for all, the flows, and each one's (time alone, weight)."""
Shape: TypeAlias = tuple[list[Seconds], list[Group]]
"""Of a phase: the time each flow needs alone, and the links that may take longer than that."""


def estimate(program: Program) -> Seconds:  # noqa: PLR0912  (one loop, for speed)
    """Latency of a program whose ranks arrive together."""
    # A search asks this once for each of thousands of programs: comparisons instead of max() halve its time.
    # ruff: noqa: PLR1730
    steps = program.steps
    done: list[Seconds] = [0.0] * len(steps)
    shapes: dict[tuple[tuple[int, float, float], ...], Shape] = {}  # rounds of a ring have one shape
    overlap = False
    passed: Seconds = 0.0  # when the last flow of earlier phases ends
    for phase in program.phases:
        flows: list[tuple[int, float, float]] = []
        places: list[int] = []
        starts: list[Seconds] = []
        for position in phase:
            step = steps[position]
            begin = 0.0
            for other in step.after:
                if done[other] > begin:
                    begin = done[other]
            if isinstance(step, Local):
                done[position] = begin + step.duration
                continue
            begin += step.latency
            behind = step.behind
            if behind is not None and done[behind] > begin:
                begin = done[behind]
            nbytes = step.nbytes
            if nbytes:
                flows.append((id(step.uses), nbytes, step.cap))
                places.append(position)
                starts.append(begin)
            else:
                done[position] = begin
        if not flows:
            continue
        key = tuple(flows)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = _shape([steps[place] for place in places], program.capacity)
        alone, groups = shape
        ended = 0.0
        for place, start, time in zip(places, starts, alone, strict=True):
            end = done[place] = start + time
            if end > ended:
                ended = end
        if groups:
            for group in groups:
                _share(group, starts, places, done)
            ended = max([done[place] for place in places])
        if min(starts) < passed:
            overlap = True
        if ended > passed:
            passed = ended
    latency = max(done, default=0.0)
    return max(latency, _busy_link(program)) if overlap else latency


def _busy_link(program: Program) -> Seconds:
    """The most that any link needs: until its first flow, for all its bytes, and after its last flow."""
    capacity = program.capacity
    alone = [
        max([step.nbytes / step.cap, *(used * step.nbytes / capacity[link] for link, used in step.uses)])
        if isinstance(step, Transfer)
        else step.duration
        for step in program.steps
    ]
    start: list[Seconds] = []  # when the bytes of each step can flow at the earliest
    for step in program.steps:
        begin = max((start[other] + alone[other] for other in step.after), default=0.0)
        if isinstance(step, Transfer):
            begin += step.latency
            if step.behind is not None:
                begin = max(begin, start[step.behind] + alone[step.behind])
        start.append(begin)
    tail = [0.0] * len(program.steps)  # what must follow the end of each step
    for position in reversed(range(len(program.steps))):
        step = program.steps[position]
        own = alone[position] + tail[position]
        if isinstance(step, Transfer) and step.behind is not None:
            tail[step.behind] = max(tail[step.behind], own)
        if isinstance(step, Transfer):
            own += step.latency
        for other in step.after:
            tail[other] = max(tail[other], own)
    first: dict[int, Seconds] = {}
    last: dict[int, Seconds] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, Transfer) and step.nbytes:
            for link, _ in step.uses:
                first[link] = min(first.get(link, start[position]), start[position])
                last[link] = min(last.get(link, tail[position]), tail[position])
    return max(
        (
            first[link] + carried / capacity[link] + last[link]
            for link, carried in program.link_bytes().items()
            if link in first
        ),
        default=0.0,
    )


def _shape(steps: Sequence[Step], capacity: Sequence[BytesPerSecond]) -> Shape:
    flows = [step for step in steps if isinstance(step, Transfer)]
    alone: list[Seconds] = []
    crossing: dict[int, list[tuple[int, Seconds]]] = {}
    for number, flow in enumerate(flows):
        least = flow.nbytes / flow.cap
        for constraint, coefficient in flow.uses:
            time = coefficient * flow.nbytes / capacity[constraint]
            crossing.setdefault(constraint, []).append((number, time))
            least = max(least, time)
        alone.append(least)
    found: dict[tuple[int, ...], Group] = {}
    for users in crossing.values():
        total = sum(time for _, time in users)
        # A link that passes them all faster than any of them could go alone never holds one up.
        if len(users) < 2 or total <= min(alone[number] for number, _ in users):
            continue
        members = tuple(number for number, _ in users)
        if members not in found or total > found[members][0]:  # of links in a row the slowest counts
            found[members] = (total, members, tuple((time, float(flows[number].lanes)) for number, time in users))
    return alone, list(found.values())


def _share(group: Group, starts: Sequence[Seconds], places: Sequence[int], done: list[Seconds]) -> None:
    """Puts off the ends of a group's flows to when their link can have passed them."""
    total, members, parts = group
    first = min([starts[number] for number in members])
    together = all(starts[number] == first for number in members) and len(set(parts)) == 1
    ends = (
        [first + total] * len(members)
        if together
        else _shared_ends([(starts[number], *part) for number, part in zip(members, parts, strict=True)])
    )
    for number, end in zip(members, ends, strict=True):
        done[places[number]] = max(done[places[number]], end)


def _shared_ends(jobs: Sequence[tuple[Seconds, Seconds, float]]) -> list[Seconds]:
    """When each (start, work, weight) ends on one link that serves whoever is there in proportion to weight.

    In virtual time v, which passes at 1 / (weight present), a job ends when v has grown by work / weight since it came.
    """
    order = sorted(range(len(jobs)), key=lambda number: jobs[number][0])
    ends = [0.0] * len(jobs)
    present: list[tuple[float, int]] = []  # (virtual end, job)
    now = virtual = weight = 0.0
    coming = 0
    while coming < len(order) or present:
        arrival = jobs[order[coming]][0] if coming < len(order) else None
        if present:
            finish, job = min(present)
            end = now + (finish - virtual) * weight
            if arrival is None or end <= arrival:
                now, virtual = end, finish
                ends[job] = end
                present.remove((finish, job))
                weight -= jobs[job][2]
                continue
        assert arrival is not None
        virtual += (arrival - now) / weight if present else 0.0
        now = arrival
        job = order[coming]
        coming += 1
        _, work, own = jobs[job]
        if not present:
            weight = 0.0
        present.append((virtual + work / own, job))
        weight += own
    return ends
