"""NCCL: transport, ring, channels, algorithm and protocol as it chooses them, lowered to a program.

A hop of LL is one posted write whose flag the neighbour polls in its own memory; LL128 the same in wider lines. A hop
of Simple is data, a fence that waits until the data has drained, and a flag. Through host memory (SHM) the neighbour
polls and reads host memory, so the hop is a write up and a load down; in memcpy mode copy engines do both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pciesim.collectives.nccl_model import (
    Algorithm,
    Cost,
    Protocol,
    RingSearch,
    cost_table,
    edges_of,
    nccl_path_type,
    search_ring,
    used_channels,
)
from pciesim.collectives.ring import Hop, lower_ring
from pciesim.collectives.task import Lowered, NcclCosts, Task
from pciesim.collectives.tree import lower_chain, lower_pipeline
from pciesim.errors import Infeasible
from pciesim.fabric import NcclEnvironment, Route
from pciesim.physics import Engine
from pciesim.schedule import CollectiveKind
from pciesim.units import KIB, Bytes, BytesPerSecond

__all__ = ["TRANSPORT_NAMES", "NcclPlan", "base_cost", "hop", "lower_nccl", "nccl_size", "plan", "transports"]

TRANSPORT_NAMES: Final = {"NVL": "NVLink", "P2P": "P2P", "SHM": "host memory"}
_LEVELS: Final = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_DEFAULT_LEVEL: Final = "PXB"
# A chain passes on pieces: Simple slices, LL and LL128 lines as they arrive. More pieces change little and cost time.
_CHAIN_PIECE: Final = {Protocol.LL: 16 * KIB, Protocol.LL128: 16 * KIB, Protocol.SIMPLE: 64 * KIB}
_MOST_PIECES: Final = 32
_PHASES: Final = {CollectiveKind.ALL_REDUCE: 2, CollectiveKind.ALL_GATHER: 1, CollectiveKind.REDUCE_SCATTER: 1}
_WIRE: Final = {Protocol.LL: 2.0, Protocol.LL128: 128 / 120, Protocol.SIMPLE: 1.0}  # bytes sent per byte of data
_ONE_SLICE: Final = 4 * KIB  # a chunk below this is not cut
_LL_WINDOW: Final = 512 * 8  # bytes in flight of one LL channel: ll_channel is this over the poll
_LL128_OVER_LL: Final = 640 * 15 / _LL_WINDOW  # threads times payload bytes of a thread's line, of one channel


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclPlan:
    """What NCCL decides for a group and a size, and why. ``pairs`` is the transport of every ordered pair of ranks."""

    pairs: dict[tuple[int, int], str]
    ring: RingSearch
    table: tuple[Cost, ...]
    algorithm: Algorithm
    protocol: Protocol
    channels: int
    reason: str

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Ring edges, the closing one last."""
        return edges_of(self.ring.order)

    @property
    def transports(self) -> list[str]:
        """Transports of the ring's edges, each once."""
        return sorted({self.pairs[edge] for edge in self.edges})


def transports(task: Task) -> dict[tuple[int, int], str]:
    """``NVL``, ``P2P`` or ``SHM`` for every ordered pair of ranks, by path type and NCCL_P2P_LEVEL (paths.cc)."""
    nccl, fabric = task.fabric.nccl, task.fabric
    level = nccl.p2p_level or _default_level(task)
    return {
        (a, b): _transport(fabric.route(one, other), nccl, level) if fabric.can_peer(one, other) else "SHM"
        for a, one in enumerate(task.gpus)
        for b, other in enumerate(task.gpus)
        if a != b
    }


def _default_level(task: Task) -> str:
    """PXB; SYS where the communicator has at most two GPUs on an AMD host (it sees no others of the box)."""
    two_on_amd = task.fabric.host.vendor == "amd" and len(task.gpus) <= 2
    return "SYS" if two_on_amd else _DEFAULT_LEVEL


def _transport(route: Route, nccl: NcclEnvironment, level: str) -> str:
    if not nccl.p2p:
        return "SHM"
    if route.nvlink:
        return "NVL"
    allowed = "PHB" if level == "NODE" else level
    return "P2P" if _LEVELS.index(nccl_path_type(route)) <= _LEVELS.index(allowed) else "SHM"


def nccl_size(task: Task) -> Bytes:
    """The operation's size as NCCL counts it: all-gather counts the gathered tensor."""
    return task.nbytes * (len(task.gpus) if task.kind is CollectiveKind.ALL_GATHER else 1)


