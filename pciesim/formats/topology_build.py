"""From a resolved box to the sealed fabric: devices, directed links at their specified rates, shared constraints.

Wiring: GPU - [switch - ...] root port - root complex - socket. There is one root complex per socket, because crossing
between its quadrants or host bridges costs no more than crossing it at all. Host memory hangs on the socket, one device
per NUMA node, and sockets are joined all to all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from pciesim.fabric import Concurrency, Constraint, Device, DeviceKind, Fabric, Host, Link, LinkKind, NcclEnvironment
from pciesim.formats.catalogue import UNKNOWN_HOST, host_type
from pciesim.formats.topology_assume import assume
from pciesim.formats.topology_box import Box, PcieLink
from pciesim.formats.topology_infer import PlannedSwitch
from pciesim.hardware import pcie_bandwidth
from pciesim.units import BytesPerSecond

__all__ = ["build_fabric"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Pieces of a fabric."""

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    constraints: tuple[Constraint, ...] = ()


def build_fabric(box: Box, *, name: str) -> Fabric:
    """The fabric of a box, with what was assumed about it."""
    ports = _root_ports(box)
    parts = [
        _gpus(box, ports),
        _nics(box, ports),
        _switches(box, ports),
        _Parts(devices=tuple(Device(name=port, kind=DeviceKind.ROOT_PORT) for port in ports.values())),
        _host(box),
        _nvlinks(box),
        _quadrants(box, ports),
    ]
    overlay, n = box.overlay, len(box.matrix.gpus)
    access = _peer_access(box)
    models = [kind.key for kind in box.gpus if kind is not None]
    return Fabric(
        name=overlay.name or name,
        devices=tuple(device for part in parts for device in part.devices),
        links=tuple(link for part in parts for link in part.links),
        constraints=tuple(constraint for part in parts for constraint in part.constraints),
        matrix=tuple(row[:n] for row in box.matrix.cells[:n]),
        nic_matrix=box.matrix.cells[n:],
        gpu_model=max(models, key=models.count) if models else "",
        host=Host(
            cpu="" if box.host.key == UNKNOWN_HOST else box.host.key,
            vendor=box.host.vendor,
            iommu=overlay.host.iommu,
            nccl_socket_bandwidth=box.host.nccl_socket_bandwidth,
            memory_bandwidth=_memory_bandwidth(box),
        ),
        nccl=NcclEnvironment(
            version=overlay.nccl.version,
            p2p=overlay.nccl.p2p and (n < 2 or not access or any(any(row) for row in access)),
            p2p_level=overlay.nccl.p2p_level,
            graph_file=overlay.nccl.graph_file,
            algorithm=overlay.nccl.algorithm,
            protocol=overlay.nccl.protocol,
            channels=overlay.nccl.channels,
        ),
        write_collapse=overlay.write_collapse,
        concurrency=Concurrency(**dict(overlay.concurrency)),
        acs_redirect=bool(overlay.host.acs_redirect),
        peer_access=access,
        assumptions=assume(box),
    )


def _wire(
    one: str, other: str, kind: LinkKind, bandwidth: BytesPerSecond, *, pcie: PcieLink | None = None, width: int = 0
) -> tuple[Link, Link]:
    """Both directions of a wire."""
    generation, lanes = pcie or (None, width or None)
    forth = Link(source=one, target=other, kind=kind, bandwidth=bandwidth, generation=generation, width=lanes)
    back = Link(source=other, target=one, kind=kind, bandwidth=bandwidth, generation=generation, width=lanes)
    return forth, back


def _slot(one: str, other: str, link: PcieLink) -> tuple[Link, Link]:
    return _wire(one, other, LinkKind.PCIE, pcie_bandwidth(*link), pcie=link)


def _to_complex(port: str, socket: int, bandwidth: BytesPerSecond) -> tuple[Link, Link]:
    """A root port into its I/O die: as wide as the slot's link, so that the slot is what limits."""
    return _wire(port, f"root_complex{socket}", LinkKind.ON_CHIP, bandwidth)


