"""The machine: devices, directed links, constraints that span several links, and routes between devices.

A :class:`Fabric` is structure only. It says what is wired to what and how fast each wire is by specification; what a
traversal costs in time, and which share of a wire each transfer engine reaches, is calibrated and lives in the profile
(see :mod:`pciesim.physics`). It is frozen and hashable, so that it can be part of a memo key.

Devices of a PCIe box and how they are wired::

    GPU ── root port ── root complex ── socket ══ socket ── root complex ── root port ── GPU      (direct attach)
    GPU ── switch ──┐                   │    │
    GPU ── switch ──┴─ root port ── ... ┘    └── host memory (one per NUMA node)

A socket may have several root complexes (host bridges). Every wire is two :class:`Link` s, one per direction: PCIe is
full duplex.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pciesim.errors import InputError
from pciesim.routes import Route, Wires, find_path, hops_from, route_along
from pciesim.wiring import (
    Assumption,
    Concurrency,
    Constraint,
    Device,
    DeviceKind,
    Host,
    Link,
    LinkKind,
    NcclEnvironment,
)

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "Assumption", "Concurrency", "Constraint", "Device", "DeviceKind", "Fabric", "Host", "Link", "LinkKind",
    "NcclEnvironment", "Route",
]  # fmt: skip


# Words of older drivers and of DCGM for what today's nvidia-smi calls otherwise.
_OLD_WORDS: Final = {"SOC": "SYS", "PSB": "PIX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A sealed machine: building one checks it.

    ``matrix`` is the connection type of every GPU pair as nvidia-smi prints it (``X`` on the diagonal), ``nic_matrix``
    the rows of the NICs (GPUs first, then NICs). ``gpu_model`` is the type of most GPUs. ``write_collapse`` is the
    number of GPUs of one switch that, writing to two or more root ports at once, make this box's posted writes
    collapse (None: not known to happen). ``acs_redirect`` says that switches send peer traffic up to the root complex
    and back. ``peer_access`` tells for every ordered GPU pair whether the driver grants peer-to-peer (empty: all do).
    ``profile`` names the calibration of this very box (a shipped one or a file), empty where nobody has measured it.
    ``registry_override`` False: the driver lacks its ForceP2P option, so that loads from peers across a root complex
    are slow (:data:`pciesim.physics.UNFORCED_LOADS`).
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    constraints: tuple[Constraint, ...] = ()
    matrix: tuple[tuple[str, ...], ...] = ()
    nic_matrix: tuple[tuple[str, ...], ...] = ()
    gpu_model: str = ""
    profile: str = ""
    host: Host = Host()  # noqa: RUF009  (frozen)
    nccl: NcclEnvironment = NcclEnvironment()  # noqa: RUF009  (frozen)
    write_collapse: int | None = None
    concurrency: Concurrency = Concurrency()  # noqa: RUF009  (frozen)
    acs_redirect: bool = False
    peer_access: tuple[tuple[bool, ...], ...] = ()
    registry_override: bool = True
    assumptions: tuple[Assumption, ...] = ()
    _wires: Wires = field(init=False, compare=False, repr=False)
    _memo: dict[Any, Any] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        wires = Wires.of(self.devices, self.links, machine=self.name)
        for constraint in self.constraints:
            for pair in constraint.links:
                if pair not in wires.index:
                    raise InputError(f"fabric '{self.name}': constraint '{constraint.name}' names no link {pair}")
        object.__setattr__(self, "_wires", wires)

    def __hash__(self) -> int:
        # A fabric is part of every memo key, and hashing a few hundred links takes 0.1 ms: once is enough.
        if "hash" not in self._memo:
            self._memo["hash"] = hash((self.name, self.devices, self.links, self.constraints, self.matrix, self.nccl))
        return int(self._memo["hash"])

    # -- devices ------------------------------------------------------------------------------------------------

    def device(self, name: str) -> Device:
        """The device of that name. Raises KeyError."""
        return self._wires.devices[name]

    @property
    def graph(self) -> nx.DiGraph:
        """The wiring as a frozen networkx graph (edge attribute ``position``: index into ``links``)."""
        if "graph" not in self._memo:
            import networkx as nx  # noqa: PLC0415  (0.1 s; routes do not need it)

            graph = nx.DiGraph()
            graph.add_nodes_from(self._wires.devices)
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
            for target, _ in self._wires.neighbours[gpu.name]:
                if self._wires.devices[target].kind is DeviceKind.SWITCH:
                    found.setdefault(target, []).append(gpu.index or 0)
        return tuple(sorted(tuple(sorted(members)) for members in found.values() if len(members) > 1))

    def memory_of(self, device: str) -> Device:
        """The host memory nearest to a device: fewest hops, then its own NUMA node, then by name."""
        key = ("memory", device)
        if key not in self._memo:
            hops = hops_from(self._wires, device)
            own = self._wires.devices[device].numa
            near = [
                (hops[memory.name], memory.numa != own, memory.name)
                for memory in self.devices
                if memory.kind is DeviceKind.MEMORY and memory.name in hops
            ]
            if not near:
                raise InputError(f"fabric '{self.name}' has no host memory that {device} can reach")
            self._memo[key] = self._wires.devices[min(near)[2]]
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
        return self.links[self._wires.index[source, target]]

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
        unknown = next((name for name in (source, target) if name not in self._wires.devices), None)
        if unknown is not None:
            raise InputError(f"fabric '{self.name}' has no device '{unknown}'")
        try:
            path = find_path(self._wires, source, target, nvlink=nvlink, acs_redirect=self.acs_redirect)
        except InputError as error:
            raise InputError(f"fabric '{self.name}': {error}") from None
        return route_along(self._wires, path, self.constraints, self._printed_type(source, target))

    def _printed_type(self, source: str, target: str) -> str:
        """The PCIe word of the matrix for a GPU pair, empty where it has none."""
        order = [device.name for device in self.gpus]
        if not self.matrix or source not in order or target not in order:
            return ""
        cell = self.matrix[order.index(source)][order.index(target)]
        return "" if cell.startswith("NV") else _OLD_WORDS.get(cell, cell)
