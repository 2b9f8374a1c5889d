"""From a resolved box to the sealed fabric: devices, directed links at their specified rates, shared constraints.

Wiring: GPU - [switch - ...] root port - root complex - socket. Host memory hangs on the socket, one device per NUMA
node, and sockets are joined all to all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from pciesim.fabric import Concurrency, Constraint, Device, DeviceKind, Fabric, Host, Link, LinkKind, NcclEnvironment
from pciesim.formats.catalogue import UNKNOWN_HOST, host_type
from pciesim.formats.topology_assume import assume
from pciesim.formats.topology_box import Box, PcieLink
from pciesim.formats.topology_infer import PlannedSwitch
from pciesim.formats.topology_roots import RootPort
from pciesim.hardware import pcie_bandwidth
from pciesim.units import BytesPerSecond

__all__ = ["build_fabric", "unbound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Pieces of a fabric."""

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    constraints: tuple[Constraint, ...] = ()


def build_fabric(box: Box, *, name: str) -> Fabric:
    """The fabric of a box, with what was assumed about it."""
    below = [_gpus(box), _nics(box), _switches(box)]
    ports = tuple(Device(name=port.name, kind=DeviceKind.ROOT_PORT) for port in box.roots.ports.values())
    parts = [
        *below,
        _Parts(devices=ports),
        _host(box, [link for part in below for link in part.links]),
        _nvlinks(box),
        _quadrants(box),
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
        profile=overlay.profile,
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
        registry_override=overlay.p2p.registry_override is not False,
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


def _to_complex(port: RootPort, bandwidth: BytesPerSecond) -> tuple[Link, Link]:
    """A root port into its root complex: as wide as the slot's link, so that the slot is what limits."""
    return _wire(port.name, port.root_complex, LinkKind.ON_CHIP, bandwidth)


def _gpus(box: Box) -> _Parts:
    matrix, plan, ports = box.matrix, box.plan, box.roots.ports
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
        links += _slot(name, holder or ports[name].name, link)
        if holder is None:
            links += _to_complex(ports[name], pcie_bandwidth(*link))
    return _Parts(devices=tuple(devices), links=tuple(links))


def _nics(box: Box) -> _Parts:
    matrix, plan = box.matrix, box.plan
    labels = dict(matrix.nic_labels)
    links: list[Link] = []
    for nic, holder in enumerate(plan.nic_switches):
        if holder is not None:
            links += _slot(matrix.nics[nic], holder, box.nic_link(nic))
    for members in plan.nic_ports:
        port = box.roots.ports[matrix.nics[members[0]]]
        for nic in members:
            links += _slot(matrix.nics[nic], port.name, box.nic_link(nic))
        rate = max(pcie_bandwidth(*box.nic_link(nic)) for nic in members)
        links += _to_complex(port, rate)
    devices = [
        Device(name=name, kind=DeviceKind.NIC, index=nic, label=labels.get(name, ""))
        for nic, name in enumerate(matrix.nics)
    ]
    return _Parts(devices=tuple(devices), links=tuple(links))


def _switches(box: Box) -> _Parts:
    ports = box.roots.ports
    devices: list[Device] = []
    links: list[Link] = []
    for switch in box.plan.switches:
        chip, link = box.switches[switch.name], box.uplink(switch)
        model = chip.key if chip is not None else ""
        devices.append(Device(name=switch.name, kind=DeviceKind.SWITCH, model=model, chip=switch.chip))
        links += _slot(switch.name, switch.behind or ports[switch.name].name, link)
        if switch.behind is None:
            links += _to_complex(ports[switch.name], pcie_bandwidth(*link))
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


def _host(box: Box, below: Sequence[Link]) -> _Parts:
    """Root complexes, sockets and memory. ``below`` are the links of everything that hangs on them."""
    stated, plan = box.overlay.host, box.plan
    per_node = _memory_bandwidth(box)
    devices: list[Device] = []
    links: list[Link] = []
    constraints: list[Constraint] = []
    for socket, nodes in _nodes(box).items():
        cpu = f"socket{socket}"
        inside = [each for each in box.roots.complexes if each.socket == socket]
        own = nodes[0] if len(nodes) == 1 else None  # of several, nothing tells which one a root complex belongs to
        devices += [
            Device(name=each.name, kind=DeviceKind.ROOT_COMPLEX, numa=own, model=box.host.key) for each in inside
        ]
        devices.append(Device(name=cpu, kind=DeviceKind.SOCKET, numa=own, model=box.host.key))
        for each in inside:
            carries = each.bandwidth or unbound(each.name, below, per_node * len(nodes))
            links += _wire(each.name, cpu, LinkKind.ON_CHIP, carries)
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


def unbound(root_complex: str, links: Iterable[Link], memory: BytesPerSecond) -> BytesPerSecond:
    """A root complex's way to its socket where nobody stated what it carries: as much as its ports or the socket's
    memory can, whichever is more, so that it never limits."""
    return max(memory, sum(link.bandwidth for link in links if link.target == root_complex))


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


def _quadrants(box: Box) -> _Parts:
    """What root complexes share on their way to the socket, one constraint per direction.

    Peers of one root complex turn inside it: eight GPUs behind two switches of one exchange as much as behind two
    (179 GB/s), but reach host memory at 73 instead of 114 GB/s (rtx6kpro hardware/, WRX90).
    """
    sockets = {each.name: f"socket{each.socket}" for each in box.roots.complexes}
    constraints: list[Constraint] = []
    for quadrant in box.overlay.quadrants:
        up = tuple((name, sockets[name]) for name in quadrant.root_complexes)
        down = tuple((target, source) for source, target in up)
        constraints += [
            Constraint(name=f"{quadrant.name}_{word}", capacity=quadrant.bandwidth, links=links)
            for word, links in (("up", up), ("down", down))
        ]
    return _Parts(constraints=tuple(constraints))


def _peer_access(box: Box) -> tuple[tuple[bool, ...], ...]:
    """Which ordered pairs may peer; empty where nothing forbids it."""
    gpus = range(len(box.matrix.gpus))
    table = tuple(tuple(one != other and box.may_peer(one, other) for other in gpus) for one in gpus)
    return () if _all_pairs(table) else table


def _all_pairs(table: Iterable[tuple[bool, ...]]) -> bool:
    return all(allowed for one, row in enumerate(table) for other, allowed in enumerate(row) if one != other)
