"""The machine: devices, directed links, constraints that span several links, and routes between devices.

A :class:`Fabric` is structure only. It says what is wired to what and how fast each wire is by specification; what a
traversal costs in time, and which share of a wire each transfer engine reaches, is calibrated and lives in the profile
(see :mod:`pciesim.physics`). It is frozen and hashable, so that it can be part of a memo key.

Devices of a PCIe box and how they are wired::

    GPU ── root port ── root complex ── socket ══ socket ── root complex ── root port ── GPU      (direct attach)
    GPU ── switch ──┐                     │
    GPU ── switch ──┴─ root port ── ...   └── host memory (one per NUMA node)

Every wire is two :class:`Link` s, one per direction: PCIe is full duplex.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import networkx as nx

from pciesim.errors import InputError
from pciesim.units import Bytes, BytesPerSecond

__all__ = [
    "Assumption", "Constraint", "Device", "DeviceKind", "Fabric", "Host", "Link", "LinkKind", "NcclEnvironment", "Route",
]  # fmt: skip


class DeviceKind(StrEnum):
    """What a device is; the latency of a route is counted from the kinds it passes."""

    GPU = "gpu"
    SWITCH = "switch"
    ROOT_PORT = "root_port"
    ROOT_COMPLEX = "root_complex"
    SOCKET = "socket"
    MEMORY = "memory"
    NIC = "nic"


class LinkKind(StrEnum):
    """What a link is made of; efficiencies differ by it."""

    PCIE = "pcie"
    NVLINK = "nvlink"
    ON_CHIP = "on_chip"  # inside an I/O die or a switch chip
    SOCKET = "socket"  # xGMI, UPI
    DRAM = "dram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A vertex of the fabric.

    ``index`` is the GPU or NIC number for those kinds and None otherwise; ``numa`` is the NUMA node where known;
    ``model`` names a GPU type, a switch chip or a CPU of the catalogue, empty where it is not known.
    """

    name: str
    kind: DeviceKind
    index: int | None = None
    numa: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a wire. ``bandwidth`` is what the specification gives after line encoding."""

    source: str
    target: str
    kind: LinkKind
    bandwidth: BytesPerSecond
    generation: int | None = None  # PCIe generation
    width: int | None = None  # PCIe lanes, or number of NVLinks


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A capacity that several links share: an I/O-die quadrant, a chip's fabric. ``links`` are (source, target) pairs."""

    name: str
    capacity: BytesPerSecond
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something the input did not say. ``settle`` tells how the owner can settle it, ``matters`` what would change."""

    text: str
    settle: str = ""
    matters: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclEnvironment:
    """What decides NCCL's choices on this box. Names follow NCCL's variables.

    ``p2p_level`` is the farthest path type over which NCCL uses peer-to-peer (``LOC NVL PIX PXB PHB SYS``), None for
    NCCL's own default (PXB; SYS for at most two GPUs on an AMD host). ``p2p`` False is NCCL_P2P_DISABLE=1 or a driver
    that refuses it. ``graph_file`` says that an NCCL_GRAPH_FILE gives rings that NCCL's own search did not find.
    """

    version: str = ""
    p2p: bool = True
    p2p_level: str | None = None
    graph_file: bool = False
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The CPU side. ``cpu`` is a key of the host catalogue; ``vendor`` is ``amd``, ``intel`` or ``arm``."""

    cpu: str = ""
    vendor: str = ""
    memory_bandwidth: BytesPerSecond = 0.0  # per NUMA node, read plus write


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of a message. ``links`` and ``constraints`` are indices into the fabric's tuples.

    The counters say what the route crosses on its way; ``path_type`` is NCCL's and nvidia-smi's word for it
    (``NV#`` appears as ``NVL``).
    """

    source: str
    target: str
    links: tuple[int, ...]
    constraints: tuple[int, ...]
    switches: int
    root_complexes: int
    socket_hops: int
    nvlink: bool
    path_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A sealed machine. Build it with :meth:`build`, which checks it.

    ``matrix`` is the connection type of every GPU pair as nvidia-smi prints it (``X`` on the diagonal).
    ``write_collapse`` is the number of GPUs of one switch that, writing to two or more root ports at once, make this
    box's posted writes collapse (None: not known to happen).
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    constraints: tuple[Constraint, ...] = ()
    matrix: tuple[tuple[str, ...], ...] = ()
    gpu_model: str = ""
    host: Host = Host()
    nccl: NcclEnvironment = NcclEnvironment()
    write_collapse: int | None = None
    assumptions: tuple[Assumption, ...] = ()
    _graph: nx.DiGraph = field(init=False, compare=False, repr=False, default_factory=nx.DiGraph)
    _by_name: Mapping[str, Device] = field(init=False, compare=False, repr=False, default_factory=dict)
    _link_index: Mapping[tuple[str, str], int] = field(init=False, compare=False, repr=False, default_factory=dict)
    _routes: dict[tuple[str, str], Route] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        by_name = {device.name: device for device in self.devices}
        if len(by_name) != len(self.devices):
            raise InputError(f"fabric '{self.name}' has two devices of one name")
        index = {(link.source, link.target): position for position, link in enumerate(self.links)}
        graph = nx.DiGraph()
        graph.add_nodes_from(by_name)
        for position, link in enumerate(self.links):
            if link.source not in by_name or link.target not in by_name:
                raise InputError(f"fabric '{self.name}': link {link.source} -> {link.target} ends at an unknown device")
            if not link.bandwidth > 0:
                raise InputError(f"fabric '{self.name}': link {link.source} -> {link.target} has no bandwidth")
            graph.add_edge(link.source, link.target, position=position)
        for constraint in self.constraints:
            for pair in constraint.links:
                if pair not in index:
                    raise InputError(f"fabric '{self.name}': constraint '{constraint.name}' names no link {pair}")
        object.__setattr__(self, "_graph", nx.freeze(graph))
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_link_index", index)

    # -- devices ------------------------------------------------------------------------------------------------

    def device(self, name: str) -> Device:
        """The device of that name. Raises KeyError."""
        return self._by_name[name]

    @property
    def graph(self) -> nx.DiGraph:
        """The wiring as a frozen networkx graph (edge attribute ``position``: index into ``links``)."""
        return self._graph

    @property
    def gpus(self) -> tuple[Device, ...]:
        """GPUs by number."""
        found = (device for device in self.devices if device.kind is DeviceKind.GPU)
        return tuple(sorted(found, key=lambda device: device.index or 0))

    def memory_of(self, device: str) -> Device:
        """The host memory nearest to a device: fewest hops, then by name."""
        lengths = nx.single_source_shortest_path_length(self._graph, device)
        near = [
            (lengths[memory.name], memory.name)
            for memory in self.devices
            if memory.kind is DeviceKind.MEMORY and memory.name in lengths
        ]
        if not near:
            raise InputError(f"fabric '{self.name}' has no host memory that {device} can reach")
        return self._by_name[min(near)[1]]

    # -- routes -------------------------------------------------------------------------------------------------

    def route(self, source: str, target: str, *, nvlink: bool = True) -> Route:
        """The route between two devices: over NVLink where there is one (and it may be used), else the shortest.

        Never through a third GPU or a NIC. Raises InputError where there is none.
        """
        key = (source, target) if nvlink else (source, "pcie:" + target)
        if key not in self._routes:
            self._routes[key] = self._find_route(source, target, nvlink)
        return self._routes[key]

    def _find_route(self, source: str, target: str, nvlink: bool) -> Route:
        endpoints = {source, target}
        transit = {
            device.name
            for device in self.devices
            if device.name in endpoints or device.kind not in (DeviceKind.GPU, DeviceKind.NIC, DeviceKind.MEMORY)
        }
        wires = nx.DiGraph()
        wires.add_nodes_from(transit)
        for position, link in enumerate(self.links):
            if link.source in transit and link.target in transit and (nvlink or link.kind is not LinkKind.NVLINK):
                wires.add_edge(link.source, link.target, position=position)
        try:
            path = min(nx.all_shortest_paths(wires, source, target))
        except (nx.NetworkXNoPath, nx.NodeNotFound):
            raise InputError(f"fabric '{self.name}': nothing connects {source} to {target}") from None
        positions = tuple(wires.edges[pair]["position"] for pair in zip(path, path[1:], strict=False))
        crossed = {(self.links[position].source, self.links[position].target) for position in positions}
        kinds = [self._by_name[name].kind for name in path]
        uses_nvlink = any(self.links[position].kind is LinkKind.NVLINK for position in positions)
        return Route(
            source=source,
            target=target,
            links=positions,
            constraints=tuple(
                position for position, limit in enumerate(self.constraints) if not crossed.isdisjoint(limit.links)
            ),
            switches=kinds.count(DeviceKind.SWITCH),
            root_complexes=kinds.count(DeviceKind.ROOT_COMPLEX),
            socket_hops=sum(1 for position in positions if self.links[position].kind is LinkKind.SOCKET),
            nvlink=uses_nvlink,
            path_type=self._path_type(source, target, uses_nvlink),
        )

    def _path_type(self, source: str, target: str, uses_nvlink: bool) -> str:
        if uses_nvlink:
            return "NVL"
        one, other = self._by_name[source], self._by_name[target]
        if one.kind is DeviceKind.GPU and other.kind is DeviceKind.GPU and one.index is not None and self.matrix:
            order = [device.name for device in self.gpus]
            cell = self.matrix[order.index(source)][order.index(target)]
            return "PHB" if cell.startswith("NV") else cell
        return "PHB"

    def out_capacity(self, names: frozenset[str]) -> Bytes:
        """Summed bandwidth of the links that leave a set of devices (for cut bounds)."""
        return sum(link.bandwidth for link in self.links if link.source in names and link.target not in names)
