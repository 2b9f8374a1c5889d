"""Timing on a GPU: warm, aligned over ranks, repeated, and the slowest rank counts."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pciesim.measure.team import Team, Worker
from pciesim.units import MS, US, Seconds

__all__ = ["Timing", "alone", "capture", "host_clock", "in_graph", "launched", "repeated", "summary"]

HOST_BOUND: Final = 0.2 * MS
_ALIGN_CYCLES: Final = 600_000  # about 0.3 ms: the host has queued everything behind it before it ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds a call: the median, the extremes, and the medians of the first and second half (the noise)."""

    median: Seconds
    least: Seconds
    most: Seconds
    halves: tuple[Seconds, Seconds]
    calls: int
    repeats: int

    def row(self) -> dict[str, Any]:
        """As keys of a row."""
        return {"s": self.median, "min_s": self.least, "max_s": self.most, "halves_s": list(self.halves),
                "calls": self.calls, "repeats": self.repeats}  # fmt: skip


def summary(times: Sequence[Seconds], calls: int) -> Timing:
    """The timing of repeats that each held ``calls`` calls."""
    each = [t / calls for t in times]
    middle = (len(each) + 1) // 2
    return Timing(
        median=statistics.median(each),
        least=min(each),
        most=max(each),
        halves=(statistics.median(each[:middle]), statistics.median(each[-middle:])),
        calls=calls,
        repeats=len(each),
    )


def in_graph(
    team: Team,
    call: Callable[[], None],
    *,
    target: Seconds = MS,
    most_calls: int = 40,
    repeats: int = 7,
    before: Callable[[], None] | None = None,
    align: Callable[[], None] | None = None,
) -> Timing:
    """Calls back to back inside a CUDA graph, per call, the slowest rank of each replay.

    ``before`` runs ahead of every replay, untimed (fresh data); ``align`` makes the ranks start together (default:
    one more call).
    """
    torch = team.worker.torch
    calls = _calls(team, call, target, most_calls)
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
        team.barrier()
        capture(graph, repeated(call, calls))
        torch.cuda.synchronize()
        team.barrier()
        times = [_aligned(torch, graph.replay, align or call, before) for _ in range(repeats + 1)][1:]
    torch.cuda.synchronize()
    found = summary(team.worst(times), calls)
    graph.reset()
    return found


def launched(
    team: Team,
    call: Callable[[], None],
    *,
    target: Seconds = MS,
    most_calls: int = 40,
    repeats: int = 5,
    before: Callable[[], None] | None = None,
) -> Timing:
    """Calls launched one by one, per call, the slowest rank."""
    torch = team.worker.torch
    calls = _calls(team, call, target, most_calls)

    burst = repeated(call, calls)
    times: list[Seconds] = []
    for _ in range(repeats + 1):
        if before is not None:
            before()
        torch.cuda.synchronize()
        team.barrier()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call()
        start.record()
        burst()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * MS)
    return summary(team.worst(times[1:]), calls)


def alone(
    worker: Worker, calls: Sequence[Callable[[], Any]], *, rounds: int = 1, repeats: int = 7, eager: bool = False
) -> Timing:
    """One GPU by itself: ``calls`` after one another in a graph (or launched), per call.

    Give as many calls as there are sets of buffers, so that no call finds its data in the cache.
    """
    torch = worker.torch
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
        torch.cuda.synchronize()

        def burst() -> None:
            for _ in range(rounds):
                for call in calls:
                    call()

        run: Callable[[], Any] = burst
        graph = None
        if not eager:
            graph = torch.cuda.CUDAGraph()
            capture(graph, burst)
            run = graph.replay
        times = [_aligned(torch, run, None, None) for _ in range(repeats + 1)][1:]
    torch.cuda.synchronize()
    if graph is not None:
        graph.reset()
    return summary(times, rounds * len(calls))


def repeated(call: Callable[[], None], times: int) -> Callable[[], None]:
    """A function that calls another one several times."""

    def run() -> None:
        for _ in range(times):
            call()

    return run


def capture(graph: Any, run: Callable[[], Any]) -> None:
    """Records what ``run`` puts on the current stream (not the default one).

    Not ``torch.cuda.graph``: that empties caches and collects garbage every time. Thread-local, because the threads
    that watch over communicators may ask for events meanwhile.
    """
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        run()
    finally:
        graph.capture_end()


def host_clock(torch: Any, run: Callable[[], Any]) -> Seconds:
    """Wall time of something that ends with an idle GPU."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _calls(team: Team, call: Callable[[], None], target: Seconds, most: int) -> int:
    """How many calls fill about ``target``, the same on all ranks."""
    torch = team.worker.torch
    call()
    torch.cuda.synchronize()
    team.barrier()
    rough = host_clock(torch, repeated(call, 3)) / 3
    slowest = team.worst([rough])[0]
    if slowest < HOST_BOUND:
        return most  # launched one by one it is the host that takes this long
    return min(most, max(2, math.ceil(target / max(slowest, US))))


def _aligned(
    torch: Any, run: Callable[[], Any], align: Callable[[], Any] | None, before: Callable[[], None] | None
) -> Seconds:
    """Time of ``run`` on the GPU, everything queued behind a short wait so that the host is never late."""
    if before is not None:
        before()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_ALIGN_CYCLES)
    if align is not None:
        align()
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * MS
