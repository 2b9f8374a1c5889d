"""The reference evaluator of a Program: discrete events on SimPy over one fluid network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import simpy

from pciesim.collectives.program import Local, Program, Transfer
from pciesim.evaluate.network import FluidNetwork, RateMemo
from pciesim.sharing import Flow
from pciesim.units import Seconds

__all__ = ["ProgramRun", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """When each step started and ended, when each rank was done, and how many events it took."""

    latency: Seconds
    started: tuple[Seconds, ...]
    ended: tuple[Seconds, ...]
    rank_done: tuple[Seconds, ...]
    events: int


def simulate(program: Program, *, arrivals: Sequence[Seconds] | None = None) -> ProgramRun:
    """Runs a program alone on its fabric.

    ``arrivals`` are the times at which each rank reaches the collective (default: all at 0); steps of a rank without
    predecessors start then. ``latency`` counts from the first arrival to the last step's end.
    """
    return _Run(program, arrivals).run()


class _Run:
    """State of one simulation; a step is counted down by its predecessors and started by the last of them."""

    def __init__(self, program: Program, arrivals: Sequence[Seconds] | None) -> None:
        self.program = program
        self.env = simpy.Environment()
        self.network = FluidNetwork(self.env, RateMemo(program.capacity))
        self.waiting = [len(step.after) for step in program.steps]
        self.followers: list[list[int]] = [[] for _ in program.steps]
        for position, step in enumerate(program.steps):
            for other in step.after:
                self.followers[other].append(position)
        self.queued: dict[int, int] = {}  # transfer -> the one that waits behind it on the wire
        self.passed = [False] * len(program.steps)
        self.started = [0.0] * len(program.steps)
        self.ended = [0.0] * len(program.steps)
        self.arrivals = list(arrivals) if arrivals is not None else [0.0] * program.ranks
        self.events = 0
        self.flows = [
            Flow(uses=step.uses, weight=step.lanes, cap=step.cap) if isinstance(step, Transfer) else None
            for step in program.steps
        ]

    def run(self) -> ProgramRun:
        for position, step in enumerate(self.program.steps):
            if not step.after:
                rank = step.rank if isinstance(step, Local) else step.source
                self._begin(position, self.arrivals[rank])
        self.env.run()
        rank_done = list(self.arrivals)
        for position, step in enumerate(self.program.steps):
            rank = step.rank if isinstance(step, Local) else step.target
            rank_done[rank] = max(rank_done[rank], self.ended[position])
        return ProgramRun(
            latency=max(rank_done) - min(self.arrivals),
            started=tuple(self.started),
            ended=tuple(self.ended),
            rank_done=tuple(rank_done),
            events=self.events + self.network.wakeups,
        )

    def _begin(self, position: int, delay: Seconds) -> None:
        step = self.program.steps[position]
        self.started[position] = self.env.now + delay
        self.events += 1
        if isinstance(step, Local):
            timeout = simpy.Timeout(self.env, delay + step.duration)
            timeout.callbacks.append(lambda _event: self._end(position))
        elif step.nbytes > 0:
            timeout = simpy.Timeout(self.env, delay + step.latency)
            timeout.callbacks.append(lambda _event: self._flow(position))
        else:
            timeout = simpy.Timeout(self.env, delay + step.latency)
            timeout.callbacks.append(lambda _event: self._end(position))

    def _flow(self, position: int) -> None:
        """The latency is over: the bytes flow, unless an earlier piece is still on the wire."""
        step, flow = self.program.steps[position], self.flows[position]
        if not isinstance(step, Transfer) or flow is None:
            raise TypeError(f"step {position} of '{self.program.name}' is no transfer")
        if step.behind is not None and not self.passed[step.behind]:
            self.queued[step.behind] = position
            return
        self.network.start(flow, step.nbytes, lambda: self._end(position))

    def _end(self, position: int) -> None:
        self.ended[position] = self.env.now
        self.passed[position] = True
        if position in self.queued:
            self._flow(self.queued.pop(position))
        for follower in self.followers[position]:
            self.waiting[follower] -= 1
            if self.waiting[follower] == 0:
                self._begin(follower, 0.0)
