"""NCCL's tree on one node: a chain. The tensor is summed up the chain to its head and copied back down.

2 (n - 1) hops like the ring, but each carries the whole tensor, in pieces that follow one another. A broadcast is the
way down alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from pciesim.collectives.program import Local, Program, Step, Transfer
from pciesim.collectives.ring import SLOTS, Hop
from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = ["lower_chain", "lower_pipeline"]


def lower_chain(
    nbytes: Bytes,
    *,
    order: Sequence[int],
    up: Sequence[Hop],
    down: Sequence[Hop],
    base: Seconds,
    channels: int,
    pieces: int,
    capacity: tuple[BytesPerSecond, ...],
    name: str,
) -> Program:
    """All-reduce over the chain ``order[0] - order[1] - ...``.

    ``up[p]`` is the edge from position p + 1 to p and ``down[p]`` the one from p to p + 1. Piece k leaves a rank once
    it has arrived there, behind piece k - 1.
    """
    n = len(order)
    steps: list[Step] = [Local(rank=rank, duration=base) for rank in range(n)]
    last: dict[tuple[int, int], int] = {}  # (source, target) -> step of the piece before
    for piece in range(pieces):
        arrived: int | None = None
        path = [(p + 1, p, up[p], True) for p in reversed(range(n - 1))]
        path += [(p, p + 1, down[p], False) for p in range(n - 1)]
        for a, b, hop, merge in path:
            source, target = order[a], order[b]
            after = (source,) if arrived is None else (source, arrived)
            steps.append(
                Transfer(
                    source=source,
                    target=target,
                    nbytes=nbytes / pieces,
                    latency=hop.latency,
                    uses=hop.uses,
                    after=after,
                    traversals=hop.traversals,
                    read=("data", piece),
                    write=("data", piece),
                    merge=merge,
                    behind=last.get((source, target)),
                    lanes=channels,
                    cap=hop.rate,
                    landing=True,
                    credits=SLOTS,
                )
            )
            arrived = last[source, target] = len(steps) - 1
    return Program(name=name, ranks=n, steps=tuple(steps), capacity=capacity, chunks=pieces)


def lower_pipeline(
    nbytes: Bytes,
    *,
    order: Sequence[int],
    hops: Sequence[Hop],
    base: Seconds,
    channels: int,
    pieces: int,
    capacity: tuple[BytesPerSecond, ...],
    name: str,
) -> Program:
    """Broadcast from ``order[0]`` along ``order``; ``hops[p]`` is the edge from position p to p + 1."""
    n = len(order)
    steps: list[Step] = [Local(rank=rank, duration=base) for rank in range(n)]
    last: dict[int, int] = {}
    for piece in range(pieces):
        arrived: int | None = None
        for p, hop in enumerate(hops):
            steps.append(
                Transfer(
                    source=order[p],
                    target=order[p + 1],
                    nbytes=nbytes / pieces,
                    latency=hop.latency,
                    uses=hop.uses,
                    after=(order[p],) if arrived is None else (order[p], arrived),
                    traversals=hop.traversals,
                    read=("data", piece),
                    write=("data", piece),
                    behind=last.get(p),
                    lanes=channels,
                    cap=hop.rate,
                    landing=True,
                    credits=SLOTS,
                )
            )
            arrived = last[p] = len(steps) - 1
    return Program(name=name, ranks=n, steps=tuple(steps), capacity=capacity, chunks=pieces)
