"""What a machine is made of: devices, directed links, capacities that links share, the host and NCCL's environment.

Plain values; :class:`pciesim.fabric.Fabric` seals them into a machine and gives these names too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pciesim.units import BytesPerSecond

__all__ = [
    "Assumption", "Concurrency", "Constraint", "Device", "DeviceKind", "Host", "Link", "LinkKind", "NcclEnvironment",
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
