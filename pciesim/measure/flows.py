"""Several copies at once: every process issues its own, all begin together, each has its own time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pciesim.measure.team import Team
from pciesim.units import MS, Seconds

__all__ = ["Issue", "run_flows"]

Issue = Callable[[int], None]  # puts one copy on the stream of that address


def run_flows(team: Team, mine: Sequence[Issue], copies: int) -> list[list[Seconds]]:
    """Seconds per flow, by rank and by its flows, for ``copies`` copies each. Equal volumes, each flow's own time."""
    torch = team.worker.torch
    streams = [torch.cuda.Stream() for _ in mine]
    events = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in mine]
    for issue, stream in zip(mine, streams, strict=True):
        issue(stream.cuda_stream)
    torch.cuda.synchronize()
    team.barrier()
    for stream, (start, _) in zip(streams, events, strict=True):
        start.record(stream)
    for _ in range(copies):  # round robin, so that the flows of one process start together
        for issue, stream in zip(mine, streams, strict=True):
            issue(stream.cuda_stream)
    for stream, (_, end) in zip(streams, events, strict=True):
        end.record(stream)
    torch.cuda.synchronize()
    return team.gather([_seconds(pair) for pair in events])


def _seconds(pair: Sequence[Any]) -> Seconds:
    start, end = pair
    return float(start.elapsed_time(end)) * MS
