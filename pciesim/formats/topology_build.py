"""From a plan to the sealed fabric: devices, directed links with their specified rates, shared constraints.

Wiring: GPU - [switch - ...] root port - root complex - socket, one root complex per socket (its quadrants and host
bridges cost no extra crossing), host memory on the socket per NUMA node, sockets joined all to all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pciesim.fabric import (
    Assumption,
    Constraint,
    Device,
    DeviceKind,
    Fabric,
    Host,
    Link,
    LinkKind,
    NcclEnvironment,
)
from pciesim.formats.catalogue import UNKNOWN_HOST, gpu_type, host_type, switch_type
from pciesim.formats.topology_infer import Plan, PlannedSwitch
from pciesim.formats.topology_overlay import LinkEntry, OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix, is_nvlink
from pciesim.hardware import GpuType, HostType, SwitchType, pcie_bandwidth
from pciesim.units import GB, MIB, BytesPerSecond, format_rate

__all__ = ["build_fabric"]

_DEFAULT_GENERATION = 4  # of a GPU nobody named: most boxes in the field
_DEFAULT_WIDTH = 16
_NVLINK: BytesPerSecond = 25 * GB  # per link and direction since NVLink 2, where the GPU model is not known
_MOST_NVLINKS = 18  # no GPU so far has more; a row that sums to more sees its peers through a switch
_SMALL_BAR1 = 256 * MIB


@dataclass(slots=True)
class _Wires:
    """Links as they are collected, both directions at once."""

    links: list[Link] = field(default_factory=list)

    def add(
        self,
        one: str,
        other: str,
        kind: LinkKind,
        bandwidth: BytesPerSecond,
        *,
        generation: int | None = None,
        width: int | None = None,
    ) -> None:
        for source, target in ((one, other), (other, one)):
            self.links.append(
                Link(source=source, target=target, kind=kind, bandwidth=bandwidth, generation=generation, width=width)
            )

    def pcie(self, one: str, other: str, link: tuple[int, int]) -> None:
        generation, width = link
        self.add(one, other, LinkKind.PCIE, pcie_bandwidth(generation, width), generation=generation, width=width)


@dataclass(slots=True)
class _Builder:
    """The pieces that the steps share; lives only inside :func:`build_fabric`."""

    matrix: TopologyMatrix
    overlay: OverlayDocument
    plan: Plan
    source: str
    default_gpu: GpuType | None
    types: list[GpuType | None]
    host: HostType
    switch_types: dict[str, SwitchType | None]
    wires: _Wires = field(default_factory=_Wires)
    devices: list[Device] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    assumed: list[Assumption] = field(default_factory=list)


def build_fabric(
    matrix: TopologyMatrix, overlay: OverlayDocument, plan: Plan, *, name: str, overlay_source: str = ""
) -> Fabric:
    """The fabric. Raises UnknownName for a GPU, CPU or switch model that the catalogue lacks."""
    box = _Builder(
        matrix=matrix,
        overlay=overlay,
        plan=plan,
        source=overlay_source,
        default_gpu=gpu_type(overlay.gpu, where=overlay_source) if overlay.gpu else None,
        types=[],
        host=host_type(overlay.host.cpu or UNKNOWN_HOST, where=overlay_source),
        switch_types={},
    )
    cache: dict[str, GpuType] = {}
    for gpu in range(len(matrix.gpus)):
        model = entry.model if (entry := overlay.gpus.get(gpu)) else None
        if model and model not in cache:
            cache[model] = gpu_type(model, where=overlay_source)
        box.types.append(cache[model] if model else box.default_gpu)
    for switch in plan.switches:
        box.switch_types[switch.name] = switch_type(switch.model, where=overlay_source) if switch.model else None
    _add_devices(box)
    _add_gpu_links(box)
    _add_switch_links(box)
    _add_nic_links(box)
    _add_host(box)
    _add_nvlinks(box)
    _add_quadrants(box)
    return _seal(box, name)


# -- devices ------------------------------------------------------------------------------------------------------


def _add_devices(box: _Builder) -> None:
    matrix, plan = box.matrix, box.plan
    labels = dict(matrix.nic_labels)
    for gpu, name in enumerate(matrix.gpus):
        kind = box.types[gpu]
        entry = box.overlay.gpus.get(gpu)
        box.devices.append(
            Device(
                name=name,
                kind=DeviceKind.GPU,
                index=gpu,
                numa=plan.gpu_numa[gpu],
                model=kind.key if kind else "",
                affinity=matrix.cpu_affinity[gpu],
                label=entry.label if entry else "",
            )
        )
    box.devices += [
        Device(name=name, kind=DeviceKind.NIC, index=nic, label=labels.get(name, ""))
        for nic, name in enumerate(matrix.nics)
    ]
    for switch in plan.switches:
        model = box.switch_types[switch.name]
        box.devices.append(
            Device(name=switch.name, kind=DeviceKind.SWITCH, model=model.key if model else "", chip=switch.chip)
        )


def _root_port(box: _Builder) -> str:
    number = sum(1 for device in box.devices if device.kind is DeviceKind.ROOT_PORT)
    name = f"root_port{number}"
    box.devices.append(Device(name=name, kind=DeviceKind.ROOT_PORT))
    return name


def _to_complex(box: _Builder, port: str, socket: int, bandwidth: BytesPerSecond) -> None:
    """Inside the I/O die a root port is as wide as its link: it is not counted twice."""
    box.wires.add(port, f"root_complex{socket}", LinkKind.ON_CHIP, bandwidth)


def _gpu_link(box: _Builder, gpu: int) -> tuple[int, int]:
    """(generation, width) of a GPU's slot: as stated for it, for all, or the most that GPU, switch and host can do."""
    kind = box.types[gpu]
    own: LinkEntry = box.overlay.gpus.get(gpu) or LinkEntry()
    switch = box.plan.gpu_switches[gpu]
    above = box.switch_types[switch] if switch else None
    limit = above.pcie_generation if above else box.host.pcie_generation
    most = min(kind.pcie_generation if kind else _DEFAULT_GENERATION, limit)
    generation = own.generation or box.overlay.link.generation or most
    return generation, own.width or box.overlay.link.width or (kind.pcie_width if kind else _DEFAULT_WIDTH)