def _root_ports(box: Box) -> dict[str, str]:
    """Name of the root port of everything that hangs on one: GPUs and top switches by socket and lowest GPU, then
    groups of NICs (named by their first)."""
    plan = box.plan
    above = {switch.name: switch.behind for switch in plan.switches}

    def top(name: str) -> str:
        behind = above[name]
        return name if behind is None else top(behind)

    tenants = [
        (plan.gpu_sockets[gpu], gpu, top(holder) if holder is not None else box.matrix.gpus[gpu])
        for gpu, holder in enumerate(plan.gpu_switches)
    ]
    names = [name for _, _, name in sorted(tenants)]
    names += [switch.name for switch in plan.switches if switch.behind is None]
    names += [box.matrix.nics[members[0]] for members in plan.nic_ports]
    return {name: f"root_port{number}" for number, name in enumerate(dict.fromkeys(names))}


def _gpus(box: Box, ports: dict[str, str]) -> _Parts:
    matrix, plan = box.matrix, box.plan
    devices: list[Device] = []
    links: list[Link] = []
    for gpu, name in enumerate(matrix.gpus):
        kind, entry, holder = box.gpus[gpu], box.overlay.gpus.get(gpu), plan.gpu_switches[gpu]
        devices.append(
            Device(
                name=name,
                kind=DeviceKind.GPU,
                index=gpu,
                numa=plan.gpu_numa[gpu],
                model=kind.key if kind is not None else "",
                affinity=matrix.cpu_affinity[gpu],
                label=entry.label if entry is not None else "",
            )
        )
        link = box.gpu_link(gpu)
        links += _slot(name, holder or ports[name], link)
        if holder is None:
            links += _to_complex(ports[name], plan.gpu_sockets[gpu], pcie_bandwidth(*link))
    return _Parts(devices=tuple(devices), links=tuple(links))


def _nics(box: Box, ports: dict[str, str]) -> _Parts:
    matrix, plan = box.matrix, box.plan
    labels = dict(matrix.nic_labels)
    links: list[Link] = []
    for nic, holder in enumerate(plan.nic_switches):
        if holder is not None:
            links += _slot(matrix.nics[nic], holder, box.nic_link(nic))
    for members in plan.nic_ports:
        port = ports[matrix.nics[members[0]]]
        for nic in members:
            links += _slot(matrix.nics[nic], port, box.nic_link(nic))
        rate = max(pcie_bandwidth(*box.nic_link(nic)) for nic in members)
        links += _to_complex(port, plan.nic_sockets[members[0]], rate)
    devices = [
        Device(name=name, kind=DeviceKind.NIC, index=nic, label=labels.get(name, ""))
        for nic, name in enumerate(matrix.nics)
    ]
    return _Parts(devices=tuple(devices), links=tuple(links))


def _switches(box: Box, ports: dict[str, str]) -> _Parts:
    devices: list[Device] = []
    links: list[Link] = []
    for switch in box.plan.switches:
        chip, link = box.switches[switch.name], box.uplink(switch)
        model = chip.key if chip is not None else ""
        devices.append(Device(name=switch.name, kind=DeviceKind.SWITCH, model=model, chip=switch.chip))
        links += _slot(switch.name, switch.behind or ports[switch.name], link)
        if switch.behind is None:
            links += _to_complex(ports[switch.name], switch.socket, pcie_bandwidth(*link))
    for one, other in combinations(box.plan.switches, 2):
        if one.chip and one.chip == other.chip:
            links += _wire(one.name, other.name, LinkKind.ON_CHIP, _inside_chip(box, one))
    return _Parts(devices=tuple(devices), links=tuple(links))


def _inside_chip(box: Box, switch: PlannedSwitch) -> BytesPerSecond:
    """Between two partitions of a chip: all of its lanes; where the chip is unknown, those of the partition's GPUs."""
    chip = box.switches[switch.name]
    if chip is not None:
        return pcie_bandwidth(chip.pcie_generation, chip.lanes)
    below = sum(pcie_bandwidth(*box.gpu_link(gpu)) for gpu in switch.gpus)
    return below or pcie_bandwidth(*box.uplink(switch))


def _nodes(box: Box) -> dict[int, list[int]]:
    """NUMA nodes of every socket; a socket of which none is known gets the next free number."""
    nodes = dict(box.plan.numa)
    for socket in range(box.plan.sockets):
        if socket not in nodes.values():
            nodes[next(number for number in range(len(nodes) + 1) if number not in nodes)] = socket
    return {socket: sorted(node for node in nodes if nodes[node] == socket) for socket in range(box.plan.sockets)}


def _memory_bandwidth(box: Box) -> BytesPerSecond:
    """Of one NUMA node: as stated, else the socket's channels divided by its nodes."""
    return box.overlay.host.memory_bandwidth or box.host.memory_bandwidth / max(map(len, _nodes(box).values()))


