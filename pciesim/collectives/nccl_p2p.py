"""NCCL's send and receive, and the all-to-all made of them: no ring, a pair of channels for each peer.

Up to 16 KiB a message uses LL, beyond Simple (NCCL_P2P_LL_THRESHOLD). All peers are served at once; each pair takes the
transport NCCL gives it. Stores to several peers at once reach less of a link than stores to one, as in one-shot
kernels: with that share NVIDIA's all-to-alls on four GPUs (aiconfigurator) come out within 8 % from 64 MiB up. What the
Simple protocol adds to a ring's fixed cost is not seen in theirs.
"""

from __future__ import annotations

from typing import Final

from pciesim.collectives.nccl import TRANSPORT_NAMES, base_cost, hop, transports
from pciesim.collectives.nccl_model import Algorithm, Protocol
from pciesim.collectives.oneshot import parcels
from pciesim.collectives.program import Program, Transfer
from pciesim.collectives.ring import SLOTS
from pciesim.collectives.steps import Steps
from pciesim.collectives.task import Lowered, Task
from pciesim.units import KIB

__all__ = ["lower_p2p"]

_LL_LIMIT: Final = 16 * KIB
_CHANNELS: Final = {"NVL": 32, "P2P": 2, "SHM": 2}  # for a peer on one node (NCCL's log: "p2p channels per peer")


def lower_p2p(task: Task, *, protocol: Protocol | None = None) -> Lowered:
    """Every rank's messages to its peers, all at once."""
    chunks, owed = parcels(task)
    pairs, steps = transports(task), Steps(task)
    largest = max((nbytes for _, _, nbytes, _, _ in owed), default=0.0)
    forced = protocol or task.fabric.nccl.protocol
    chosen = Protocol(forced) if forced else Protocol.LL if largest <= _LL_LIMIT else Protocol.SIMPLE
    kinds = sorted({pairs[source, target] for source, target, *_ in owed}) or ["P2P"]
    launched = steps.launch(base_cost(task, kinds, Protocol.LL))
    peers = max(sum(1 for owes, *_ in owed if owes == rank) for rank in steps.ranks)
    for source, target, nbytes, read, write in owed:
        edge = hop(task, source, target, pairs[source, target], algorithm=Algorithm.RING, protocol=chosen,
                   channels=_CHANNELS[pairs[source, target]], message=nbytes, peers=peers)  # fmt: skip
        steps.steps.append(
            Transfer(
                source=source, target=target, nbytes=nbytes, latency=edge.latency, uses=edge.uses,
                after=launched[source], traversals=edge.traversals, read=read, write=write,
                lanes=_CHANNELS[pairs[source, target]], cap=edge.rate, landing=True, credits=SLOTS,
            )
        )  # fmt: skip
    name = f"nccl-p2p-{chosen.lower()}"
    program: Program = steps.program(name, chunks=chunks, epochs=1)
    return Lowered(program=program, algorithm="NCCL send/recv", protocol=str(chosen),
                   transport=" + ".join(TRANSPORT_NAMES[kind] for kind in kinds), channels=_CHANNELS[kinds[0]],
                   reason="forced" if forced else "LL up to 16 KiB a message, Simple beyond")  # fmt: skip
