"""From matrix and overlay to a plan of the machine: which GPU is behind which switch, on which socket.

What the overlay states is taken; the rest is the likeliest reading of the cells. What such a reading rests on, and how
a box may refute it, is written down by :mod:`pciesim.formats.topology_assume`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pciesim.errors import InputError
from pciesim.formats.topology_distance import Distances, Level, clusters, measure
from pciesim.formats.topology_overlay import LinkEntry, OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix

__all__ = ["Plan", "PlannedSwitch", "SocketEvidence", "infer"]


class SocketEvidence(StrEnum):
    """What tells the NUMA nodes, and with them the sockets, apart."""

    NUMA = "the NUMA column"
    CPU_LISTS = "equal CPU lists"
    TWO_GROUPS = "the two groups that SYS separates"
    ONE_SOCKET = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSwitch:
    """A switch: what hangs on it directly, the switch above (None: a root port), its socket."""

    name: str
    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    behind: str | None
    socket: int
    model: str | None = None
    chip: str = ""
    uplink: LinkEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where everything is. Per GPU and per NIC: socket, NUMA node (GPUs), switch (None: a root port).

    ``numa`` pairs nodes with sockets; ``nodes_per_socket`` is how many were counted on where only their numbers tell.
    ``nic_ports`` groups NICs that share a root port (several functions of one card).
    """

    sockets: int
    socket_evidence: SocketEvidence
    nodes_per_socket: int
    numa: tuple[tuple[int, int], ...]
    gpu_sockets: tuple[int, ...]
    gpu_numa: tuple[int | None, ...]
    gpu_switches: tuple[str | None, ...]
    nic_sockets: tuple[int, ...]
    nic_switches: tuple[str | None, ...]
    nic_ports: tuple[tuple[int, ...], ...]
    switches: tuple[PlannedSwitch, ...]
    distances: Distances

    def switch(self, name: str) -> PlannedSwitch:
        """The switch of that name. Raises StopIteration when there is none."""
        return next(switch for switch in self.switches if switch.name == name)

    def top(self, name: str) -> str:
        """The switch at the root port above a switch: itself where it is behind no other."""
        behind = self.switch(name).behind
        return name if behind is None else self.top(behind)


def infer(matrix: TopologyMatrix, overlay: OverlayDocument, *, source: str = "") -> Plan:
    """The plan of a machine. Raises InputError where the overlay names a GPU, NIC or switch that is not there."""
    _check_indices(matrix, overlay, source)
    gpus = range(len(matrix.gpus))
    distances = measure(matrix)
    gpu_numa = tuple(_single(_stated_numa(overlay, gpu) or matrix.numa(gpu)) for gpu in gpus)
    evidence, regions = _regions(matrix, distances, gpu_numa)
    sockets, nodes_per_socket = _count_sockets(overlay, regions)
    gpu_sockets = _gpu_sockets(overlay, distances, regions, sockets, nodes_per_socket)
    sockets = max(sockets, *(socket + 1 for socket in gpu_sockets))
    nodes = {node: gpu_sockets[gpu] for gpu, node in enumerate(gpu_numa) if node is not None} | overlay.host.numa
    if overlay.switches is None:
        switches = _inferred_switches(matrix, distances, gpu_sockets)
    else:
        switches = _stated_switches(overlay, gpu_sockets)
    plan = Plan(
        sockets=sockets,
        socket_evidence=evidence,
        nodes_per_socket=nodes_per_socket,
        numa=tuple(sorted(nodes.items())),
        gpu_sockets=gpu_sockets,
        gpu_numa=gpu_numa,
        gpu_switches=tuple(next((each.name for each in switches if gpu in each.gpus), None) for gpu in gpus),
        nic_sockets=(),
        nic_switches=(),
        nic_ports=(),
        switches=switches,
        distances=distances,
    )
    return _with_nics(plan, matrix, overlay)


def _stated_numa(overlay: OverlayDocument, gpu: int) -> tuple[int] | None:
    entry = overlay.gpus.get(gpu)
    return (entry.numa,) if entry is not None and entry.numa is not None else None


def _single(nodes: Sequence[int]) -> int | None:
    return nodes[0] if len(nodes) == 1 else None


def _check_indices(matrix: TopologyMatrix, overlay: OverlayDocument, source: str) -> None:
    gpus = {*overlay.gpus, *(gpu for switch in overlay.switches or () for gpu in switch.gpus)}
    gpus |= {gpu for each in overlay.root_complexes for gpu in each.gpus}
    nics = {*overlay.nics, *(nic for switch in overlay.switches or () for nic in switch.nics)}
    nics |= {nic for each in overlay.root_complexes for nic in each.nics}
    for word, named, names in (("GPU", gpus, matrix.gpus), ("NIC", nics, matrix.nics)):
        outside = sorted(index for index in named if index >= len(names))
        if outside:
            valid = f"0 to {len(names) - 1}" if names else "none"
            raise InputError(f"{word} {outside[0]} is not in the matrix (valid: {valid})", where=source)