def _add_gpu_links(box: _Builder) -> None:
    for gpu, name in enumerate(box.matrix.gpus):
        link = _gpu_link(box, gpu)
        parent = box.plan.gpu_switches[gpu]
        if parent is None:
            socket = box.plan.gpu_sockets[gpu]
            parent = _root_port(box)
            _to_complex(box, parent, socket, pcie_bandwidth(*link))
        box.wires.pcie(name, parent, link)
    _assume_links(box)


def _assume_links(box: _Builder) -> None:
    """Names what was not stated about the slots."""
    stated = box.overlay.link
    open_ended = [
        gpu
        for gpu in range(len(box.matrix.gpus))
        if not ((own := box.overlay.gpus.get(gpu)) and own.generation and own.width)
        and not (stated.generation and stated.width)
    ]
    if open_ended:
        generation, width = _gpu_link(box, open_ended[0])
        which = "every GPU" if len(open_ended) == len(box.matrix.gpus) else f"{len(open_ended)} GPUs"
        reason = "the most it can do" if box.types[open_ended[0]] else "the GPU model is not stated"
        box.assumed.append(
            Assumption(
                text=f"{which} on Gen{generation} x{width} ({format_rate(pcie_bandwidth(generation, width))} per "
                f"direction): {reason}",
                settle="lspci -vv: LnkSta of each GPU under load (idle links train down), or nvidia-smi -q -d PCIE",
                matters="bandwidth of every route through the slot; x8 or one generation less halves it",
            )
        )
    if not box.overlay.gpu and not all(box.types):
        box.assumed.append(
            Assumption(
                text="the GPU model is not stated",
                settle="nvidia-smi -L ; state gpu in the overlay",
                matters="kernel times, memory, NCCL's constants, the PCIe generation",
            )
        )


# -- switches, NICs, host -----------------------------------------------------------------------------------------


