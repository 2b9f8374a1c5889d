"""A ring of copy-engine copies: large TLPs fill the link better than stores, but each step is a host-queued copy.

A step is a copy to the neighbour, a fenced flag and a stream wait (``copy.step``). b12x measures a floor of 340 us for
the 14 steps of eight GPUs, and 56 GB/s where multiprocessor stores reach 34.
"""

from __future__ import annotations

from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost
from pciesim.collectives.ring import Hop, lower_ring
from pciesim.collectives.steps import Steps
from pciesim.collectives.task import Lowered, Task
from pciesim.physics import Engine
from pciesim.schedule import CollectiveKind

__all__ = ["CE_RING", "lower_ring_copies"]


def lower_ring_copies(task: Task, *, wire: float = 1.0, name: str = "ce-ring") -> Lowered:
    """Ring all-reduce, all-gather or reduce-scatter by copies."""
    steps, n, routes = Steps(task), len(task.gpus), task.costs.routes
    hops = []
    for rank in range(n):
        target = (rank + 1) % n
        route = task.fabric.route(task.gpus[rank], task.gpus[target])
        latency = routes.store(route) + task.costs.copy_step
        hops.append(Hop(latency=latency, uses=steps.uses(rank, target, Engine.COPY, 1.0), traversals=2, payload=wire))
    program = lower_ring(task.kind, task.nbytes, order=range(n), hops=hops, base=0.0, channels=1,
                         capacity=task.capacity, name=name, credits=1)  # fmt: skip
    nvlink = all(task.fabric.route(task.gpus[0], other).nvlink for other in task.gpus[1:])
    return Lowered(program=program, algorithm=name, protocol="stream waits", transport="NVLink" if nvlink else "P2P",
                   channels=1, reason="chosen by name")  # fmt: skip


CE_RING: Final = AlgorithmEntry(
    lower=lower_ring_copies,
    costs={
        CollectiveKind.ALL_REDUCE: Cost(traversals="4*(n-1)", messages="2*(n-1)", nbytes="2*(n-1)/n*S"),
        CollectiveKind.ALL_GATHER: Cost(traversals="2*(n-1)", messages="n-1", nbytes="(n-1)*S"),
        CollectiveKind.REDUCE_SCATTER: Cost(traversals="2*(n-1)", messages="n-1", nbytes="(n-1)/n*S"),
    },
    about="ring of copy-engine copies with stream waits: slow steps, full links",
    source="local-inference-lab/b12x DMA ring; flashinfer-ai/flashinfer PR 4870",
)
