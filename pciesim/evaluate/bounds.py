"""Lower bounds: of a program on its fabric, and of a collective whatever the algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pciesim.collectives.program import Local, Program
from pciesim.collectives.task import Task
from pciesim.fabric import LinkKind, Route
from pciesim.schedule import CollectiveKind
from pciesim.units import Seconds

__all__ = ["Bounds", "bounds", "cut_bound", "endpoint_bound", "latency_bound"]


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


# The following hold for every algorithm whose GPUs alone move and add uncompressed data between each other. They do not
# hold for compressed formats, for sums taken in a switch or in host memory, or for multicast.


def latency_bound(task: Task) -> Seconds:
    """One store between the farthest pair that must hear of each other (every algorithm; kernels cost nothing)."""
    routes, n = task.costs.routes, len(task.gpus)
    if n < 2:
        return 0.0
    pairs = {
        CollectiveKind.BROADCAST: [(0, other) for other in range(1, n)],
        CollectiveKind.SEND_RECV: [(rank, (rank + 1) % n) for rank in range(n)],
    }.get(task.kind, [(a, b) for a in range(n) for b in range(n) if a != b])
    return max(routes.store(_route(task, a, b)) for a, b in pairs)


def endpoint_bound(task: Task) -> Seconds:  # noqa: PLR0911  (one formula a collective)
    """Bytes that the busiest GPU must send or receive, at the line rate of its port.

    An all-reduce needs 2 (n - 1) tensors sent in all, so some GPU sends 2 (n - 1)/n of one (Patarasuk and Yuan, 2009).
    """
    n, s = len(task.gpus), task.nbytes
    if n < 2:
        return 0.0
    match task.kind:
        case CollectiveKind.ALL_REDUCE:
            # The average over the GPUs: divided by the mean of what their ports can send.
            rates = [_port(task, rank, outgoing=True) for rank in range(n)]
            return 2 * (n - 1) * s / sum(rates)
        case CollectiveKind.ALL_GATHER:
            return max((n - 1) * s / _port(task, rank, outgoing=False) for rank in range(n))
        case CollectiveKind.REDUCE_SCATTER:
            return max((n - 1) / n * s / _port(task, rank, outgoing=True) for rank in range(n))
        case CollectiveKind.ALL_TO_ALL:
            blocks = [[task.block(a, b) if a != b else 0.0 for b in range(n)] for a in range(n)]
            sent = [sum(row) / _port(task, rank, outgoing=True) for rank, row in enumerate(blocks)]
            got = [sum(row[rank] for row in blocks) / _port(task, rank, outgoing=False) for rank in range(n)]
            return max(*sent, *got)
        case CollectiveKind.BROADCAST:
            return max(s / _port(task, rank, outgoing=rank == 0) for rank in range(n))
        case CollectiveKind.SEND_RECV:
            return max(s / _port(task, rank, outgoing=True) for rank in range(n))


def cut_bound(task: Task, inside: frozenset[int]) -> Seconds:
    """Bytes that must cross between the ranks ``inside`` and the others, at the rate of the links between them.

    All-reduce: one tensor each way. All-gather: every shard of the other side. Reduce-scatter: a partial sum of every
    piece of the other side. All-to-all: every block between the sides. Broadcast: one tensor into the side without the
    root. Raises ValueError when a side is empty.
    """
    n, s = len(task.gpus), task.nbytes
    outside = frozenset(range(n)) - inside
    if not inside or not outside:
        raise ValueError("a cut has two sides")
    x, y = len(inside), len(outside)
    match task.kind:
        case CollectiveKind.ALL_REDUCE:
            out = back = s
        case CollectiveKind.ALL_GATHER:
            out, back = x * s, y * s
        case CollectiveKind.REDUCE_SCATTER:
            out, back = y / n * s, x / n * s
        case CollectiveKind.ALL_TO_ALL:
            out = sum(task.block(a, b) for a in inside for b in outside)
            back = sum(task.block(b, a) for a in inside for b in outside)
        case CollectiveKind.BROADCAST:
            out, back = (s, 0.0) if 0 in inside else (0.0, s)
        case CollectiveKind.SEND_RECV:
            out = s * sum(1 for a in inside if (a + 1) % n in outside)
            back = s * sum(1 for b in outside if (b + 1) % n in inside)
    return max(out / _cut_rate(task, inside, outside), back / _cut_rate(task, outside, inside))


def _route(task: Task, a: int, b: int) -> Route:
    """Over NVLink only where peers may be reached at all."""
    return task.fabric.route(task.gpus[a], task.gpus[b], nvlink=task.fabric.nccl.p2p)


def _port(task: Task, rank: int, *, outgoing: bool) -> float:
    """Line rate of all links of a GPU in one direction."""
    gpu, nvlink = task.gpus[rank], task.fabric.nccl.p2p
    rates = [
        link.bandwidth
        for link in task.fabric.links
        if (link.source if outgoing else link.target) == gpu and (nvlink or link.kind is not LinkKind.NVLINK)
    ]
    return sum(rates) or math.inf


def _cut_rate(task: Task, sources: frozenset[int], targets: frozenset[int]) -> float:
    """The most that can flow from one side to the other: the narrowest place that all routes between them share.

    A sum over distinct links at each depth would be the exact cut; any set of links that all routes cross bounds it.
    """
    routes = [_route(task, a, b).links for a in sorted(sources) for b in sorted(targets)]
    at_source = sum({links[0]: task.fabric.links[links[0]].bandwidth for links in routes}.values())
    at_target = sum({links[-1]: task.fabric.links[links[-1]].bandwidth for links in routes}.values())
    shared = set(routes[0]).intersection(*map(set, routes[1:]))
    narrow = min((task.fabric.links[link].bandwidth for link in shared), default=math.inf)
    return min(at_source, at_target, narrow)