def _uplink(box: _Builder, switch: PlannedSwitch) -> tuple[int, int]:
    model = box.switch_types[switch.name]
    below = [_gpu_link(box, gpu)[0] for gpu in switch.gpus]
    most = model.pcie_generation if model else max(below, default=box.overlay.link.generation or 0)
    if not most:
        inner = [each for each in box.plan.switches if each.behind == switch.name]
        most = max((_uplink(box, each)[0] for each in inner), default=_DEFAULT_GENERATION)
    generation = switch.uplink.generation or min(most, box.host.pcie_generation)
    return generation, switch.uplink.width or _DEFAULT_WIDTH


def _add_switch_links(box: _Builder) -> None:
    for switch in box.plan.switches:
        link = _uplink(box, switch)
        parent = switch.behind
        if parent is None:
            parent = _root_port(box)
            _to_complex(box, parent, switch.socket, pcie_bandwidth(*link))
        box.wires.pcie(switch.name, parent, link)
    parts: dict[str, list[PlannedSwitch]] = {}
    for switch in box.plan.switches:
        if switch.chip:
            parts.setdefault(switch.chip, []).append(switch)
    for members in parts.values():
        for position, one in enumerate(members):
            for other in members[position + 1 :]:
                box.wires.add(one.name, other.name, LinkKind.ON_CHIP, _chip_bandwidth(box, one))


def _chip_bandwidth(box: _Builder, switch: PlannedSwitch) -> BytesPerSecond:
    """Between two partitions of a chip: all of its lanes, or those of the partition's GPUs where the chip is unknown."""
    model = box.switch_types[switch.name]
    if model is not None:
        return pcie_bandwidth(model.pcie_generation, model.lanes)
    return sum(pcie_bandwidth(*_gpu_link(box, gpu)) for gpu in switch.gpus) or pcie_bandwidth(*_uplink(box, switch))


def _add_nic_links(box: _Builder) -> None:
    def link(nic: int) -> tuple[int, int]:
        own: LinkEntry = box.overlay.nics.get(nic) or LinkEntry()
        return own.generation or _DEFAULT_GENERATION, own.width or _DEFAULT_WIDTH

    for nic, name in enumerate(box.matrix.nics):
        switch = box.plan.nic_switches[nic]
        if switch is not None:
            box.wires.pcie(name, switch, link(nic))
    for members in box.plan.nic_ports:
        socket = box.plan.nic_sockets[members[0]]
        port = _root_port(box)
        _to_complex(box, port, socket, max(pcie_bandwidth(*link(nic)) for nic in members))
        for nic in members:
            box.wires.pcie(box.matrix.nics[nic], port, link(nic))
    if any(nic not in box.overlay.nics for nic in range(len(box.matrix.nics))):
        box.assumed.append(
            Assumption(
                text=f"NICs on Gen{_DEFAULT_GENERATION} x{_DEFAULT_WIDTH}; those that are PIX or PXB to each other are "
                "functions of one card",
                settle="lspci -vv: LnkSta of each NIC; state nics in the overlay",
                matters="only traffic of the NICs themselves",
            )
        )


def _add_host(box: _Builder) -> None:
    plan, host, stated = box.plan, box.host, box.overlay.host
    nodes = dict(plan.numa)
    missing = [socket for socket in range(plan.sockets) if socket not in nodes.values()]
    number = 0
    for socket in missing:
        while number in nodes:
            number += 1
        nodes[number] = socket
    by_socket = {
        socket: [node for node, own in sorted(nodes.items()) if own == socket] for socket in range(plan.sockets)
    }
    for socket in range(plan.sockets):
        box.devices += [
            Device(name=f"root_complex{socket}", kind=DeviceKind.ROOT_COMPLEX, model=host.key),
            Device(name=f"socket{socket}", kind=DeviceKind.SOCKET, model=host.key),
        ]
        per_node = stated.memory_bandwidth or host.memory_bandwidth / len(by_socket[socket])
        box.wires.add(f"root_complex{socket}", f"socket{socket}", LinkKind.ON_CHIP, per_node * len(by_socket[socket]))
        for node in by_socket[socket]:
            memory = f"memory{node}"
            box.devices.append(Device(name=memory, kind=DeviceKind.MEMORY, numa=node))
            box.wires.add(f"socket{socket}", memory, LinkKind.DRAM, per_node)
            box.constraints.append(
                Constraint(
                    name=f"dram{node}",
                    capacity=per_node,
                    links=((f"socket{socket}", memory), (memory, f"socket{socket}")),
                )
            )
    links = stated.socket_link.links or host.socket_links or 1
    each = stated.socket_link.bandwidth or host.socket_link_bandwidth or host_type(UNKNOWN_HOST).socket_link_bandwidth
    for one in range(plan.sockets):
        for other in range(one + 1, plan.sockets):
            box.wires.add(f"socket{one}", f"socket{other}", LinkKind.SOCKET, links * each, width=links)
    _assume_host(box, links, each)