# -- sockets ------------------------------------------------------------------------------------------------------


def _regions(
    matrix: TopologyMatrix, distances: Distances, gpu_numa: Sequence[int | None]
) -> tuple[SocketEvidence, tuple[int | None, ...]]:
    """A number like a NUMA node's for each GPU: the NUMA column, else the CPU lists, else the groups of the cells."""
    gpus = list(range(len(matrix.gpus)))
    if any(node is not None for node in gpu_numa):
        return SocketEvidence.NUMA, tuple(gpu_numa)
    groups = clusters(gpus, distances, Level.NODE)
    by_name = any("SOC" in row for row in matrix.cells)  # older drivers print SOC for the link between sockets only
    if len(groups) == 2 and by_name:
        return SocketEvidence.TWO_GROUPS, tuple(0 if gpu in groups[0] else 1 for gpu in gpus)
    lists = sorted(set(matrix.cpu_affinity), key=lambda text: int((text or "0").replace("-", ",").split(",")[0]))
    if all(lists):
        return SocketEvidence.CPU_LISTS, tuple(lists.index(text) for text in matrix.cpu_affinity)
    if len(groups) == 2:
        return SocketEvidence.TWO_GROUPS, tuple(0 if gpu in groups[0] else 1 for gpu in gpus)
    # More than two groups are rather host bridges of one socket (boards with a bridge per slot) than many sockets.
    return SocketEvidence.ONE_SOCKET, tuple(0 for _ in gpus)


