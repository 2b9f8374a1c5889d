"""Ring all-reduce, all-gather and reduce-scatter, lowered for any transport and protocol.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. With n ranks a tensor
is n chunks. Reduce-scatter: in step s the rank at ring position p passes chunk p - s on, and its neighbour adds it.
All-gather: in step s position p passes chunk p + 1 - s, which is complete. All-reduce is one after the other:
2 (n - 1) hops, each of 1/n of the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pciesim.collectives.program import Local, Program, Step, Transfer
from pciesim.schedule import CollectiveKind
from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = ["SLOTS", "Hop", "lower_ring"]

SLOTS: Final = 8  # NCCL_STEPS: messages a sender may be ahead of its receiver


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One neighbour-to-neighbour edge: its latency, what it loads, and the payload rate that its channels sustain.

    ``payload`` scales the bytes of every message (a compressed format).
    """

    latency: Seconds
    uses: tuple[tuple[int, float], ...]
    traversals: int
    rate: BytesPerSecond = math.inf
    payload: float = 1.0


def lower_ring(
    kind: CollectiveKind,
    nbytes: Bytes,
    *,
    order: Sequence[int],
    hops: Sequence[Hop],
    base: Seconds,
    channels: int,
    capacity: tuple[BytesPerSecond, ...],
    name: str,
    credits: int = SLOTS,
) -> Program:
    """The program of a ring collective.

    ``order[p]`` is the rank at ring position p and ``hops[p]`` its edge to position p + 1. ``nbytes`` is each rank's
    input (all-gather: the shard). Every rank first spends ``base`` on its kernel. Neighbours share a
    first-in-first-out of ``credits`` slots.
    """
    n = len(order)
    chunk = nbytes if kind is CollectiveKind.ALL_GATHER else nbytes / n
    steps: list[Step] = [Local(rank=rank, duration=base) for rank in range(n)]
    arrived: list[int | None] = [None] * n  # the step that last brought position p its chunk
    sent: list[int | None] = [None] * n  # the step that last left position p: an edge passes its messages in order
    phases: list[tuple[int, bool]] = []
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER):
        # A reduce-scatter starts one position back, so that chunk p ends at position p.
        shift = 0 if kind is CollectiveKind.ALL_REDUCE else -1
        phases += [(shift - s, True) for s in range(n - 1)]
    if kind is CollectiveKind.ALL_REDUCE:
        phases += [(1 - s, False) for s in range(n - 1)]
    if kind is CollectiveKind.ALL_GATHER:
        phases += [(-s, False) for s in range(n - 1)]
    for offset, merge in phases:
        before, arrived = arrived, [None] * n
        for p in range(n):
            source, target = order[p], order[(p + 1) % n]
            launch, previous = order[p], before[p]
            piece = ("data", order[(p + offset) % n])
            hop = hops[p]
            steps.append(
                Transfer(
                    source=source,
                    target=target,
                    nbytes=chunk * hop.payload,
                    latency=hop.latency,
                    uses=hop.uses,
                    after=(launch,) if previous is None else (launch, previous),
                    traversals=hop.traversals,
                    read=piece,
                    write=piece,
                    merge=merge,
                    behind=sent[p],
                    lanes=channels,
                    cap=hop.rate,
                    landing=True,
                    credits=credits,
                )
            )
            sent[p] = arrived[(p + 1) % n] = len(steps) - 1
    return Program(name=name, ranks=n, steps=tuple(steps), capacity=capacity, chunks=n)