def _host(box: Box) -> _Parts:
    stated, plan = box.overlay.host, box.plan
    per_node = _memory_bandwidth(box)
    devices: list[Device] = []
    links: list[Link] = []
    constraints: list[Constraint] = []
    for socket, nodes in _nodes(box).items():
        cpu, inside = f"socket{socket}", f"root_complex{socket}"
        devices += [
            Device(name=inside, kind=DeviceKind.ROOT_COMPLEX, model=box.host.key),
            Device(name=cpu, kind=DeviceKind.SOCKET, model=box.host.key),
        ]
        links += _wire(inside, cpu, LinkKind.ON_CHIP, per_node * len(nodes))
        for node in nodes:
            memory = f"memory{node}"
            devices.append(Device(name=memory, kind=DeviceKind.MEMORY, numa=node))
            links += _wire(cpu, memory, LinkKind.DRAM, per_node)
            constraints.append(Constraint(name=f"dram{node}", capacity=per_node, links=((cpu, memory), (memory, cpu))))
    count = stated.socket_link.links or box.host.socket_links or 1
    # A single-socket family that an overlay puts on two sockets has no rate of its own.
    rate = (
        stated.socket_link.bandwidth or box.host.socket_link_bandwidth or host_type(UNKNOWN_HOST).socket_link_bandwidth
    )
    for one, other in combinations(range(plan.sockets), 2):
        links += _wire(f"socket{one}", f"socket{other}", LinkKind.SOCKET, count * rate, width=count)
    return _Parts(devices=tuple(devices), links=tuple(links), constraints=tuple(constraints))


def _nvlinks(box: Box) -> _Parts:
    """A link for every NVLink pair. Where a GPU shows more links than it can have, its peers are behind an NVSwitch:
    all of them share one set of links, out of the GPU and into it."""
    names = box.matrix.gpus
    links: list[Link] = []
    constraints: list[Constraint] = []
    for one in range(len(names)):
        peers = box.nvlink_peers(one)
        for other in peers:
            if one < other:
                count = box.nvlinks[one][other]
                links += _wire(names[one], names[other], LinkKind.NVLINK, count * box.nvlink_rate(one), width=count)
        if not box.behind_nvswitch(one):
            continue
        capacity = max(box.nvlinks[one]) * box.nvlink_rate(one)
        out = tuple((names[one], names[other]) for other in peers)
        into = tuple((target, source) for source, target in out)
        constraints += [
            Constraint(name=f"nvlink_out_{names[one]}", capacity=capacity, links=out),
            Constraint(name=f"nvlink_in_{names[one]}", capacity=capacity, links=into),
        ]
    return _Parts(links=tuple(links), constraints=tuple(constraints))


def _quadrants(box: Box, ports: dict[str, str]) -> _Parts:
    """A quadrant's limit spans its root ports, one constraint per direction."""

    def port_of(tenant: str, socket: int) -> tuple[str, str]:
        return ports[tenant], f"root_complex{socket}"

    def top(name: str) -> tuple[str, str]:
        switch = box.plan.switch(name)
        return top(switch.behind) if switch.behind is not None else port_of(name, switch.socket)

    constraints: list[Constraint] = []
    for quadrant in box.overlay.quadrants:
        up = {top(name) for name in quadrant.switches}
        for gpu in quadrant.gpus:
            holder = box.plan.gpu_switches[gpu]
            up.add(top(holder) if holder else port_of(box.matrix.gpus[gpu], box.plan.gpu_sockets[gpu]))
        for word, links in (("up", sorted(up)), ("down", sorted((target, source) for source, target in up))):
            if links:
                constraints.append(
                    Constraint(name=f"{quadrant.name}_{word}", capacity=quadrant.bandwidth, links=tuple(links))
                )
    return _Parts(constraints=tuple(constraints))


def _peer_access(box: Box) -> tuple[tuple[bool, ...], ...]:
    """Which ordered pairs may peer; empty where nothing forbids it."""
    gpus = range(len(box.matrix.gpus))
    table = tuple(tuple(one != other and box.may_peer(one, other) for other in gpus) for one in gpus)
    return () if _all_pairs(table) else table


def _all_pairs(table: Iterable[tuple[bool, ...]]) -> bool:
    return all(allowed for one, row in enumerate(table) for other, allowed in enumerate(row) if one != other)