def _assume_host(box: _Builder, links: int, each: BytesPerSecond) -> None:
    stated = box.overlay.host
    if not stated.cpu:
        box.assumed.append(
            Assumption(
                text="the CPU is not stated: vendor, memory and socket link are those of a common server",
                settle="lscpu ; state host.cpu in the overlay",
                matters="host memory and socket rates, NCCL's default P2P level and its constant between sockets",
            )
        )
    elif box.plan.sockets > 1 and not stated.socket_link.links:
        box.assumed.append(
            Assumption(
                text=f"{links} links between the sockets, {format_rate(each)} each per direction: the most the CPU has",
                settle="the board's manual (boards with 160 PCIe lanes wire three); state host.socket_link",
                matters="the rate of many flows at once between the sockets",
            )
        )
    if not stated.acs_redirect and any(len(switch.gpus) > 1 for switch in box.plan.switches):
        box.assumed.append(
            Assumption(
                text="ACS redirect is off in the switches, so peers of one switch talk inside it",
                settle="lspci -vvv | grep ACSCtl (ReqRedir-); state host.acs_redirect",
                matters="with it on, peer traffic of a switch shares its uplink: half the bandwidth, a root complex more",
            )
        )


# -- NVLink and shared limits -------------------------------------------------------------------------------------


def _add_nvlinks(box: _Builder) -> None:
    """Direct links for every NVLink pair; a row that sums to more links than a GPU has sees a switch, whose ports all
    of the row's traffic shares."""
    gpus = range(len(box.matrix.gpus))
    count: dict[tuple[int, int], int] = {}
    for one in gpus:
        for other in gpus:
            cells = (box.matrix.cells[one][other], box.matrix.cells[other][one])
            if one != other and all(is_nvlink(cell) for cell in cells):
                count[one, other] = min(int(cell[2:]) for cell in cells) or 1
    for (one, other), links in count.items():
        kind = box.types[one]
        rate = kind.nvlink_bandwidth if kind and kind.nvlink else _NVLINK
        if one < other:
            box.wires.add(box.matrix.gpus[one], box.matrix.gpus[other], LinkKind.NVLINK, links * rate, width=links)
    switched = [one for one in gpus if sum(n for (a, _), n in count.items() if a == one) > _MOST_NVLINKS]
    for one in switched:
        peers = [other for (a, other) in count if a == one]
        kind = box.types[one]
        rate = kind.nvlink_bandwidth if kind and kind.nvlink else _NVLINK
        capacity = max(count[one, other] for other in peers) * rate
        name = box.matrix.gpus[one]
        for word, pairs in (
            ("out", [(name, box.matrix.gpus[other]) for other in peers]),
            ("in", [(box.matrix.gpus[other], name) for other in peers]),
        ):
            box.constraints.append(Constraint(name=f"nvlink_{word}_{name}", capacity=capacity, links=tuple(pairs)))
    if switched:
        one = switched[0]
        box.assumed.append(
            Assumption(
                text=f"{box.matrix.gpus[one]} shows more NVLinks than a GPU has: an NVSwitch, one set of links per GPU "
                "shared by all its peers",
                settle="nvidia-smi nvlink -s",
                matters="several peers at once share one GPU's NVLink rate",
            )
        )


