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

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pciesim.errors import InputError
from pciesim.units import BytesPerSecond

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "Assumption", "Concurrency", "Constraint", "Device", "DeviceKind", "Fabric", "Host", "Link", "LinkKind",
    "NcclEnvironment", "Route",
]  # fmt: skip


# Words of older drivers and of DCGM for what today's nvidia-smi calls otherwise.
_OLD_WORDS: Final = {"SOC": "SYS", "PSB": "PIX"}


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
    ``model`` names a GPU type, a switch chip or a CPU of the catalogue, empty where it is not known. ``affinity`` is
    the CPU list of a GPU as nvidia-smi prints it, ``label`` what its owner calls the device (``mlx5_0``, a PCI
    address, a slot), ``chip`` the chip that a switch is a partition of.
    """

    name: str
    kind: DeviceKind
    index: int | None = None
    numa: int | None = None
    model: str = ""
    affinity: str = ""
    label: str = ""
    chip: str = ""


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
    """A capacity that several links share: an I/O-die quadrant, DRAM, a GPU's NVLinks into a switch.

    ``links`` are (source, target) pairs.
    """

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
    that refuses it. ``channels`` is NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS at once. ``graph_file`` says that an
    NCCL_GRAPH_FILE gives rings that NCCL's own search did not find.
    """

    version: str = ""
    p2p: bool = True
    p2p_level: str | None = None
    graph_file: bool = False
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    min_channels: int | None = None
    max_channels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The CPU side. ``cpu`` is a key of the host catalogue; ``vendor`` is ``amd``, ``intel`` or ``arm``.

    ``nccl_socket_bandwidth`` is the rate NCCL's own table gives the socket link (0: not known; then the link's).
    """

    cpu: str = ""
    vendor: str = ""
    iommu: bool = False
    nccl_socket_bandwidth: BytesPerSecond = 0.0
    memory_bandwidth: BytesPerSecond = 0.0  # per NUMA node, read plus write


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """What transfers reach on this box, measured or fitted on it; None where nothing is known (see `contention`).

    ``copy_share`` and ``host_read_share`` are the shares of the line rate that copies to a peer and copies out of host
    memory fill. ``socket_peer`` is what all peer traffic reaches from one socket to another, ``socket_peer_both`` in
    both directions together, ``port_socket_peer`` what each root port sends towards another socket. ``host_dma`` is
    what all GPUs reach at one NUMA node's memory, reads and writes together. ``collapsed`` is what is left of a
    switch's uplink when posted writes collapse.
    """

    copy_share: float | None = None
    host_read_share: float | None = None
    socket_peer: BytesPerSecond | None = None
    socket_peer_both: BytesPerSecond | None = None
    port_socket_peer: BytesPerSecond | None = None
    host_dma: BytesPerSecond | None = None
    collapsed: BytesPerSecond | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of a message. ``links`` and ``constraints`` are indices into the fabric's tuples.

    The counters say what the route crosses on its way; partitions of one chip count as one switch. ``path_type`` is
    NCCL's and nvidia-smi's word for it (``NV#`` appears as ``NVL``, the old ``SOC`` as ``SYS``).
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
    """A sealed machine: building one checks it.

    ``matrix`` is the connection type of every GPU pair as nvidia-smi prints it (``X`` on the diagonal), ``nic_matrix``
    the rows of the NICs (GPUs first, then NICs). ``gpu_model`` is the type of most GPUs. ``write_collapse`` is the
    number of GPUs of one switch that, writing to two or more root ports at once, make this box's posted writes
    collapse (None: not known to happen). ``acs_redirect`` says that switches send peer traffic up to the root complex
    and back. ``peer_access`` tells for every ordered GPU pair whether the driver grants peer-to-peer (empty: all do).
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    constraints: tuple[Constraint, ...] = ()
    matrix: tuple[tuple[str, ...], ...] = ()
    nic_matrix: tuple[tuple[str, ...], ...] = ()
    gpu_model: str = ""
    host: Host = Host()
    nccl: NcclEnvironment = NcclEnvironment()
    write_collapse: int | None = None
    concurrency: Concurrency = Concurrency()
    acs_redirect: bool = False
    peer_access: tuple[tuple[bool, ...], ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    _by_name: Mapping[str, Device] = field(init=False, compare=False, repr=False, default_factory=dict)
    _link_index: Mapping[tuple[str, str], int] = field(init=False, compare=False, repr=False, default_factory=dict)
    _neighbours: Mapping[str, tuple[tuple[str, int], ...]] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )
    _memo: dict[Any, Any] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        by_name = {device.name: device for device in self.devices}
        if len(by_name) != len(self.devices):
            raise InputError(f"fabric '{self.name}' has two devices of one name")
        neighbours: dict[str, list[tuple[str, int]]] = {name: [] for name in by_name}
        index: dict[tuple[str, str], int] = {}
        for position, link in enumerate(self.links):
            if link.source not in by_name or link.target not in by_name:
                raise InputError(f"fabric '{self.name}': link {link.source} -> {link.target} ends at an unknown device")
            if not link.bandwidth > 0:
                raise InputError(f"fabric '{self.name}': link {link.source} -> {link.target} has no bandwidth")
            if (link.source, link.target) in index:
                raise InputError(f"fabric '{self.name}' has two links {link.source} -> {link.target}")
            index[link.source, link.target] = position
            neighbours[link.source].append((link.target, position))
        for constraint in self.constraints:
            for pair in constraint.links:
                if pair not in index:
                    raise InputError(f"fabric '{self.name}': constraint '{constraint.name}' names no link {pair}")
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_link_index", index)
        object.__setattr__(self, "_neighbours", {name: tuple(sorted(found)) for name, found in neighbours.items()})

    def __hash__(self) -> int:
        # A fabric is part of every memo key, and hashing a few hundred links takes 0.1 ms: once is enough.
        if "hash" not in self._memo:
            self._memo["hash"] = hash((self.name, self.devices, self.links, self.constraints, self.matrix, self.nccl))
        return int(self._memo["hash"])

    # -- devices ------------------------------------------------------------------------------------------------

    def device(self, name: str) -> Device:
        """The device of that name. Raises KeyError."""
        return self._by_name[name]

    @property
    def graph(self) -> nx.DiGraph:
        """The wiring as a frozen networkx graph (edge attribute ``position``: index into ``links``)."""
        if "graph" not in self._memo:
            import networkx as nx  # noqa: PLC0415  (0.1 s; routes do not need it)

            graph = nx.DiGraph()
            graph.add_nodes_from(self._by_name)
            graph.add_edges_from(
                (link.source, link.target, {"position": position}) for position, link in enumerate(self.links)
            )
            self._memo["graph"] = nx.freeze(graph)
        return self._memo["graph"]

    def of_kind(self, kind: DeviceKind) -> tuple[Device, ...]:
        """Devices of one kind, by number and then as listed."""
        found = [device for device in self.devices if device.kind is kind]
        return tuple(sorted(found, key=lambda device: device.index or 0))

    @property
    def gpus(self) -> tuple[Device, ...]:
        """GPUs by number."""
        return self.of_kind(DeviceKind.GPU)

    @property
    def nics(self) -> tuple[Device, ...]:
        """NICs by number."""
        return self.of_kind(DeviceKind.NIC)

    @property
    def islands(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the GPUs behind each switch that has at least two, in order of their lowest."""
        found: dict[str, list[int]] = {}
        for gpu in self.gpus:
            for target, _ in self._neighbours[gpu.name]:
                if self._by_name[target].kind is DeviceKind.SWITCH:
                    found.setdefault(target, []).append(gpu.index or 0)
        return tuple(sorted(tuple(sorted(members)) for members in found.values() if len(members) > 1))

    def memory_of(self, device: str) -> Device:
        """The host memory nearest to a device: fewest hops, then its own NUMA node, then by name."""
        key = ("memory", device)
        if key not in self._memo:
            hops = self._hops_from(device, lambda _: True)
            own = self._by_name[device].numa
            near = [
                (hops[memory.name], memory.numa != own, memory.name)
                for memory in self.devices
                if memory.kind is DeviceKind.MEMORY and memory.name in hops
            ]
            if not near:
                raise InputError(f"fabric '{self.name}' has no host memory that {device} can reach")
            self._memo[key] = self._by_name[min(near)[2]]
        found: Device = self._memo[key]
        return found

    def can_peer(self, source: str, target: str) -> bool:
        """Whether the driver lets one GPU access the other's memory (True where nothing is known)."""
        if not self.peer_access:
            return True
        order = [gpu.name for gpu in self.gpus]
        return self.peer_access[order.index(source)][order.index(target)]

    # -- routes -------------------------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """The link from one device to its neighbour. Raises KeyError."""
        return self.links[self._link_index[source, target]]

    def route(self, source: str, target: str, *, nvlink: bool = True) -> Route:
        """The route between two devices: over NVLink where there is one (and it may be used), else the shortest.

        Never through a third GPU or a NIC. Raises InputError where there is none.
        """
        key = ("route", source, target, nvlink)
        if key not in self._memo:
            self._memo[key] = self._find_route(source, target, nvlink)
        found: Route = self._memo[key]
        return found

    def _find_route(self, source: str, target: str, nvlink: bool) -> Route:
        path = self._shortest(source, target, nvlink)
        if self.acs_redirect and self._turns_in_switch(path):
            top = min(self._complexes(source, nvlink), key=len)
            path = top + self._shortest(top[-1], target, nvlink)[1:]
        positions = tuple(self._link_index[pair] for pair in pairwise(path))
        crossed = {(self.links[position].source, self.links[position].target) for position in positions}
        kinds = [self._by_name[name].kind for name in path]
        links = [self.links[position] for position in positions]
        uses_nvlink = any(link.kind is LinkKind.NVLINK for link in links)
        inside = sum(
            1
            for link in links
            if link.kind is LinkKind.ON_CHIP
            and self._by_name[link.source].kind is DeviceKind.SWITCH
            and self._by_name[link.target].kind is DeviceKind.SWITCH
        )
        switches = kinds.count(DeviceKind.SWITCH) - inside
        root_complexes = kinds.count(DeviceKind.ROOT_COMPLEX)
        socket_hops = sum(1 for link in links if link.kind is LinkKind.SOCKET)
        path_type = self._printed_type(source, target)
        if uses_nvlink:
            path_type = "NVL"
        elif not path_type:  # NVLink hides the PCIe path in the matrix: the word is taken from the wiring
            through_host = "SYS" if socket_hops else "PHB"
            path_type = through_host if root_complexes else "PXB" if switches > 1 else "PIX"
        return Route(
            source=source,
            target=target,
            links=positions,
            constraints=self._limits_of(crossed),
            switches=switches,
            root_complexes=root_complexes,
            socket_hops=socket_hops,
            nvlink=uses_nvlink,
            path_type=path_type,
        )

    def _limits_of(self, crossed: set[tuple[str, str]]) -> tuple[int, ...]:
        """Constraints on a route. One that enters and leaves the same root ports' quadrant turns inside it: eight GPUs
        behind two switches of one quadrant exchange as much as behind two quadrants (179 GB/s), but reach host memory
        at 73 instead of 114 GB/s (rtx6kpro hardware/, WRX90)."""
        found = [position for position, limit in enumerate(self.constraints) if not crossed.isdisjoint(limit.links)]
        ways = {frozenset(self.constraints[position].links) for position in found}

        def turns(position: int) -> bool:
            way = frozenset(self.constraints[position].links)
            back = frozenset((target, source) for source, target in way)
            return back != way and back in ways

        return tuple(position for position in found if not turns(position))

    def _printed_type(self, source: str, target: str) -> str:
        """The PCIe word of the matrix for a GPU pair, empty where it has none."""
        order = [device.name for device in self.gpus]
        if not self.matrix or source not in order or target not in order:
            return ""
        cell = self.matrix[order.index(source)][order.index(target)]
        return "" if cell.startswith("NV") else _OLD_WORDS.get(cell, cell)

    def _hops_from(self, source: str, usable: Callable[[str], bool]) -> dict[str, int]:
        """Hops from a device to every one it reaches, passing only through usable devices."""
        hops = {source: 0}
        waiting = deque((source,))
        while waiting:
            here = waiting.popleft()
            for there, _ in self._neighbours[here]:
                if there not in hops and usable(there):
                    hops[there] = hops[here] + 1
                    waiting.append(there)
        return hops

    def _shortest(self, source: str, target: str, nvlink: bool) -> list[str]:
        """Names along the route with fewest hops, the first by name among equals."""
        if source not in self._by_name or target not in self._by_name:
            raise InputError(f"fabric '{self.name}' has no device '{target if source in self._by_name else source}'")

        def passable(name: str) -> bool:
            kind = self._by_name[name].kind
            return name in (source, target) or kind not in (DeviceKind.GPU, DeviceKind.NIC, DeviceKind.MEMORY)

        # Every wire is two links, so hops to the target are hops from it.
        if nvlink and (source, target) in self._link_index:
            return [source, target]
        hops = {target: 0}
        waiting = deque((target,))
        while waiting and source not in hops:
            here = waiting.popleft()
            for there, position in self._neighbours[here]:
                if there not in hops and passable(there) and self.links[position].kind is not LinkKind.NVLINK:
                    hops[there] = hops[here] + 1
                    waiting.append(there)
        if source not in hops:
            raise InputError(f"fabric '{self.name}': nothing connects {source} to {target}")
        path = [source]
        while path[-1] != target:
            here = path[-1]
            path.append(
                next(
                    there
                    for there, position in self._neighbours[here]
                    if hops.get(there) == hops[here] - 1 and self.links[position].kind is not LinkKind.NVLINK
                )
            )
        return path

    def _turns_in_switch(self, path: list[str]) -> bool:
        kinds = {self._by_name[name].kind for name in path}
        return DeviceKind.SWITCH in kinds and not kinds & {DeviceKind.ROOT_COMPLEX, DeviceKind.SOCKET}

    def _complexes(self, source: str, nvlink: bool) -> list[list[str]]:
        """Routes from a device to each root complex."""
        return [
            self._shortest(source, device.name, nvlink)
            for device in self.devices
            if device.kind is DeviceKind.ROOT_COMPLEX
        ]

    def out_capacity(self, names: frozenset[str]) -> BytesPerSecond:
        """Summed bandwidth of the links that leave a set of devices (for cut bounds)."""
        return sum(link.bandwidth for link in self.links if link.source in names and link.target not in names)
