"""NCCL: transport, ring, channels, algorithm and protocol as it chooses them, lowered to a program.

A hop of LL is one posted write whose flag the neighbour polls in its own memory. A hop of Simple is data, a fence that
waits until the data has drained, and a flag. Through host memory (SHM) the neighbour polls and reads host memory, so
the hop is a write up and a load down.
"""

from __future__ import annotations

import math
from typing import Final

from pciesim.collectives.nccl_model import (
    Algorithm,
    Protocol,
    RingSearch,
    cost_table,
    edges_of,
    search_ring,
    used_channels,
)
from pciesim.collectives.ring import Hop, lower_ring
from pciesim.collectives.task import Lowered, NcclCosts, Task
from pciesim.collectives.tree import lower_chain
from pciesim.fabric import NcclEnvironment, Route
from pciesim.physics import Engine
from pciesim.schedule import CollectiveKind
from pciesim.units import KIB

__all__ = ["choose", "lower_nccl", "transports"]

_LEVELS: Final = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "NODE", "SYS")
_DEFAULT_LEVEL: Final = "PXB"
_CHAIN_PIECE: Final = 64 * KIB  # a chain passes pieces of about this size (Simple's slice is larger, LL's smaller)


def transports(task: Task) -> dict[tuple[int, int], str]:
    """``NVL``, ``P2P`` or ``SHM`` for every ordered pair of ranks, by path type and NCCL_P2P_LEVEL (paths.cc)."""
    nccl, fabric = task.fabric.nccl, task.fabric
    level = nccl.p2p_level or _default_level(task)
    found: dict[tuple[int, int], str] = {}
    for a, one in enumerate(task.gpus):
        for b, other in enumerate(task.gpus):
            if a != b:
                route = fabric.route(one, other)
                found[a, b] = _transport(route, nccl, level)
    return found


def _default_level(task: Task) -> str:
    two_on_amd = task.fabric.host.vendor == "amd" and len(task.fabric.gpus) <= 2
    return "SYS" if two_on_amd else _DEFAULT_LEVEL


def _transport(route: Route, nccl: NcclEnvironment, level: str) -> str:
    if not nccl.p2p:
        return "SHM"
    if route.nvlink:
        return "NVL"
    return "P2P" if _LEVELS.index(route.path_type) <= _LEVELS.index(level) else "SHM"


def choose(task: Task, ring: RingSearch, *, nvlink: bool) -> tuple[Algorithm, Protocol, str]:
    """Algorithm and protocol by NCCL's own cost model, unless its variables force them; and the reason in words."""
    nccl, n = task.fabric.nccl, len(task.gpus)
    size = task.nbytes * (n if task.kind is CollectiveKind.ALL_GATHER else 1)
    table = cost_table(task.kind, size, n, ring, capability=task.compute_capability, nvlink=nvlink)
    allowed = [
        cost
        for cost in table
        if (nccl.algorithm is None or cost.algorithm == nccl.algorithm)
        and (nccl.protocol is None or cost.protocol == nccl.protocol)
    ] or table
    best = allowed[0]
    why = "NCCL's cost model" if allowed == table else "forced by NCCL_ALGO / NCCL_PROTO"
    if ring.fallback:
        why += "; its ring search found no ring (slowest edge below every listed speed) and fell back to 0.1 GB/s"
    return best.algorithm, best.protocol, why


def lower_nccl(task: Task, *, algorithm: Algorithm | None = None, protocol: Protocol | None = None) -> Lowered:
    """The collective as NCCL would run it on this group; ``algorithm`` and ``protocol`` force a choice."""
    pairs = transports(task)
    ring = search_ring(task.fabric, task.gpus, capability=task.compute_capability, transports=pairs)
    edges = edges_of(ring.order)
    kinds = sorted({pairs[edge] for edge in edges})
    chosen_algorithm, chosen_protocol, why = choose(task, ring, nvlink=kinds == ["NVL"])
    if algorithm is not None or protocol is not None:
        why = "forced by name"
    algorithm, protocol = algorithm or chosen_algorithm, protocol or chosen_protocol
    n = len(task.gpus)
    size = task.nbytes * (n if task.kind is CollectiveKind.ALL_GATHER else 1)
    channels = task.fabric.nccl.channels or used_channels(size, protocol, n, ring.channels)
    hops = {edge: _hop(task, *edge, pairs[edge], protocol) for edge in {*edges, *(edge[::-1] for edge in edges)}}
    # The call costs what its most expensive transport costs: one kernel serves all edges.
    base = max(_costs(task, kind).base for kind in kinds)
    if protocol is Protocol.SIMPLE:
        base += _costs(task, kinds[0]).simple_extra
    name = f"nccl-{algorithm.lower()}-{protocol.lower()}"
    if algorithm is Algorithm.RING:
        program = lower_ring(task.kind, task.nbytes, order=ring.order, hops=[hops[edge] for edge in edges], base=base,
                             channels=channels, capacity=task.capacity, name=name)  # fmt: skip
    else:
        chain = edges[:-1]
        program = lower_chain(task.nbytes, order=ring.order, down=[hops[edge] for edge in chain],
                              up=[hops[edge[::-1]] for edge in chain], base=base, channels=channels,
                              pieces=min(8, max(1, math.ceil(task.nbytes / _CHAIN_PIECE))), capacity=task.capacity,
                              name=name)  # fmt: skip
    names = {"NVL": "NVLink", "P2P": "P2P", "SHM": "host memory"}
    return Lowered(program=program, algorithm=f"NCCL {algorithm}", protocol=str(protocol),
                   transport=" + ".join(names[kind] for kind in kinds), channels=channels, reason=why)  # fmt: skip


def _costs(task: Task, transport: str) -> NcclCosts:
    return {"NVL": task.costs.nccl_nvl, "P2P": task.costs.nccl_p2p, "SHM": task.costs.nccl_shm}[transport]


def _hop(task: Task, a: int, b: int, transport: str, protocol: Protocol) -> Hop:
    fabric, routes, costs = task.fabric, task.costs.routes, _costs(task, transport)
    source, target = task.gpus[a], task.gpus[b]
    expansion = 2.0 if protocol is Protocol.LL else 1.0  # LL sends a flag with every 8 bytes of data
    if transport == "SHM":
        memory = fabric.memory_of(target).name  # NCCL_SHM_LOCALITY: the receiver's side
        up, down = fabric.route(source, memory), fabric.route(memory, target)
        latency = routes.through_host(up, down)
        drain = routes.host_load
        uses = routes.uses(fabric, up, Engine.STORE) + routes.uses(fabric, down, Engine.LOAD)
        traversals = 3
    else:
        route = fabric.route(source, target, nvlink=transport == "NVL")
        latency, drain = routes.store(route), routes.load(route)
        uses = routes.uses(fabric, route, Engine.STORE)
        traversals = 1
    latency += costs.step
    rate = costs.ll_channel
    if protocol is Protocol.SIMPLE:
        latency += costs.fence * drain
        traversals += 1
        rate = math.inf
    return Hop(
        latency=latency,
        uses=tuple((constraint, used * expansion) for constraint, used in uses),
        traversals=traversals,
        channel_rate=rate,
    )
