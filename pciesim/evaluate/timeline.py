"""A schedule in time: ops on GPU streams, and where every instant of the step went."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import simpy

from pciesim.schedule import Category, Schedule
from pciesim.units import Seconds

__all__ = ["Span", "Timeline", "chain_schedule", "interfering_schedule", "run_schedule"]

_SAME: Final = 1e-12  # of an op's duration: what rounding leaves of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One op on one stream."""

    op: int
    stream: int
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Spans in issue order. ``critical`` are the indices of the ops on the chain that sets the step's length."""

    spans: tuple[Span, ...]
    critical: tuple[int, ...]

    @property
    def length(self) -> Seconds:
        """When the last op ends."""
        return max((span.end for span in self.spans), default=0.0)

    def by_category(self, schedule: Schedule) -> dict[Category, Seconds]:
        """The step's length split over the categories of its critical ops: the parts add up to the whole."""
        parts: dict[Category, Seconds] = {}
        for position in self.critical:
            span, category = self.spans[position], schedule.ops[position].category
            parts[category] = parts.get(category, 0.0) + span.end - span.start
        return parts


def run_schedule(schedule: Schedule, durations: Sequence[Seconds]) -> Timeline:
    """Runs the ops on their streams: one SimPy process a stream, in issue order, each op after those it waits for.

    Ops start the instant they may, so the critical chain has no gaps and its durations sum to the length.
    """
    env = simpy.Environment()
    finished = [env.event() for _ in schedule.ops]
    start, end = [0.0] * len(durations), [0.0] * len(durations)

    def stream(positions: list[int]) -> Generator[simpy.Event, None, None]:
        for position in positions:
            for other in schedule.after[position]:
                if not finished[other].processed:
                    yield finished[other]
            start[position] = env.now
            if durations[position]:
                yield env.timeout(durations[position])
            end[position] = env.now
            finished[position].succeed()

    streams: dict[int, list[int]] = {}
    for position, op in enumerate(schedule.ops):
        streams.setdefault(op.stream, []).append(position)
    for positions in streams.values():
        env.process(stream(positions))
    env.run()
    spans = tuple(
        Span(op=position, stream=op.stream, start=start[position], end=end[position])
        for position, op in enumerate(schedule.ops)
    )
    return Timeline(spans=spans, critical=_critical(schedule, end))


def chain_schedule(schedule: Schedule, durations: Sequence[Seconds]) -> Timeline:
    """The same in closed form: ops are in issue order, so one pass finds every start. For searches."""
    spans: list[Span] = []
    end: list[Seconds] = []
    latest: dict[int, Seconds] = {}
    for position, (op, waits) in enumerate(zip(schedule.ops, schedule.after, strict=True)):
        start = latest.get(op.stream, 0.0)
        for other in waits:
            start = max(start, end[other])
        finish = start + durations[position]
        end.append(finish)
        latest[op.stream] = finish
        spans.append(Span(op=position, stream=op.stream, start=start, end=finish))
    return Timeline(spans=tuple(spans), critical=_critical(schedule, end))


def interfering_schedule(schedule: Schedule, durations: Sequence[Seconds], shares: Mapping[int, float]) -> Timeline:
    """Runs the ops on their streams where collectives run beside kernels, and both slow down.

    ``shares`` maps a collective's index to the rate at which it and every kernel go on while both run (1: they do not
    disturb each other). Measured, overlap is not free: multiprocessors and memory are shared.
    """
    streams: dict[int, list[int]] = {}
    for position, op in enumerate(schedule.ops):
        streams.setdefault(op.stream, []).append(position)
    waiting = {stream: deque(positions) for stream, positions in streams.items()}
    running: dict[int, int] = {}
    left = list(durations)
    start, end = [0.0] * len(left), [0.0] * len(left)
    done = [False] * len(left)
    now = 0.0
    while running or any(waiting.values()):
        for stream, queue in waiting.items():
            if stream not in running and queue and all(done[other] for other in schedule.after[queue[0]]):
                running[stream] = queue.popleft()
                start[running[stream]] = now
        sums = [position for position in running.values() if position in shares]
        beside = len(running) > len(sums) > 0
        rate = min(shares[position] for position in sums) if beside else 1.0
        step = min(left[position] for position in running.values()) / rate
        now += step
        for stream, position in list(running.items()):
            left[position] -= step * rate
            if left[position] <= durations[position] * _SAME:
                end[position], done[position] = now, True
                del running[stream]
    spans = tuple(
        Span(op=position, stream=op.stream, start=start[position], end=end[position])
        for position, op in enumerate(schedule.ops)
    )
    return Timeline(spans=spans, critical=_critical(schedule, end))


def _critical(schedule: Schedule, end: Sequence[Seconds]) -> tuple[int, ...]:
    """From the last op to end, back through whichever predecessor ended last."""
    before: list[int | None] = []
    latest: dict[int, int] = {}
    for position, op in enumerate(schedule.ops):
        candidates = [*schedule.after[position], *([latest[op.stream]] if op.stream in latest else [])]
        before.append(max(candidates, key=lambda other: (end[other], other)) if candidates else None)
        latest[op.stream] = position
    chain: list[int] = []
    last = max(range(len(end)), key=lambda each: (end[each], each)) if end else None
    while last is not None:
        chain.append(last)
        last = before[last]
    return tuple(reversed(chain))
