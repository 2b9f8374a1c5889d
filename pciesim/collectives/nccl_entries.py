"""NCCL's lines of the catalogue: its own choice, and every algorithm and protocol forced."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost, Needs
from pciesim.collectives.nccl import lower_nccl
from pciesim.collectives.nccl_model import Algorithm, Protocol
from pciesim.collectives.nccl_p2p import lower_p2p
from pciesim.collectives.task import Lowered, Task
from pciesim.schedule import CollectiveKind

__all__ = ["CHOICE", "MEMCPY", "ring", "tree"]

_ANYWHERE: Final = Needs(p2p=False)
_PEERS: Final = (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV)
_SOURCE: Final = "NVIDIA/nccl 2.30.7 (5067397c) src/device, src/graph/tuning.cc"


def _ring_costs(per_hop: int, piece: int = 65536) -> Mapping[CollectiveKind, Cost]:
    """Costs with that many traversals a hop, and pieces of that many bytes in a broadcast."""
    once = "n-1" if per_hop == 1 else f"{per_hop}*(n-1)"
    return {
        CollectiveKind.ALL_REDUCE: Cost(traversals=f"{2 * per_hop}*(n-1)", messages="2*(n-1)", nbytes="2*(n-1)/n*S"),
        CollectiveKind.ALL_GATHER: Cost(traversals=once, messages="n-1", nbytes="(n-1)*S"),
        CollectiveKind.REDUCE_SCATTER: Cost(traversals=once, messages="n-1", nbytes="(n-1)/n*S"),
        CollectiveKind.BROADCAST: Cost(traversals=once, messages=f"min(32, ceil(S/{piece}))", nbytes="S"),
        CollectiveKind.ALL_TO_ALL: Cost(traversals=str(per_hop), messages="n-1", nbytes="(n-1)/n*S"),
        CollectiveKind.SEND_RECV: Cost(traversals=str(per_hop), messages="1", nbytes="S"),
    }


def _serve(task: Task, algorithm: Algorithm | None = None, protocol: Protocol | None = None) -> Lowered:
    if task.kind in _PEERS:
        return lower_p2p(task, protocol=protocol)
    return lower_nccl(task, algorithm=algorithm, protocol=protocol)


def ring(protocol: Protocol) -> AlgorithmEntry:
    """The ring in that protocol; sends and receives in that protocol where there is no ring."""
    return AlgorithmEntry(
        lower=partial(_serve, algorithm=Algorithm.RING, protocol=protocol),
        costs=_ring_costs(2) if protocol is Protocol.SIMPLE else _ring_costs(1, 16384),
        about=f"NCCL ring, {protocol} (NCCL_ALGO=Ring NCCL_PROTO={protocol})",
        source=_SOURCE,
        needs=_ANYWHERE,
    )


def tree(protocol: Protocol) -> AlgorithmEntry:
    """The tree in that protocol."""
    traversals, piece = ("4*(n-1)", 65536) if protocol is Protocol.SIMPLE else ("2*(n-1)", 16384)
    cost = Cost(
        traversals=traversals,
        messages=f"(2 if n > 2 else 1)*min(32, ceil(S/{piece}))",
        nbytes="2*S if n > 2 else S",
    )
    return AlgorithmEntry(
        lower=partial(lower_nccl, algorithm=Algorithm.TREE, protocol=protocol),
        costs={CollectiveKind.ALL_REDUCE: cost},
        about=f"NCCL tree, on one node a chain, {protocol} (NCCL_ALGO=Tree NCCL_PROTO={protocol})",
        source=_SOURCE,
        needs=_ANYWHERE,
    )


CHOICE: Final = AlgorithmEntry(
    lower=_serve,
    costs={kind: Cost(traversals="-1", messages="-1", nbytes="-1") for kind in CollectiveKind},
    about="NCCL as it chooses itself: transport by P2P level, ring search, algorithm and protocol by its cost model",
    source=_SOURCE,
    needs=_ANYWHERE,
)
MEMCPY: Final = AlgorithmEntry(
    lower=partial(lower_nccl, algorithm=Algorithm.RING, protocol=Protocol.SIMPLE, memcpy=True),
    costs={kind: cost for kind, cost in _ring_costs(4).items() if kind not in _PEERS},
    about="NCCL ring whose host-memory edges use copy engines (NCCL_SHM_USE_CUDA_MEMCPY=1): more bandwidth and latency",
    source=f"{_SOURCE}, src/transport/shm.cc; sgl-project/sglang issue 39605",
    needs=_ANYWHERE,
)
