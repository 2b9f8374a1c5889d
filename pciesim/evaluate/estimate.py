"""The closed form of a Program, and lower bounds that hold whatever the schedule.

Steps at the same depth of the graph are a phase. A transfer ends no sooner than its latency and its bytes alone allow,
and no sooner than the first flow of its phase could start on each thing it crosses plus the time that thing needs for
all the phase sends through it. The answer is the longest chain of these ends. Where links are not shared, or shared by
equals that start together, this equals the simulation; elsewhere it is an approximation that the agreement tests bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pciesim.collectives.program import Local, Program, Transfer
from pciesim.units import Seconds

__all__ = ["Bounds", "bounds", "estimate"]


def estimate(program: Program) -> Seconds:
    """Latency of a program whose ranks arrive together."""
    capacity = program.capacity
    done: list[Seconds] = [0.0] * len(program.steps)
    for phase in _phases(program):
        flowing: list[tuple[int, Transfer, Seconds]] = []
        load: dict[int, float] = {}
        first: dict[int, Seconds] = {}
        for position in phase:
            step = program.steps[position]
            begin = max((done[other] for other in step.after), default=0.0)
            if isinstance(step, Local):
                done[position] = begin + step.duration
                continue
            start = begin + step.latency
            if step.behind is not None and done[step.behind] > start:
                start = done[step.behind]
            done[position] = start + step.nbytes / step.cap
            if step.nbytes:
                flowing.append((position, step, start))
                for constraint, coefficient in step.uses:
                    load[constraint] = load.get(constraint, 0.0) + coefficient * step.nbytes
                    if start < first.get(constraint, math.inf):
                        first[constraint] = start
        full = {constraint: first[constraint] + total / capacity[constraint] for constraint, total in load.items()}
        for position, step, start in flowing:
            end = done[position]
            for constraint, coefficient in step.uses:
                end = max(end, full[constraint], start + coefficient * step.nbytes / capacity[constraint])
            done[position] = end
    return max(done, default=0.0)


def _phases(program: Program) -> list[list[int]]:
    """Steps by their depth in the graph."""
    depth: list[int] = []
    phases: list[list[int]] = []
    for position, step in enumerate(program.steps):
        level = 1 + max((depth[other] for other in step.after), default=-1)
        if isinstance(step, Transfer) and step.behind is not None:
            level = max(level, 1 + depth[step.behind])
        depth.append(level)
        if level == len(phases):
            phases.append([])
        phases[level].append(position)
    return phases


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Times no schedule of this program can beat: the longest chain run alone, and the busiest constraint."""

    chain: Seconds
    load: Seconds

    @property
    def latency(self) -> Seconds:
        """The larger of the two."""
        return max(self.chain, self.load)


def bounds(program: Program) -> Bounds:
    """Lower bounds of a program: each transfer at the full rate of its narrowest link, and each link at full load."""
    done: list[Seconds] = []
    for step in program.steps:
        begin = max((done[other] for other in step.after), default=0.0)
        if isinstance(step, Local):
            done.append(begin + step.duration)
        else:
            alone = max((k * step.nbytes / program.capacity[c] for c, k in step.uses), default=0.0)
            flow_from = begin + step.latency
            if step.behind is not None:
                flow_from = max(flow_from, done[step.behind])
            done.append(flow_from + max(alone, step.nbytes / step.cap))
    carried = program.link_bytes()
    return Bounds(
        chain=max(done, default=0.0),
        load=max((total / program.capacity[constraint] for constraint, total in carried.items()), default=0.0),
    )
