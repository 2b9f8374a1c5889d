"""NCCL's own model of the world: path bandwidths, ring search, channels and the cost table it chooses by.

Everything here predicts what NCCL *does*, not what would be best: where its constants are wrong, so is its choice.
Facts read from NVIDIA/nccl 2.30.7 (commit 5067397c; src/graph/{topo,search,connect,tuning}.cc), no code copied.
Quantities are NCCL's own units turned into SI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from pciesim.fabric import Fabric, LinkKind, Route
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, MIB, US, Bytes, BytesPerSecond, Seconds

__all__ = [
    "Algorithm",
    "Cost",
    "Protocol",
    "RingSearch",
    "cost_table",
    "path_bandwidth",
    "search_ring",
    "used_channels",
]


class Protocol(StrEnum):
    """LL: 8 bytes of data and 8 of flags a line. Simple: data, fence, flag."""

    LL = "LL"
    SIMPLE = "Simple"


class Algorithm(StrEnum):
    """On one node NCCL's tree is a chain."""

    RING = "Ring"
    TREE = "Tree"


# topo.h: rate of one PCIe lane in GB/s as NCCL counts it (width * speed / 80), by generation.
_LANE: Final = {1: 0.1875, 2: 0.375, 3: 0.75, 4: 1.5, 5: 3.0, 6: 6.0}
_INTEL_P2P_OVERHEAD: Final = 6 / 5
# search.cc: candidate ring speeds in GB/s by compute capability.
_SPEEDS: Final = (
    (100, (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)),
    (90, (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)),
    (0, (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)),
)
_FALLBACK: Final = 0.1  # search.cc: "simple order", when nothing in the list fits
# tuning.cc, microseconds: base by (algorithm, protocol), then one hop by kind of link.
_BASE: Final = {("Ring", "LL"): 6.6, ("Ring", "Simple"): 8.4, ("Tree", "LL"): 6.8, ("Tree", "Simple"): 8.4}
_HOP_PCI: Final = {("Ring", "LL"): 1.0, ("Ring", "Simple"): 5.7, ("Tree", "LL"): 1.0, ("Tree", "Simple"): 4.0}
_HOP_NVLINK: Final = {("Ring", "LL"): 0.6, ("Ring", "Simple"): 3.4, ("Tree", "LL"): 0.6, ("Tree", "Simple"): 4.0}
_LL_MAX: Final = ((100, 282.0), (90, 141.0), (80, 87.7), (0, 39.0))  # GB/s on one node
_TREE_CHANNEL_MAX: Final = ((100, 70.0), (90, 38.7), (80, 24.0), (0, 26.5))  # GB/s a channel
_TREE_CORRECTION: Final = {  # by log2(bytes / 64)
    Protocol.LL: (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    Protocol.SIMPLE: (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7,
                      0.7, 0.8, 0.9, 0.9, 0.9),
}  # fmt: skip
_MAX_THREADS: Final = {Protocol.LL: 512, Protocol.SIMPLE: 512}
_THREAD_BYTES: Final = {Protocol.LL: 8, Protocol.SIMPLE: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSearch:
    """What the search found: rank order, speed of one channel, how many channels the tuner counts and the kernel has.

    ``fallback`` is the "simple order" NCCL takes when its list of speeds holds nothing slow enough.
    """

    order: tuple[int, ...]
    speed: BytesPerSecond
    graph_channels: int
    channels: int
    fallback: bool
    slowest: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """NCCL's own guess for one (algorithm, protocol)."""

    algorithm: Algorithm
    protocol: Protocol
    time: Seconds


def _by_capability(table: Sequence[tuple[int, float]], capability: int) -> float:
    return next(value for least, value in table if capability >= least)


def path_bandwidth(fabric: Fabric, route: Route, *, through_host: bool) -> BytesPerSecond:
    """NCCL's bandwidth of a path: the narrowest link by its own constants.

    PCIe links count width times a lane's nominal rate; a socket link counts the host catalogue's NCCL constant, which
    the fabric carries as the host's ``nccl_socket_bandwidth``.
    """
    # paths.cc: an Intel root complex cuts GPU peer-to-peer into 64-byte TLPs, which NCCL counts as 6/5 of the bytes.
    overhead = (
        _INTEL_P2P_OVERHEAD if fabric.host.vendor == "intel" and route.root_complexes and not through_host else 1.0
    )
    found: list[BytesPerSecond] = []
    for position in route.links:
        link = fabric.links[position]
        if link.kind is LinkKind.PCIE and link.generation and link.width:
            found.append(_LANE[link.generation] * link.width * GB / overhead)
        elif link.kind is LinkKind.SOCKET and fabric.host.nccl_socket_bandwidth:
            found.append(fabric.host.nccl_socket_bandwidth)
        elif link.kind is not LinkKind.ON_CHIP:
            found.append(link.bandwidth)
    return min(found)


def search_ring(
    fabric: Fabric, gpus: Sequence[str], *, capability: int, transports: dict[tuple[int, int], str]
) -> RingSearch:
    """The ring NCCL settles on for a group: the largest listed speed every edge has.

    The order groups ranks by socket and switch, which is what the search prefers (it relaxes the path type last). A
    graph file (NCCL_GRAPH_FILE) stands for a ring the search should have found: its speed is that of the PCIe links.
    """
    names = list(gpus)
    order = sorted(range(len(names)), key=lambda rank: _locality(fabric, names, rank))
    edges = [(order[p], order[(p + 1) % len(order)]) for p in range(len(order))]
    slowest = min(
        path_bandwidth(
            fabric,
            fabric.route(names[a], names[b], nvlink=transports[a, b] == "NVL"),
            through_host=transports[a, b] == "SHM",
        )
        for a, b in edges
    )
    if fabric.nccl.graph_file:
        slowest = min(
            fabric.links[position].bandwidth for a, b in edges for position in fabric.route(names[a], names[b]).links
        )
    speeds = next(each for least, each in _SPEEDS if capability >= least)
    fitting = [speed * GB for speed in speeds if speed * GB <= slowest * (1 + 1 / MIB)]
    if not fitting:
        return RingSearch(order=tuple(range(len(names))), speed=_FALLBACK * GB, graph_channels=1, channels=2,
                          fallback=True, slowest=slowest)  # fmt: skip
    speed = fitting[0]
    graph_channels = max(1, int(slowest // speed))
    if speed >= 25 * GB and not (capability > 80 and speed < 50 * GB and graph_channels > 4):
        graph_channels, speed = 2 * graph_channels, speed / 2
    return RingSearch(order=tuple(order), speed=speed, graph_channels=graph_channels,
                      channels=min(64, 2 * graph_channels), fallback=False, slowest=slowest)  # fmt: skip


def _locality(fabric: Fabric, names: Sequence[str], rank: int) -> tuple[int, str, int]:
    """Socket first, then the switch (the neighbour in the graph), then the rank."""
    device = fabric.device(names[rank])
    above = min(
        (link.target for link in fabric.links if link.source == device.name and link.kind is not LinkKind.NVLINK),
        default="",
    )
    return (device.numa if device.numa is not None else -1, above, rank)


def cost_table(
    kind: CollectiveKind, nbytes: Bytes, ranks: int, ring: RingSearch, *, capability: int, nvlink: bool
) -> list[Cost]:
    """NCCL's estimate of every (algorithm, protocol) it may use, cheapest first.

    ``nbytes`` is the operation's size as NCCL counts it (all-gather and reduce-scatter: the gathered tensor). LL128 is
    left out: it is on by default only where all paths are NVLink or within one switch.
    """
    steps = 2 * (ranks - 1) if kind is CollectiveKind.ALL_REDUCE else ranks - 1
    hop = _HOP_NVLINK if nvlink else _HOP_PCI
    bus = ring.graph_channels * ring.speed
    costs = [
        Cost(
            algorithm=Algorithm.RING,
            protocol=protocol,
            time=(_BASE["Ring", protocol] + steps * hop["Ring", protocol]) * US
            + nbytes / (_ring_bandwidth(bus, protocol, capability) * ranks / steps),
        )
        for protocol in Protocol
    ]
    if kind is CollectiveKind.ALL_REDUCE:
        costs += [
            Cost(
                algorithm=Algorithm.TREE,
                protocol=protocol,
                time=(_BASE["Tree", protocol] + steps * hop["Tree", protocol]) * US
                + nbytes / _tree_bandwidth(bus, protocol, nbytes, ring, capability),
            )
            for protocol in Protocol
        ]
    return sorted(costs, key=lambda cost: (cost.time, cost.algorithm, cost.protocol))


def _ring_bandwidth(bus: BytesPerSecond, protocol: Protocol, capability: int) -> BytesPerSecond:
    if protocol is Protocol.LL:
        return min(_by_capability(_LL_MAX, capability) * GB, bus / 2)
    return bus


def _tree_bandwidth(
    bus: BytesPerSecond, protocol: Protocol, nbytes: Bytes, ring: RingSearch, capability: int
) -> BytesPerSecond:
    bus = min(0.92 * bus, ring.graph_channels * _by_capability(_TREE_CHANNEL_MAX, capability) * GB)
    if protocol is Protocol.LL:
        bus = min(bus / 3.8, _by_capability(_LL_MAX, capability) * GB)
    table = _TREE_CORRECTION[protocol]
    size = int(nbytes) // 64
    correction = table[min(max(size.bit_length() - 1, 0), len(table) - 1)] if 0 < size < 2 ** len(table) else 1.0
    return bus * 0.5 * correction


def used_channels(nbytes: Bytes, protocol: Protocol, ranks: int, channels: int) -> int:
    """Channels left after NCCL's rule that every thread gets a minimum of bytes (enqueue.cc)."""
    threshold = _THREAD_BYTES[protocol] * (ranks if protocol is Protocol.LL else 1)
    while channels > 1 and nbytes < channels * _MAX_THREADS[protocol] * threshold:
        channels -= 1
    return channels


def edges_of(order: Sequence[int]) -> list[tuple[int, int]]:
    """The edges of a ring, the closing one last."""
    return [*pairwise(order), (order[-1], order[0])]
