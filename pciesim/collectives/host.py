"""One-shot through host memory, for boxes without peer-to-peer.

Every rank stores its part into host memory near it; the others poll and load it from there. A store up and a load down:
three traversals, the tensor passes each rank's port once up and n - 1 times down, and the DRAM as often. One after the
other: every thread of this project's own kernel (``oneshot_shared`` in ``measure/kernels.cu``) has stored all its part
before it loads, and by PCIe's ordering rules no read request passes the posted writes before it. Two H200 take 46.9 us
for 1 MiB: up and then down, 44 us; both at once would be 24. Two sets of buffers. Nobody ships this kernel for n > 2
(vLLM's host-staged all-reduce serves two ranks by CPU barriers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost, Needs
from pciesim.collectives.oneshot import parcels
from pciesim.collectives.program import Buffer, Transfer
from pciesim.collectives.steps import Steps
from pciesim.collectives.task import Lowered, Task
from pciesim.physics import Engine
from pciesim.schedule import CollectiveKind
from pciesim.units import Bytes

__all__ = ["HOST", "lower_host"]


def lower_host(task: Task, *, name: str = "oneshot-host", wire: float = 1.0) -> Lowered:
    """Stores to host memory near the source, loads by everyone else."""
    steps, fabric, routes = Steps(task, wire=wire), task.fabric, task.costs.routes
    chunks, owed = parcels(task)
    waits = steps.launch(task.costs.host_base)
    launched = list(waits)
    stores: dict[tuple[int, Buffer], int] = {}
    for source, _, nbytes, read, _ in owed:
        # One store serves every reader.
        if (source, read) not in stores:
            stores[source, read] = _store(steps, source, nbytes * wire, after=launched[source])
    for source, target, nbytes, read, write in owed:
        memory = fabric.memory_of(task.gpus[source]).name
        up, down = fabric.route(task.gpus[source], memory), fabric.route(memory, task.gpus[target])
        steps.steps.append(
            Transfer(
                source=source,
                target=target,
                nbytes=nbytes * wire,
                latency=routes.through_host(up, down),
                uses=routes.uses(fabric, down, Engine.LOAD),
                after=(stores[source, read],),
                traversals=3,
                read=read,
                write=write,
                landing=task.kind not in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER),
            )
        )
        waits[target] = (*waits[target], len(steps.steps) - 1)
    if task.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER):
        for rank in steps.ranks:
            own: Buffer = ("data", 0 if task.kind is CollectiveKind.ALL_REDUCE else rank)
            slots = [("slot", other) for other in steps.ranks if other != rank]
            steps.local(rank, after=waits[rank], reads=[own, *slots], write=own)
    mutual = task.kind not in (CollectiveKind.BROADCAST, CollectiveKind.SEND_RECV)
    return steps.lowered(name, "sentinel", chunks=chunks, epochs=2 if mutual else 3, transport="host memory")


def _store(steps: Steps, source: int, nbytes: Bytes, *, after: Sequence[int]) -> int:
    """The bytes of a store on their way up. What they mean and their latency are the transfers' that load them."""
    task = steps.task
    up = task.fabric.route(task.gpus[source], task.fabric.memory_of(task.gpus[source]).name)
    steps.steps.append(
        Transfer(
            source=source,
            target=source,
            nbytes=nbytes,
            latency=0.0,
            uses=task.costs.routes.uses(task.fabric, up, Engine.STORE),
            after=tuple(after),
            traversals=0,
        )
    )
    return len(steps.steps) - 1


def _costs() -> dict[CollectiveKind, Cost]:
    return {
        CollectiveKind.ALL_REDUCE: Cost(traversals="3", messages="n", nbytes="(n-1)*S"),
        CollectiveKind.REDUCE_SCATTER: Cost(traversals="3", messages="2*(n-1)", nbytes="(n-1)/n*S"),
        CollectiveKind.ALL_GATHER: Cost(traversals="3", messages="n", nbytes="(n-1)*S"),
        CollectiveKind.ALL_TO_ALL: Cost(traversals="3", messages="2*(n-1)", nbytes="(n-1)/n*S"),
        CollectiveKind.BROADCAST: Cost(traversals="3", messages="n", nbytes="(n-1)*S"),
        CollectiveKind.SEND_RECV: Cost(traversals="3", messages="2", nbytes="S"),
    }


HOST: Final = AlgorithmEntry(
    lower=lower_host,
    costs=_costs(),
    about="one store to host memory near the source, polled and loaded by everyone else: needs no peer-to-peer",
    source="derived from NCCL's SHM transport and vllm-project/vllm host_staged_all_reduce.py",
    needs=Needs(p2p=False),
)