def plan(task: Task, *, algorithm: Algorithm | None = None, protocol: Protocol | None = None) -> NcclPlan:
    """What NCCL decides, unless its variables or ``algorithm`` and ``protocol`` force it."""
    nccl, n, size = task.fabric.nccl, len(task.gpus), nccl_size(task)
    pairs = transports(task)
    ring = search_ring(task.fabric, task.gpus, capability=task.compute_capability, transports=pairs)
    nvlink = all(pairs[edge] == "NVL" for edge in edges_of(ring.order))
    table = cost_table(task.kind, size, n, ring, capability=task.compute_capability, nvlink=nvlink,
                       ll128="LL128" in (nccl.protocol, protocol), version=nccl.version)  # fmt: skip
    reason = "NCCL's cost model"
    asked = [
        cost for cost in table if nccl.algorithm in (None, cost.algorithm) and nccl.protocol in (None, cost.protocol)
    ]
    if nccl.algorithm or nccl.protocol:
        reason = "forced by NCCL_ALGO / NCCL_PROTO"
        if not asked:  # NCCL falls back to what there is (a tree serves all-reduce only)
            asked, reason = table, "NCCL's cost model (NCCL_ALGO / NCCL_PROTO name nothing that serves this)"
    if algorithm is not None or protocol is not None:
        asked = [cost for cost in table if algorithm in (None, cost.algorithm) and protocol in (None, cost.protocol)]
        reason = "forced by name"
        if not asked:
            raise Infeasible(f"NCCL has no {algorithm} {protocol} for {task.kind}")
    if ring.fallback:
        reason += "; its ring search found no ring (slowest edge below every listed speed) and fell back to 0.1 GB/s"
    best = asked[0]
    return NcclPlan(
        pairs=pairs,
        ring=ring,
        table=tuple(table),
        algorithm=best.algorithm,
        protocol=best.protocol,
        channels=used_channels(size, best.protocol, n, ring, best.algorithm),
        reason=reason,
    )


def lower_nccl(
    task: Task, *, algorithm: Algorithm | None = None, protocol: Protocol | None = None, memcpy: bool = False
) -> Lowered:
    """The collective as NCCL would run it on this group; ``algorithm`` and ``protocol`` force a choice.

    ``memcpy`` is NCCL_SHM_USE_CUDA_MEMCPY=1: host-memory edges are copied by copy engines, in the Simple protocol.
    """
    chosen = plan(task, algorithm=algorithm, protocol=protocol)
    if memcpy and "SHM" not in chosen.transports:
        raise Infeasible("NCCL_SHM_USE_CUDA_MEMCPY changes nothing here: no edge of the ring goes through host memory")
    edges, kinds = chosen.edges, chosen.transports
    algorithm, protocol, ring = chosen.algorithm, chosen.protocol, chosen.ring
    base = base_cost(task, kinds, protocol)
    if algorithm is Algorithm.RING and protocol is Protocol.SIMPLE:
        base += _second_slice(task, chosen)
    name = "nccl-shm-memcpy" if memcpy else f"nccl-{algorithm.lower()}-{protocol.lower()}"

    n, pieces = len(task.gpus), _pieces(task, protocol)
    ring_message = task.nbytes if task.kind is CollectiveKind.ALL_GATHER else task.nbytes / n
    piped = task.kind is CollectiveKind.BROADCAST or algorithm is Algorithm.TREE
    message = task.nbytes / pieces if piped else ring_message

    def edge_hop(edge: tuple[int, int]) -> Hop:
        return hop(task, *edge, chosen.pairs[edge], algorithm=algorithm, protocol=protocol, channels=chosen.channels,
                   message=message, memcpy=memcpy)  # fmt: skip

    if task.kind is CollectiveKind.BROADCAST:
        start = ring.order.index(0)
        order = [*ring.order[start:], *ring.order[:start]]
        program = lower_pipeline(task.nbytes, order=order, hops=[edge_hop(edge) for edge in edges_of(order)[:-1]],
                                 base=base, channels=chosen.channels, pieces=pieces,
                                 capacity=task.capacity, name=name)  # fmt: skip
    elif algorithm is Algorithm.RING:
        program = lower_ring(task.kind, task.nbytes, order=ring.order, hops=[edge_hop(edge) for edge in edges],
                             base=base, channels=chosen.channels, capacity=task.capacity, name=name)  # fmt: skip
    else:
        chain = edges[:-1]
        program = lower_chain(task.nbytes, order=ring.order, down=[edge_hop(edge) for edge in chain],
                              up=[edge_hop(edge[::-1]) for edge in chain], base=base, channels=chosen.channels,
                              pieces=pieces, capacity=task.capacity, name=name)  # fmt: skip
    return Lowered(program=program, algorithm=f"NCCL {algorithm}",
                   protocol=f"{protocol} memcpy" if memcpy else str(protocol),
                   transport=" + ".join(TRANSPORT_NAMES[kind] for kind in kinds), channels=chosen.channels,
                   reason=chosen.reason, notes=_notes(protocol, kinds))  # fmt: skip


def _notes(protocol: Protocol, kinds: list[str]) -> tuple[str, ...]:
    if protocol is not Protocol.LL128 or kinds == ["NVL"]:
        return ()
    return (
        "NCCL keeps LL128 off over PCIe: CPUs may split its 128-byte stores, and halves may pass each other (PR 2036)",
    )


def _pieces(task: Task, protocol: Protocol) -> int:
    return min(_MOST_PIECES, max(1, math.ceil(task.nbytes / _CHAIN_PIECE[protocol])))


