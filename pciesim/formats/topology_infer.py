"""From matrix and overlay to a plan of the machine: which GPU is behind which switch, on which socket.

What the overlay states is taken; the rest is the likeliest reading of the cells, and every reading that a box may
refute is written down as an :class:`~pciesim.fabric.Assumption` with the cells it came from, how to settle it and what
it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pciesim.errors import InputError
from pciesim.fabric import Assumption
from pciesim.formats.topology_distance import Distances, Level, clusters, measure
from pciesim.formats.topology_overlay import LinkEntry, OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix

__all__ = ["Plan", "PlannedSwitch", "infer"]


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
    uplink: LinkEntry = LinkEntry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where everything is. Per GPU and per NIC: socket, NUMA node (GPUs), switch (None: a root port).

    ``nic_ports`` groups NICs that share a root port (several functions of one card). ``numa`` maps nodes to sockets.
    """

    sockets: int
    numa: tuple[tuple[int, int], ...]
    gpu_sockets: tuple[int, ...]
    gpu_numa: tuple[int | None, ...]
    gpu_switches: tuple[str | None, ...]
    nic_sockets: tuple[int, ...]
    nic_switches: tuple[str | None, ...]
    nic_ports: tuple[tuple[int, ...], ...]
    switches: tuple[PlannedSwitch, ...]
    assumptions: tuple[Assumption, ...]


def infer(matrix: TopologyMatrix, overlay: OverlayDocument, *, source: str = "") -> Plan:
    """The plan of a machine. Raises InputError where the overlay names a GPU or NIC the matrix does not have."""
    _check_indices(matrix, overlay, source)
    assumed: list[Assumption] = [
        Assumption(text=note, settle="run nvidia-smi topo -m again and save it with its tabs") for note in matrix.notes
    ]
    distances = measure(matrix)
    gpu_numa = tuple(
        entry.numa if (entry := overlay.gpus.get(gpu)) and entry.numa is not None else _single(matrix.numa(gpu))
        for gpu in range(len(matrix.gpus))
    )
    gpu_sockets, numa, sockets = _sockets(matrix, overlay, distances, gpu_numa, assumed)
    _assume_hidden(matrix, distances, assumed)
    if overlay.switches is not None:
        switches = _stated_switches(overlay, gpu_sockets)
    else:
        switches = _inferred_switches(matrix, distances, gpu_sockets, assumed)
    gpu_switches = tuple(_holder(switches, lambda each, gpu=gpu: gpu in each.gpus) for gpu in range(len(matrix.gpus)))
    _assume_paths(matrix, overlay, distances, gpu_sockets, gpu_numa, gpu_switches, assumed)
    nic_switches, nic_sockets, nic_ports = _nics(matrix, overlay, distances, switches, gpu_sockets, sockets)
    return Plan(
        sockets=sockets,
        numa=numa,
        gpu_sockets=gpu_sockets,
        gpu_numa=gpu_numa,
        gpu_switches=gpu_switches,
        nic_sockets=nic_sockets,
        nic_switches=nic_switches,
        nic_ports=nic_ports,
        switches=switches,
        assumptions=tuple(assumed),
    )


def _single(nodes: Sequence[int]) -> int | None:
    return nodes[0] if len(nodes) == 1 else None


def _holder(switches: Iterable[PlannedSwitch], holds: Callable[[PlannedSwitch], bool]) -> str | None:
    return next((switch.name for switch in switches if holds(switch)), None)


def _check_indices(matrix: TopologyMatrix, overlay: OverlayDocument, source: str) -> None:
    gpus = {*overlay.gpus, *(gpu for switch in overlay.switches or () for gpu in switch.gpus)}
    gpus |= {gpu for quadrant in overlay.quadrants for gpu in quadrant.gpus}
    nics = {*overlay.nics, *(nic for switch in overlay.switches or () for nic in switch.nics)}
    for word, named, names in (("GPU", gpus, matrix.gpus), ("NIC", nics, matrix.nics)):
        outside = sorted(index for index in named if index >= len(names))
        if outside:
            valid = f"0 to {len(names) - 1}" if names else "none"
            raise InputError(f"{word} {outside[0]} is not in the matrix (valid: {valid})", where=source)


# -- sockets ------------------------------------------------------------------------------------------------------