def _add_quadrants(box: _Builder) -> None:
    """A quadrant's limit spans its root ports, one constraint per direction."""
    ports = {device.name for device in box.devices if device.kind is DeviceKind.ROOT_PORT}
    neighbours: dict[str, list[str]] = {}
    for link in box.wires.links:
        neighbours.setdefault(link.source, []).append(link.target)
    behind = {switch.name: switch.behind for switch in box.plan.switches}

    def port_of(name: str | None) -> str:
        while name in behind and behind[name] is not None:
            name = behind[name]
        return next(port for port in neighbours[name or ""] if port in ports)

    for quadrant in box.overlay.quadrants:
        members = [box.plan.gpu_switches[gpu] or box.matrix.gpus[gpu] for gpu in quadrant.gpus]
        found = sorted({port_of(member) for member in (*members, *quadrant.switches)})
        up = tuple((port, target) for port in found for target in neighbours[port] if target.startswith("root_complex"))
        down = tuple((target, source) for source, target in up)
        for word, links in (("up", up), ("down", down)):
            box.constraints.append(Constraint(name=f"{quadrant.name}_{word}", capacity=quadrant.bandwidth, links=links))


# -- sealing ------------------------------------------------------------------------------------------------------


def _seal(box: _Builder, name: str) -> Fabric:
    matrix, overlay = box.matrix, box.overlay
    n = len(matrix.gpus)
    access = _peer_access(box)
    p2p = overlay.nccl.p2p and (not access or any(any(row) for row in access))
    models = [kind.key for kind in box.types if kind]
    return Fabric(
        name=overlay.name or name,
        devices=tuple(box.devices),
        links=tuple(box.wires.links),
        constraints=tuple(box.constraints),
        matrix=tuple(row[:n] for row in matrix.cells[:n]),
        nic_matrix=matrix.cells[n:],
        gpu_model=max(models, key=models.count) if models else "",
        host=Host(
            cpu="" if box.host.key == UNKNOWN_HOST else box.host.key,
            vendor=box.host.vendor,
            iommu=overlay.host.iommu,
            nccl_socket_bandwidth=box.host.nccl_socket_bandwidth,
            memory_bandwidth=overlay.host.memory_bandwidth or box.host.memory_bandwidth,
        ),
        nccl=NcclEnvironment(
            version=overlay.nccl.version,
            p2p=p2p,
            p2p_level=overlay.nccl.p2p_level,
            graph_file=overlay.nccl.graph_file,
            algorithm=overlay.nccl.algorithm,
            protocol=overlay.nccl.protocol,
            channels=overlay.nccl.channels,
        ),
        write_collapse=overlay.write_collapse,
        acs_redirect=overlay.host.acs_redirect,
        peer_access=access,
        assumptions=(*box.plan.assumptions, *box.assumed),
    )


def _peer_access(box: _Builder) -> tuple[tuple[bool, ...], ...]:
    """Which pairs may peer; empty where nothing forbids it."""
    p2p = box.overlay.p2p
    gpus = range(len(box.matrix.gpus))
    stock = [kind is not None and not kind.pcie_p2p for kind in box.types]
    small = p2p.bar1 is not None and p2p.bar1 <= _SMALL_BAR1
    refused = p2p.driver is False or small

    def allowed(one: int, other: int) -> bool:
        if is_nvlink(box.matrix.cells[one][other]):
            return p2p.driver is not False
        if refused or (p2p.driver is None and (stock[one] or stock[other])):
            return False
        if p2p.registry_override is False:
            return box.plan.gpu_switches[one] is not None and box.plan.gpu_switches[one] == box.plan.gpu_switches[other]
        return True

    if len(gpus) > 1 and p2p.driver is None:
        names = sorted({kind.name for kind in box.types if kind and not kind.pcie_p2p})
        box.assumed.append(
            Assumption(
                text=f"the stock driver refuses peer-to-peer over PCIe on {', '.join(names)}: NCCL goes through host memory"
                if names
                else "the driver grants peer-to-peer over PCIe between all GPUs",
                settle="nvidia-smi topo -p2p r ; state p2p.driver in the overlay",
                matters="every byte crosses host memory without it (about twice the latency of a call)",
            )
        )
    table = tuple(tuple(one != other and allowed(one, other) for other in gpus) for one in gpus)
    everything = all(table[one][other] for one in gpus for other in gpus if one != other)
    return () if everything else table