def base_cost(task: Task, kinds: list[str], protocol: Protocol) -> float:
    """A call costs what its most expensive transport costs: one kernel serves all edges."""
    return max(_costs(task, kind).fixed(str(protocol)) for kind in kinds)


def _second_slice(task: Task, chosen: NcclPlan) -> float:
    """A ring sends a Simple chunk as two slices, each with a fence of its own; the second trails the first to the end.

    Chunks too small to cut, and a tree's, are one (device/all_reduce.h: SLICESTEPS, ProtoSimple<1, 1>).
    """
    if nccl_size(task) / len(task.gpus) < _ONE_SLICE:
        return 0.0
    routes, names = task.costs.routes, task.gpus
    drains = [
        routes.host_load
        if chosen.pairs[edge] == "SHM"
        else routes.load(task.fabric.route(names[edge[0]], names[edge[1]], nvlink=chosen.pairs[edge] == "NVL"))
        for edge in chosen.edges
    ]
    return 2 * task.costs.nccl_shm.fence * max(drains)


def _costs(task: Task, transport: str) -> NcclCosts:
    return {"NVL": task.costs.nccl_nvl, "P2P": task.costs.nccl_p2p, "SHM": task.costs.nccl_shm}[transport]


def hop(
    task: Task,
    a: int,
    b: int,
    transport: str,
    *,
    algorithm: Algorithm,
    protocol: Protocol,
    channels: int,
    message: Bytes,
    memcpy: bool = False,
    peers: int = 1,
) -> Hop:
    """One edge from rank a to rank b over a transport, for messages of that size, ``peers`` of them at once.

    With LL every thread has one line in flight per poll, and the first poll is part of the hop's latency: bytes up to
    one line a thread cost their time on the link alone. A ring may hide more (``NcclCosts.cut_through``).
    """
    fabric, routes, costs = task.fabric, task.costs.routes, _costs(task, transport)
    source, target = task.gpus[a], task.gpus[b]
    store_share, load_share = (task.costs.push.share, task.costs.pull.share) if peers > 1 else (1.0, 1.0)
    copied = memcpy and transport == "SHM"
    if transport == "SHM":
        memory = fabric.memory_of(target).name  # NCCL_SHM_LOCALITY: the receiver's side
        up, down = fabric.route(source, memory), fabric.route(memory, target)
        latency = routes.through_host(up, down) + (costs.copy_step if copied else 0.0)
        drain = routes.host_load
        uses = routes.uses(fabric, up, Engine.COPY if copied else Engine.STORE, of_isolated=store_share)
        uses += routes.uses(fabric, down, Engine.COPY if copied else Engine.LOAD, of_isolated=load_share)
        traversals = 3
    else:
        route = fabric.route(source, target, nvlink=transport == "NVL")
        latency, drain = routes.store(route), routes.load(route)
        uses = routes.uses(fabric, route, Engine.STORE, of_isolated=store_share)
        traversals = 1
    latency += costs.step
    if protocol is Protocol.SIMPLE:
        latency += costs.fence * drain
        traversals += 1
    found = tuple((constraint, used * _WIRE[protocol] / costs.share) for constraint, used in uses)
    capacity = task.capacity
    link = min(capacity[constraint] / used for constraint, used in found)
    channel = _channel(costs, algorithm, protocol)
    if algorithm is Algorithm.RING and protocol is Protocol.SIMPLE:
        channel *= _sending(task.kind, len(task.gpus), costs.receive)
    rate = link if copied else costs.rate(channels, channel, link)
    if protocol is not Protocol.SIMPLE:
        in_flight = channels * channel * (_LL_WINDOW / costs.ll_channel)  # rate x poll
        burst = min(message, in_flight)
        hidden = min(latency, max(0.0, burst / rate - burst / link))
        if algorithm is Algorithm.RING:
            hidden += costs.cut_through * max(0.0, min(latency, message / rate) - hidden)
        latency -= hidden
    return Hop(latency=latency, uses=found, traversals=traversals, rate=rate)


def _sending(kind: CollectiveKind, ranks: int, receive: float) -> float:
    """The share of a ring's loop in which its block sends: of k sends and one last receive (device/all_reduce.h).

    The receive is a copy inside the GPU and takes ``receive`` of a send's time. Two ranks that gather send once a loop,
    in an all-reduce twice.
    """
    sends = _PHASES.get(kind, 0) * (ranks - 1)
    return sends / (sends + receive) if sends else 1.0


def _channel(costs: NcclCosts, algorithm: Algorithm, protocol: Protocol) -> BytesPerSecond:
    """Payload rate of one channel."""
    if protocol is Protocol.SIMPLE:
        return costs.simple_channel
    wide = protocol is Protocol.LL128
    split = costs.tree_ll128_share if wide else costs.tree_share
    share = split if algorithm is Algorithm.TREE else 1.0
    return costs.ll_channel * share * (_LL128_OVER_LL if wide else 1.0)
