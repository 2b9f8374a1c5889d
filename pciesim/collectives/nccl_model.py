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

from pciesim.fabric import Fabric, LinkKind, NcclEnvironment, Route
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, MIB, US, Bytes, BytesPerSecond, Seconds

__all__ = [
    "Algorithm", "Cost", "Protocol", "RingSearch", "cost_table", "edges_of", "nccl_path_type", "path_bandwidth",
    "search_ring", "tree_simple_hop", "used_channels",
]  # fmt: skip


class Protocol(StrEnum):
    """LL: 8 bytes of data and 8 of flags a line. LL128: 120 and 8. Simple: data, fence, flag."""

    LL = "LL"
    LL128 = "LL128"
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
_MAX_CHANNELS: Final = 64
# tuning.cc, microseconds, by algorithm and protocol (LL, LL128, Simple): base, then one hop by kind of link.
_BASE: Final = {
    ("Ring", "LL"): 6.6, ("Ring", "LL128"): 14.0, ("Ring", "Simple"): 8.4,
    ("Tree", "LL"): 6.8, ("Tree", "LL128"): 14.0, ("Tree", "Simple"): 8.4,
}  # fmt: skip
_HOP_PCI: Final = {
    ("Ring", "LL"): 1.0, ("Ring", "LL128"): 2.5, ("Ring", "Simple"): 5.7,
    ("Tree", "LL"): 1.0, ("Tree", "LL128"): 1.9, ("Tree", "Simple"): 4.0,
}  # fmt: skip
_HOP_NVLINK: Final = {
    ("Ring", "LL"): 0.6, ("Ring", "LL128"): 1.9, ("Ring", "Simple"): 3.4,
    ("Tree", "LL"): 0.6, ("Tree", "LL128"): 1.25, ("Tree", "Simple"): 4.0,
}  # fmt: skip
_TREE_SIMPLE_UNTIL_2_21: Final = 28.0  # PCI; 6.0 in 2.18.3 alone, 4.0 from 2.26 on (2.22 to 2.25 not looked up)
_TREE_SIMPLE_2_18_3: Final = 6.0
_LL_MAX: Final = ((100, 282.0), (90, 141.0), (80, 87.7), (0, 39.0))  # GB/s on one node
_RING_LL128_CHANNEL_MAX: Final = ((100, 40.0), (90, 36.7), (80, 20.0), (0, 20.0))  # GB/s a channel
_TREE_LL128_CHANNEL_MAX: Final = ((100, 55.6), (90, 36.7), (80, 20.0), (0, 20.0))
_TREE_CHANNEL_MAX: Final = ((100, 70.0), (90, 38.7), (80, 24.0), (0, 26.5))
_TREE_CORRECTION: Final = {  # by log2(bytes / 64)
    Protocol.LL: (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    Protocol.LL128: (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1,
                     1, 1),
    Protocol.SIMPLE: (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7,
                      0.7, 0.8, 0.9, 0.9, 0.9),
}  # fmt: skip
# device.h: threads of a channel's block, and the bytes each must have before another channel is worth it.
_MAX_THREADS: Final = {Protocol.LL: 512, Protocol.LL128: 640, Protocol.SIMPLE: 512}
_SLOW_RING_THREADS: Final = 256
_SLOW_RING: Final = 12 * GB
_THREAD_BYTES: Final = {Protocol.LL: 8, Protocol.LL128: 8, Protocol.SIMPLE: 64}


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


def nccl_path_type(route: Route) -> str:
    """NCCL's word for a route. It knows no NODE: between host bridges of one NUMA node it says PHB (paths.cc)."""
    return "PHB" if route.path_type == "NODE" else route.path_type


def path_bandwidth(fabric: Fabric, route: Route, *, through_host: bool) -> BytesPerSecond:
    """NCCL's bandwidth of a path: the narrowest link by its own constants.

    PCIe links count width times a lane's nominal rate; a socket link counts the host catalogue's NCCL constant, which
    the fabric carries as the host's ``nccl_socket_bandwidth``. A path of type PHB through an Intel root complex takes
    6/5 of the bytes on its PCIe links (search.cc: the root complex cuts peer traffic into 64-byte TLPs); a path
    diverted through the CPU because peer-to-peer is refused has that type too.
    """
    through_complex = through_host and not route.socket_hops and not route.nvlink
    phb = nccl_path_type(route) == "PHB" or through_complex
    overhead = _INTEL_P2P_OVERHEAD if fabric.host.vendor == "intel" and phb else 1.0
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
    environment = fabric.nccl
    if not fitting:
        return RingSearch(order=tuple(range(len(names))), speed=_FALLBACK * GB, graph_channels=1,
                          channels=_channels(environment, 1), fallback=True, slowest=slowest)  # fmt: skip
    speed = fitting[0]
    graph_channels = max(1, int(slowest // speed))
    if speed >= 25 * GB and not (capability > 80 and speed < 50 * GB and graph_channels > 4):
        graph_channels, speed = 2 * graph_channels, speed / 2
    return RingSearch(order=tuple(order), speed=speed, graph_channels=graph_channels,
                      channels=_channels(environment, graph_channels), fallback=False, slowest=slowest)  # fmt: skip


def _channels(environment: NcclEnvironment, graph_channels: int) -> int:
    """Channels of the communicator (connect.cc): twice those of the graph, at most NCCL_MAX_NCHANNELS of them used.

    Then copied until there are NCCL_MIN_NCHANNELS. Neither variable changes what the cost model believes.
    """
    found = min(_MAX_CHANNELS, 2 * graph_channels)
    found = min(found, environment.max_channels or environment.channels or found)
    return min(_MAX_CHANNELS, max(found, environment.min_channels or environment.channels or found))


def _locality(fabric: Fabric, names: Sequence[str], rank: int) -> tuple[int, str, int]:
    """Socket first, then the switch (the neighbour in the graph), then the rank."""
    device = fabric.device(names[rank])
    above = min(
        (link.target for link in fabric.links if link.source == device.name and link.kind is not LinkKind.NVLINK),
        default="",
    )
    return (device.numa if device.numa is not None else -1, above, rank)


def cost_table(
    kind: CollectiveKind,
    nbytes: Bytes,
    ranks: int,
    ring: RingSearch,
    *,
    capability: int,
    nvlink: bool,
    ll128: bool = False,
    version: str = "",
) -> list[Cost]:
    """NCCL's estimate of every (algorithm, protocol) it may use, cheapest first.

    ``nbytes`` is the operation's size as NCCL counts it (all-gather and reduce-scatter: the gathered tensor). LL128 is
    on by default only where all paths are NVLink; ``ll128`` says that NCCL_PROTO asks for it. Trees serve all-reduce.
    """
    hop = _HOP_NVLINK if nvlink else _HOP_PCI | {("Tree", "Simple"): tree_simple_hop(version)}
    bus = ring.graph_channels * ring.speed
    protocols = [each for each in Protocol if each is not Protocol.LL128 or ll128 or (nvlink and capability >= 70)]
    steps = {CollectiveKind.ALL_REDUCE: 2 * (ranks - 1), CollectiveKind.BROADCAST: ranks}.get(kind, ranks - 1)
    costs = []
    for protocol in protocols:
        rate = _ring_bandwidth(bus, protocol, ring, capability) * ranks / steps
        latency = _BASE["Ring", protocol]
        if kind is not CollectiveKind.BROADCAST:
            latency += steps * hop["Ring", protocol]
        else:  # tuning.cc: one hop where all channels are alike; Simple counts the tree's
            latency += hop["Tree" if protocol is Protocol.SIMPLE else "Ring", protocol]
        costs.append(Cost(algorithm=Algorithm.RING, protocol=protocol, time=latency * US + nbytes / rate))
    if kind is CollectiveKind.ALL_REDUCE:
        costs += [
            Cost(
                algorithm=Algorithm.TREE,
                protocol=protocol,
                time=(_BASE["Tree", protocol] + steps * hop["Tree", protocol]) * US
                + nbytes / _tree_bandwidth(bus, protocol, nbytes, ring, capability),
            )
            for protocol in protocols
        ]
    return sorted(costs, key=lambda cost: (cost.time, cost.algorithm, cost.protocol))


def tree_simple_hop(version: str) -> float:
    """Microseconds NCCL counts for a PCIe hop of a Simple tree: the one constant that changed between versions."""
    parts = [int(part) for part in version.split(".") if part.isdecimal()]
    if parts and parts[:3] == [2, 18, 3]:
        return _TREE_SIMPLE_2_18_3
    return _TREE_SIMPLE_UNTIL_2_21 if parts and parts[:2] <= [2, 21] else _HOP_PCI["Tree", "Simple"]


def _ring_bandwidth(bus: BytesPerSecond, protocol: Protocol, ring: RingSearch, capability: int) -> BytesPerSecond:
    if protocol is Protocol.LL:
        return min(_by_capability(_LL_MAX, capability) * GB, bus / 2)
    if protocol is Protocol.LL128:
        return min(0.92 * bus, ring.graph_channels * _by_capability(_RING_LL128_CHANNEL_MAX, capability) * GB)
    return bus


def _tree_bandwidth(
    bus: BytesPerSecond, protocol: Protocol, nbytes: Bytes, ring: RingSearch, capability: int
) -> BytesPerSecond:
    """Of the balanced tree that NCCL searches for (pattern 1 in its graph dumps; pattern TREE would count 0.85)."""
    bus = min(0.92 * bus, ring.graph_channels * _by_capability(_TREE_CHANNEL_MAX, capability) * GB)
    if protocol is Protocol.LL:
        bus = min(bus / 3.8, _by_capability(_LL_MAX, capability) * GB)
    if protocol is Protocol.LL128:
        bus = min(bus * 7 / 9, ring.graph_channels * _by_capability(_TREE_LL128_CHANNEL_MAX, capability) * GB)
    table = _TREE_CORRECTION[protocol]
    size = int(nbytes) // 64
    correction = table[size.bit_length() - 1] if 0 < size < 2 ** len(table) else 1.0
    return bus * 0.5 * correction


def used_channels(
    nbytes: Bytes, protocol: Protocol, ranks: int, ring: RingSearch, algorithm: Algorithm = Algorithm.RING
) -> int:
    """Channels left after NCCL's rule that every thread gets a minimum of bytes (enqueue.cc)."""
    channels, threads = ring.channels, _MAX_THREADS[protocol]
    if protocol is Protocol.SIMPLE and ring.speed * ring.graph_channels <= _SLOW_RING:
        threads = _SLOW_RING_THREADS
    threshold = _THREAD_BYTES[protocol]
    if protocol is Protocol.LL and algorithm is Algorithm.RING:
        threshold *= ranks
    while channels > 1 and nbytes < channels * threads * threshold:
        channels -= 1
    return channels


def edges_of(order: Sequence[int]) -> list[tuple[int, int]]:
    """The edges of a ring, the closing one last."""
    return [*pairwise(order), (order[-1], order[0])]