def _count_sockets(overlay: OverlayDocument, regions: Sequence[int | None]) -> tuple[int, int]:
    """(sockets, NUMA nodes per socket): as stated, else two sockets at most, nodes numbered socket by socket."""
    last = max((region for region in regions if region is not None), default=0)
    if overlay.host.sockets is not None:
        return overlay.host.sockets, -(-(last + 1) // overlay.host.sockets)
    nodes = 1
    while nodes < last + 1:
        nodes *= 2
    per_socket = max(1, nodes // 2)
    stated = [entry.socket for entry in overlay.gpus.values() if entry.socket is not None]
    stated += [entry.socket for entry in overlay.root_complexes if entry.socket is not None]
    return max([last // per_socket, *stated, *overlay.host.numa.values()]) + 1, per_socket


def _stated_sockets(overlay: OverlayDocument) -> dict[int, int]:
    """Sockets of GPUs: as stated for them, else for the root complex that lists them or a stated switch above them."""
    holders = {gpu: entry for entry in overlay.switches or () for gpu in entry.gpus}
    above = {entry.name: entry.behind for entry in overlay.switches or ()}
    found: dict[int, int] = {}
    for each in overlay.root_complexes:
        if each.socket is None:
            continue
        found |= dict.fromkeys(each.gpus, each.socket)
        for gpu, holder in holders.items():
            name: str | None = holder.name
            while name is not None and name not in each.switches:
                name = above[name]
            if name is not None:
                found[gpu] = each.socket
    return found | {gpu: entry.socket for gpu, entry in overlay.gpus.items() if entry.socket is not None}


def _gpu_sockets(
    overlay: OverlayDocument,
    distances: Distances,
    regions: Sequence[int | None],
    sockets: int,
    nodes_per_socket: int,
) -> tuple[int, ...]:
    gpus = list(range(len(regions)))
    stated = _stated_sockets(overlay)

    def known(gpu: int) -> int | None:
        region = regions[gpu]
        if gpu in stated or region is None:
            return stated.get(gpu)
        return overlay.host.numa.get(region, min(region // nodes_per_socket, sockets - 1))

    by_number = [known(gpu) for gpu in gpus]
    # A GPU without NUMA information joins the nearest that has it.
    anchors = [gpu for gpu in gpus if by_number[gpu] is not None]
    found = [
        socket
        if socket is not None
        else by_number[min(anchors, key=lambda other: distances.of(gpu, other))]
        if anchors
        else 0
        for gpu, socket in enumerate(by_number)
    ]
    if not stated and not overlay.host.numa:
        # NODE or nearer means one NUMA node: where the columns contradict the cells, the cells are believed.
        for group in clusters(gpus, distances, Level.NODE):
            for gpu in group:
                found[gpu] = found[group[0]]
    return tuple(socket or 0 for socket in found)


# -- switches -----------------------------------------------------------------------------------------------------


def _stated_switches(overlay: OverlayDocument, gpu_sockets: Sequence[int]) -> tuple[PlannedSwitch, ...]:
    entries = {entry.name: entry for entry in overlay.switches or ()}

    def gpus_below(name: str) -> list[int]:
        inner = [each for each, entry in entries.items() if entry.behind == name]
        return [*entries[name].gpus, *(gpu for each in inner for gpu in gpus_below(each))]

    def socket(name: str) -> int:
        entry = entries[name]
        if entry.socket is not None:
            return entry.socket
        if entry.behind is not None:
            return socket(entry.behind)
        return min((gpu_sockets[gpu] for gpu in gpus_below(name)), default=0)

    return tuple(
        PlannedSwitch(
            name=name,
            gpus=entry.gpus,
            nics=entry.nics,
            behind=entry.behind,
            socket=socket(name),
            model=entry.model,
            chip=entry.chip,
            uplink=entry.uplink,
        )
        for name, entry in entries.items()
    )


def _inferred_switches(
    matrix: TopologyMatrix, distances: Distances, gpu_sockets: Sequence[int]
) -> tuple[PlannedSwitch, ...]:
    """PIX groups are switches, and PXB joins them under one more. A lone GPU or NIC that is PXB to a tree hangs on its
    top switch: Gen4 and Gen5 Broadcom chips show nested bridges that cost no extra hop."""
    gpus = list(range(len(matrix.gpus)))
    at_pix, at_pxb = (_nearest_gpus(matrix, distances, limit) for limit in (Level.PIX, Level.PXB))
    groups = [
        (group, [nic for nic, gpu in at_pix.items() if gpu in group]) for group in clusters(gpus, distances, Level.PIX)
    ]
    leaves: list[PlannedSwitch] = []
    tops: list[PlannedSwitch] = []
    for tree in clusters(gpus, distances, Level.PXB):
        inside = [(own, nics) for own, nics in groups if own[0] in tree and len(own) + len(nics) > 1]
        alone = tuple(gpu for gpu in tree if not any(gpu in own for own, _ in inside))
        held = {nic for _, nics in inside for nic in nics}
        loose = tuple(nic for nic, gpu in at_pxb.items() if gpu in tree and nic not in held)
        socket = gpu_sockets[tree[0]]
        top = f"top{len(tops)}" if len(inside) + len(alone) + len(loose) > 1 else None
        leaves += [
            PlannedSwitch(name="", gpus=tuple(own), nics=tuple(nics), behind=top, socket=socket) for own, nics in inside
        ]
        if top is not None:
            tops.append(PlannedSwitch(name=top, gpus=alone, nics=loose, behind=None, socket=socket))
    # Tops are numbered after the leaves, so that switch0 is the one nearest to GPU0.
    names = {top.name: f"switch{len(leaves) + position}" for position, top in enumerate(tops)}
    return tuple(
        replace(switch, name=f"switch{position}", behind=names[switch.behind] if switch.behind else None)
        for position, switch in enumerate([*leaves, *tops])
    )


def _nearest_gpus(matrix: TopologyMatrix, distances: Distances, limit: Level) -> dict[int, int]:
    """The lowest GPU within ``limit`` of each NIC that has one."""
    first = len(matrix.gpus)
    found: dict[int, int] = {}
    for nic in range(len(matrix.nics)):
        levels = distances.levels[first + nic][:first]
        gpu = next((gpu for gpu, level in enumerate(levels) if level <= limit), None)
        if gpu is not None:
            found[nic] = gpu
    return found


# -- NICs ---------------------------------------------------------------------------------------------------------


def _with_nics(plan: Plan, matrix: TopologyMatrix, overlay: OverlayDocument) -> Plan:
    """The plan with its NICs: on a switch, or on root ports of the socket of the nearest GPU."""
    first = len(matrix.gpus)
    empty = next((each for each in range(plan.sockets) if each not in plan.gpu_sockets), plan.sockets - 1)
    switches: list[str | None] = []
    sockets: list[int] = []
    for nic in range(len(matrix.nics)):
        entry = overlay.nics.get(nic)
        holder = next((each.name for each in plan.switches if nic in each.nics), None)
        near, gpu = min((plan.distances.of(gpu, first + nic), gpu) for gpu in range(first))
        socket = plan.gpu_sockets[gpu] if near < Level.SYS else empty  # far from every GPU: on a socket without one
        if holder is not None:
            socket = plan.switch(holder).socket
        if entry is not None and entry.socket is not None:
            socket = min(entry.socket, plan.sockets - 1)
        switches.append(holder)
        sockets.append(socket)
    loose = [first + nic for nic, switch in enumerate(switches) if switch is None]
    ports = clusters(loose, plan.distances, Level.PXB)
    return replace(
        plan,
        nic_switches=tuple(switches),
        nic_sockets=tuple(sockets),
        nic_ports=tuple(tuple(member - first for member in group) for group in ports),
    )