def _sockets(
    matrix: TopologyMatrix,
    overlay: OverlayDocument,
    distances: Distances,
    gpu_numa: Sequence[int | None],
    assumed: list[Assumption],
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], int]:
    """(socket of each GPU, NUMA node to socket, number of sockets)."""
    gpus = list(range(len(matrix.gpus)))
    regions = _regions(matrix, distances, gpu_numa, assumed)
    last = max((region for region in regions if region is not None), default=0)
    stated = {gpu: entry.socket for gpu, entry in overlay.gpus.items() if entry.socket is not None}
    by_node = overlay.host.numa
    wanted = overlay.host.sockets
    per_socket = _nodes_per_socket(last, wanted)
    sockets = wanted or max([last // per_socket, *stated.values(), *by_node.values()]) + 1
    if wanted is None and not by_node and per_socket > 1:
        assumed.append(
            Assumption(
                text=f"NUMA nodes up to {last}: {per_socket} per socket on two sockets (NUMA Affinity column)",
                settle="lscpu | grep -E 'Socket|NUMA' ; state host.sockets and host.numa in the overlay",
                matters="which pairs cross the socket link, hence their latency and NCCL's choice",
            )
        )

    def socket_of(gpu: int) -> int | None:
        region = regions[gpu]
        if gpu in stated:
            return stated[gpu]
        if region is None:
            return None
        return by_node.get(region, min(region // per_socket, sockets - 1))

    found = [socket_of(gpu) for gpu in gpus]
    for gpu in gpus:  # a GPU without NUMA information joins the nearest that has it
        if found[gpu] is None:
            near = [(distances.of(gpu, other), other) for other in gpus if found[other] is not None]
            found[gpu] = found[min(near)[1]] if near else 0
    final = [socket or 0 for socket in found]
    for group in clusters(gpus, distances, Level.NODE):
        if len({final[gpu] for gpu in group}) > 1 and not stated and not by_node:
            names = ", ".join(matrix.gpus[gpu] for gpu in group)
            assumed.append(
                Assumption(
                    text=f"{names} are printed as one NUMA node's but their NUMA columns differ: the cells are believed",
                    settle="cat /sys/bus/pci/devices/<address>/numa_node for each GPU",
                    matters="whether these pairs cross the socket link",
                )
            )
            for gpu in group:
                final[gpu] = final[group[0]]
    nodes = {node: final[gpu] for gpu, node in enumerate(gpu_numa) if node is not None} | dict(by_node)
    return tuple(final), tuple(sorted(nodes.items())), max(sockets, *(socket + 1 for socket in final))


def _nodes_per_socket(last: int, sockets: int | None) -> int:
    """NUMA nodes a socket has, when nodes are numbered socket by socket and two sockets are the most there are."""
    if sockets is not None:
        return -(-(last + 1) // sockets)
    nodes = 1
    while nodes < last + 1:
        nodes *= 2
    return max(1, nodes // 2)


def _regions(
    matrix: TopologyMatrix, distances: Distances, gpu_numa: Sequence[int | None], assumed: list[Assumption]
) -> list[int | None]:
    """A number like a NUMA node's for each GPU: the NUMA column, else the CPU lists, else the groups of the cells."""
    gpus = list(range(len(matrix.gpus)))
    if any(node is not None for node in gpu_numa):
        return list(gpu_numa)
    lists = list(dict.fromkeys(matrix.cpu_affinity))
    if all(lists):
        order = sorted(lists, key=lambda text: int(text.replace("-", ",").split(",")[0]))
        if len(order) > 1:
            assumed.append(
                Assumption(
                    text=f"no NUMA column: GPUs with equal CPU lists share a NUMA node ({len(order)} lists)",
                    settle="cat /sys/bus/pci/devices/<address>/numa_node for each GPU",
                    matters="which pairs cross the socket link",
                )
            )
        return [order.index(text) for text in matrix.cpu_affinity]
    groups = clusters(gpus, distances, Level.NODE)
    if len(groups) == 1:
        return [0 for _ in gpus]
    if len(groups) == 2:
        text = "no NUMA information: the two groups that SYS separates are two sockets"
        found = [0 if gpu in groups[0] else 1 for gpu in gpus]
    else:
        text = f"no NUMA information: the {len(groups)} groups that SYS separates are host bridges of one socket"
        found = [0 for _ in gpus]
    assumed.append(
        Assumption(
            text=text,
            settle="lscpu | grep Socket ; cat /sys/bus/pci/devices/<address>/numa_node for each GPU",
            matters="whether SYS pairs cross a socket link (0 to 0.3 us a traversal, and its bandwidth)",
        )
    )
    return list(found)


# -- switches -----------------------------------------------------------------------------------------------------


def _stated_switches(overlay: OverlayDocument, gpu_sockets: Sequence[int]) -> tuple[PlannedSwitch, ...]:
    entries = overlay.switches or ()

    def below(name: str) -> list[int]:
        own = [gpu for entry in entries if entry.name == name for gpu in entry.gpus]
        return own + [gpu for entry in entries if entry.behind == name for gpu in below(entry.name)]

    def socket(name: str) -> int:
        entry = next(each for each in entries if each.name == name)
        if entry.socket is not None:
            return entry.socket
        if entry.behind is not None:
            return socket(entry.behind)
        return min((gpu_sockets[gpu] for gpu in below(name)), default=0)

    return tuple(
        PlannedSwitch(
            name=entry.name,
            gpus=entry.gpus,
            nics=entry.nics,
            behind=entry.behind,
            socket=socket(entry.name),
            model=entry.model,
            chip=entry.chip,
            uplink=entry.uplink,
        )
        for entry in entries
    )


def _inferred_switches(
    matrix: TopologyMatrix, distances: Distances, gpu_sockets: Sequence[int], assumed: list[Assumption]
) -> tuple[PlannedSwitch, ...]:
    """PIX groups are switches; PXB joins them under one more; a device that is PXB to all of a tree hangs on its top."""
    gpus = list(range(len(matrix.gpus)))
    leaves = [
        (group, _near_nics(matrix, distances, group, Level.PIX)) for group in clusters(gpus, distances, Level.PIX)
    ]
    trees = [(group, _near_nics(matrix, distances, group, Level.PXB)) for group in clusters(gpus, distances, Level.PXB)]
    switches: list[PlannedSwitch] = []
    tops: list[PlannedSwitch] = []
    for group, nics in trees:
        inside = [(own, near) for own, near in leaves if own[0] in group and len(own) + len(near) > 1]
        alone = [gpu for gpu in group if not any(gpu in own for own, _ in inside)]
        loose = [nic for nic in nics if not any(nic in near for _, near in inside)]
        socket = gpu_sockets[group[0]]
        needs_top = len(inside) + len(alone) + len(loose) > 1
        top = f"top{len(tops)}" if needs_top else None
        for own, near in inside:
            switches.append(
                PlannedSwitch(
                    name=f"switch{len(switches)}", gpus=tuple(own), nics=tuple(near), behind=top, socket=socket
                )
            )
        if top is not None:
            tops.append(PlannedSwitch(name=top, gpus=tuple(alone), nics=tuple(loose), behind=None, socket=socket))
            _assume_tree(matrix, group, len(inside), assumed)
    # Tops are numbered after the leaves, so that switch0 is where GPU0 hangs.
    names = {top.name: f"switch{len(switches) + position}" for position, top in enumerate(tops)}
    for switch in switches:
        if len(switch.gpus) > 1:
            _assume_uplink(matrix, switch, assumed)
    return tuple(
        PlannedSwitch(
            name=names.get(switch.name, switch.name),
            gpus=switch.gpus,
            nics=switch.nics,
            behind=names[switch.behind] if switch.behind else None,
            socket=switch.socket,
        )
        for switch in (*switches, *tops)
    )


def _near_nics(matrix: TopologyMatrix, distances: Distances, group: Sequence[int], limit: Level) -> list[int]:
    """NICs within ``limit`` of a GPU of the group, and of no GPU with a lower number outside it."""
    first = len(matrix.gpus)
    found = []
    for nic in range(len(matrix.nics)):
        near = [gpu for gpu in range(first) if distances.of(gpu, first + nic) <= limit]
        if near and near[0] in group:
            found.append(nic)
    return found


def _assume_tree(matrix: TopologyMatrix, group: Sequence[int], inside: int, assumed: list[Assumption]) -> None:
    names = ", ".join(matrix.gpus[gpu] for gpu in group)
    if inside > 1:
        text = f"PXB among {names}: {inside} switches under one more, with one x16 uplink to the CPU"
        matters = "a cascade without the top switch saves one switch (about 0.1 us a traversal) between the groups"
    else:
        text = f"PXB at {names}: one switch chip that shows nested bridges, with one x16 uplink to the CPU"
        matters = "two chips in a row add one switch (about 0.1 us a traversal)"
    assumed.append(
        Assumption(text=text, settle="lspci -tv shows the bridges; state switches in the overlay", matters=matters)
    )


def _assume_uplink(matrix: TopologyMatrix, switch: PlannedSwitch, assumed: list[Assumption]) -> None:
    names = ", ".join(matrix.gpus[gpu] for gpu in switch.gpus)
    one, other = (matrix.gpus[gpu] for gpu in switch.gpus[:2])
    assumed.append(
        Assumption(
            text=f"PIX among {names}: one switch ({switch.name}) with one x16 uplink that they share",
            settle=f"copy from {one} and {other} to two GPUs elsewhere at once: half the rate each means a shared uplink",
            matters="with an uplink each, traffic that leaves the switch doubles or more; latency stays",
        )
    )


# -- NICs ---------------------------------------------------------------------------------------------------------


def _nics(
    matrix: TopologyMatrix,
    overlay: OverlayDocument,
    distances: Distances,
    switches: Sequence[PlannedSwitch],
    gpu_sockets: Sequence[int],
    sockets: int,
) -> tuple[tuple[str | None, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """(switch, socket of each NIC, groups of NICs on one root port)."""
    first = len(matrix.gpus)
    used = set(gpu_sockets)
    found_switches: list[str | None] = []
    found_sockets: list[int] = []
    for nic in range(len(matrix.nics)):
        entry = overlay.nics.get(nic)
        switch = entry.switch if entry and entry.switch else _holder(switches, lambda each, nic=nic: nic in each.nics)
        near = min((distances.of(gpu, first + nic), gpu) for gpu in range(first))
        if entry and entry.socket is not None:
            socket = entry.socket
        elif switch is not None:
            socket = next((each.socket for each in switches if each.name == switch), 0)
        elif near[0] is Level.SYS:  # far from every GPU: on a socket without GPUs, if there is one
            socket = next((each for each in range(sockets) if each not in used), sockets - 1)
        else:
            socket = gpu_sockets[near[1]]
        found_switches.append(switch)
        found_sockets.append(min(socket, sockets - 1))
    loose = [first + nic for nic, switch in enumerate(found_switches) if switch is None]
    ports = tuple(tuple(member - first for member in group) for group in clusters(loose, distances, Level.PXB))
    return tuple(found_switches), tuple(found_sockets), ports


# -- what else the cells leave open -------------------------------------------------------------------------------


def _assume_hidden(matrix: TopologyMatrix, distances: Distances, assumed: list[Assumption]) -> None:
    if not distances.hidden:
        return
    one, other = distances.hidden[0]
    sure = len(distances.hidden) - len(distances.guessed)
    assumed.append(
        Assumption(
            text=(
                f"NVLink hides the PCIe path of {len(distances.hidden)} pairs (such as {matrix.gpus[one]}-"
                f"{matrix.gpus[other]}, {matrix.cells[one][other]}): {sure} follow from third devices, "
                f"{len(distances.guessed)} are taken from bounds and the NUMA columns"
            ),
            settle="lspci -tv, or nvidia-smi topo -m with NVLink off",
            matters="only traffic that avoids NVLink (host memory, NCCL with NVLink or P2P off)",
        )
    )


def _assume_paths(
    matrix: TopologyMatrix,
    overlay: OverlayDocument,
    distances: Distances,
    gpu_sockets: Sequence[int],
    gpu_numa: Sequence[int | None],
    gpu_switches: Sequence[str | None],
    assumed: list[Assumption],
) -> None:
    gpus = range(len(matrix.gpus))
    pairs = [(one, other) for one in gpus for other in gpus if one < other]
    printed = {pair: distances.of(*pair) for pair in pairs if pair not in distances.hidden}
    if len(gpus) > 1 and printed and all(level is Level.PHB for level in printed.values()) and overlay.switches is None:
        assumed.append(
            Assumption(
                text=f"all {len(printed)} pairs are PHB: every GPU on a root port of its own (a virtual machine prints this whatever the wiring)",
                settle="run nvidia-smi topo -m on the host instead of the guest; lspci -tv there",
                matters="switches or a second socket behind the virtual root complex change latency and sharing",
            )
        )
    inside = [
        pair for pair, level in printed.items() if level is Level.SYS and gpu_sockets[pair[0]] == gpu_sockets[pair[1]]
    ]
    if inside and all(
        gpu_numa[gpu] is not None and gpu_numa[gpu] == gpu_numa[pair[0]] for pair in inside for gpu in pair
    ):
        one, other = inside[0]
        assumed.append(
            Assumption(
                text=(
                    f"{len(inside)} SYS pairs lie inside one NUMA node (such as {matrix.gpus[one]}-{matrix.gpus[other]}, both on node "
                    f"{gpu_numa[one]}): host bridges of one socket, no socket link is crossed"
                ),
                settle="lspci -tv: are the bridges on one CPU? A load chain of 1.4 us means yes, 1.6 us or more no",
                matters="a socket link would add up to 0.3 us a traversal and cap the rate",
            )
        )
    parted = [
        pair
        for pair, level in printed.items()
        if level in (Level.PHB, Level.NODE)
        and gpu_switches[pair[0]] is not None
        and gpu_switches[pair[1]] is not None
        and gpu_switches[pair[0]] != gpu_switches[pair[1]]
    ]
    if parted and overlay.switches is None:
        one, other = parted[0]
        assumed.append(
            Assumption(
                text=(
                    f"{len(parted)} pairs behind different switches of one socket ({matrix.gpus[one]}-{matrix.gpus[other]} is "
                    f"{distances.of(one, other).name}) cross the root complex, not the inside of a partitioned chip"
                ),
                settle="read latency of the pair: 0.7 us inside a chip, 1.4 us through the CPU",
                matters="inside one chip they would be as near as PIX and leave the uplinks alone",
            )
        )
