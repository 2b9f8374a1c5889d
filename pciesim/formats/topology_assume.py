"""What a fabric rests on that its input did not say: the cells it came from, how to settle it, what would change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Final

from pciesim.fabric import Assumption
from pciesim.formats.catalogue import UNKNOWN_HOST
from pciesim.formats.topology_box import DEFAULT_GENERATION, DEFAULT_WIDTH, Box, PcieLink
from pciesim.formats.topology_distance import Level
from pciesim.formats.topology_infer import PlannedSwitch, SocketEvidence
from pciesim.formats.topology_smi import runs
from pciesim.hardware import pcie_bandwidth
from pciesim.units import format_rate

__all__ = ["assume"]

_SHOWN: Final = 3  # pairs named in one assumption
_EVIDENCE: Final = {each: f"told by {each}" for each in SocketEvidence} | {
    SocketEvidence.ONE_SOCKET: "because nothing tells of more"
}


def assume(box: Box) -> tuple[Assumption, ...]:
    """Everything assumed about a box, the structure first."""
    return tuple(assumption for rule in _RULES for assumption in rule(box))


def _names(box: Box, gpus: Sequence[int]) -> str:
    """``GPU1, GPU4 to GPU7``, or ``all 8 GPUs``."""
    names = box.matrix.gpus
    if len(gpus) == len(names) > 1:
        return f"all {len(gpus)} GPUs"
    spans = [(names[first], " to " if last > first + 1 else ", ", names[last]) for first, last in runs(gpus)]
    return ", ".join(first if first == last else f"{first}{word}{last}" for first, word, last in spans)


def _cells(box: Box, pairs: Sequence[tuple[int, int]]) -> str:
    """``GPU0-GPU1 PIX, GPU0-GPU2 PIX and 4 more``."""
    names, cells = box.matrix.names, box.matrix.cells
    shown = ", ".join(f"{names[one]}-{names[other]} {cells[one][other]}" for one, other in pairs[:_SHOWN])
    return shown + (f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else "")


def _printed_pairs(box: Box, *levels: Level) -> list[tuple[int, int]]:
    """GPU pairs whose PCIe level is printed and one of those given (any where none is)."""
    distances = box.plan.distances
    hidden = set(distances.hidden)
    return [
        pair
        for pair in combinations(range(len(box.matrix.gpus)), 2)
        if pair not in hidden and (not levels or distances.of(*pair) in levels)
    ]


def _repairs(box: Box) -> Iterator[Assumption]:
    for note in box.matrix.notes:
        yield Assumption(
            text=note,
            settle="save the output of nvidia-smi topo -m to a file, with its tabs",
            matters="only what the damaged cells say",
        )


def _sockets(box: Box) -> Iterator[Assumption]:
    plan, stated = box.plan, box.overlay
    if stated.host.numa or all(gpu in stated.gpus and stated.gpus[gpu].socket is not None for gpu in _all(box)):
        return
    if plan.socket_evidence is SocketEvidence.NUMA:
        if plan.nodes_per_socket > 1 and stated.host.sockets is None:
            yield Assumption(
                text=f"{plan.nodes_per_socket} NUMA nodes per socket, {plan.sockets} sockets (NUMA column goes up to "
                f"{max(node for node, _ in plan.numa)})",
                settle="lscpu | grep -E 'Socket|NUMA' ; state host.sockets or host.numa",
                matters="which pairs cross the socket link: 0 to 0.3 us a traversal, and its bandwidth",
            )
    elif stated.host.sockets is None and (plan.sockets > 1 or _printed_pairs(box, Level.SYS)):
        yield Assumption(
            text=f"{plan.sockets} socket{'s' if plan.sockets > 1 else ''}, {_EVIDENCE[plan.socket_evidence]}: there is "
            f"no NUMA column ({_cells(box, _printed_pairs(box, Level.SYS)) or 'no SYS pair'})",
            settle="lscpu | grep Socket ; cat /sys/bus/pci/devices/<address>/numa_node for each GPU",
            matters="which pairs cross the socket link: 0 to 0.3 us a traversal, and its bandwidth",
        )
    apart = [
        (one, other)
        for one, other in _printed_pairs(box, Level.PIX, Level.PXB, Level.PHB, Level.NODE)
        if plan.gpu_numa[one] is not None
        and plan.gpu_numa[other] is not None
        and plan.gpu_numa[one] != plan.gpu_numa[other]
    ]
    if apart:
        yield Assumption(
            text=f"cells are believed where the NUMA column contradicts them ({_cells(box, apart)}, but on two nodes)",
            settle="cat /sys/bus/pci/devices/<address>/numa_node for each GPU",
            matters="whether these pairs cross the socket link",
        )


def _all(box: Box) -> range:
    return range(len(box.matrix.gpus))


def _sys_inside_node(box: Box) -> Iterator[Assumption]:
    """SYS although one NUMA node: host bridges of one socket (Sapphire Rapids, some WRX90 and virtual machines)."""
    plan = box.plan
    pairs = [
        (one, other)
        for one, other in _printed_pairs(box, Level.SYS)
        if plan.gpu_numa[one] is not None and plan.gpu_numa[one] == plan.gpu_numa[other]
        and plan.gpu_sockets[one] == plan.gpu_sockets[other]
    ]  # fmt: skip
    if pairs:
        yield Assumption(
            text=f"SYS inside one NUMA node is a crossing of host bridges, not of sockets ({_cells(box, pairs)})",
            settle="lspci -tv: bridges of one CPU? A dependent load takes 1.4 us inside a socket, more across",
            matters="a socket link would add up to 0.3 us a traversal and cap the rate",
        )


def _virtual_machine(box: Box) -> Iterator[Assumption]:
    pairs, matrix = _printed_pairs(box), box.matrix
    guest = {"PHB": "virtual machines print"} | ({} if any(matrix.cpu_affinity) else {"SYS": "WSL prints"})
    for word, who in guest.items():
        if box.overlay.switches is not None or not pairs or pairs != _printed_pairs(box, Level[word]):
            continue
        yield Assumption(
            text=f"every GPU on a root port of its own: all pairs are {word} ({_cells(box, pairs)}), which {who} "
            "whatever the wiring",
            settle="nvidia-smi topo -m or lspci -tv on the host instead of the guest",
            matters="hidden switches share uplinks and shorten traversals (0.37 against 0.7 us); hidden sockets add",
        )


def _shared_uplinks(box: Box) -> Iterator[Assumption]:
    if box.overlay.switches is not None:
        return
    by_link: dict[PcieLink, list[PlannedSwitch]] = {}
    for switch in box.plan.switches:
        if len(switch.gpus) > 1:
            by_link.setdefault(box.uplink(switch), []).append(switch)
    for link, switches in by_link.items():
        one, other = switches[0].gpus[:2]
        pairs = [pair for switch in switches for pair in combinations(switch.gpus, 2)]
        behind = "; ".join(f"{switch.name}: {_names(box, switch.gpus)}" for switch in switches)
        yield Assumption(
            text=f"GPUs of one switch share one Gen{link[0]} x{link[1]} uplink, {behind} ({_cells(box, pairs)})",
            settle=f"copy from {_names(box, [one])} and {_names(box, [other])} out of the switch at once: half the "
            "rate each means a shared uplink. lspci -tv shows a cascade of chips",
            matters=f"traffic that leaves a switch shares {format_rate(pcie_bandwidth(*link))}; an uplink each would "
            "double it or more",
        )


def _trees(box: Box) -> Iterator[Assumption]:
    """PXB: a switch over switches, or one chip that shows its bridges nested."""
    if box.overlay.switches is not None:
        return
    nested: list[tuple[str, list[tuple[int, int]]]] = []
    for top in (switch for switch in box.plan.switches if switch.behind is None):
        inside = [switch for switch in box.plan.switches if switch.behind == top.name]
        members = {index for switch in (top, *inside) for index in _indices(box, switch)}
        pairs = [
            (one, other)
            for one, other in combinations(sorted(members), 2)
            if box.plan.distances.of(one, other) is Level.PXB and (one, other) not in box.plan.distances.hidden
        ]
        if len(inside) > 1:
            gpus = sorted(gpu for switch in (top, *inside) for gpu in switch.gpus)
            yield Assumption(
                text=f"{top.name} joins {len(inside)} switches of {_names(box, gpus)} under one uplink "
                f"({_cells(box, pairs) or 'by the distances of other pairs'})",
                settle="lspci -tv shows the bridges; state switches in the overlay",
                matters="a cascade without it saves a switch between the groups (0.105 us a traversal)",
            )
        elif pairs:
            nested.append((top.name, pairs))
    if nested:
        cells = _cells(box, [pair for _, pairs in nested for pair in pairs])
        yield Assumption(
            text=f"PXB at {', '.join(name for name, _ in nested)} is inside one chip, which shows its bridges nested "
            f"({cells})",
            settle="lspci -tv shows the bridges; state switches in the overlay",
            matters="two chips in a row add a switch (0.105 us a traversal)",
        )


def _indices(box: Box, switch: PlannedSwitch) -> tuple[int, ...]:
    """Rows of the matrix of what hangs on a switch."""
    return (*switch.gpus, *(len(box.matrix.gpus) + nic for nic in switch.nics))


def _partitions(box: Box) -> Iterator[Assumption]:
    holders = box.plan.gpu_switches
    pairs = [
        (one, other)
        for one, other in _printed_pairs(box, Level.PHB, Level.NODE)
        if holders[one] and holders[other] and holders[one] != holders[other]
    ]
    if pairs and box.overlay.switches is None:
        yield Assumption(
            text=f"different switches of a socket meet at the root complex ({_cells(box, pairs)}), not inside one "
            "partitioned chip",
            settle="a dependent load between them: 0.7 us inside a chip, 1.4 us through the CPU",
            matters="inside a chip they are as near as PIX and leave the uplinks alone",
        )


def _root_complexes(box: Box) -> Iterator[Assumption]:
    """Said where it moves a figure: two switches that may share a root complex's way to memory, or may not."""
    if box.overlay.root_complexes:
        return
    tops = {box.plan.top(holder): box.plan.switch(holder).socket for holder in box.plan.gpu_switches if holder}
    crowded = [name for name, socket in tops.items() if list(tops.values()).count(socket) > 1]
    if crowded:
        which = ", ".join(crowded) if len(crowded) <= _SHOWN + 1 else f"{len(crowded)} switches at root ports"
        yield Assumption(
            text=f"{which} have a way each to the memory of their socket (no cell shows what root complexes carry)",
            settle="lspci -tv: uplinks on one bus share a root complex; state root_complexes in the overlay",
            matters="copies to and from the host: two switches on one root complex reach 73 GB/s, on two 114 (WRX90)",
        )


def _hidden_by_nvlink(box: Box) -> Iterator[Assumption]:
    distances = box.plan.distances
    if distances.guessed:
        yield Assumption(
            text="the PCIe path of pairs that show NVLink is taken from NUMA columns and from what is printed of other "
            f"pairs ({_cells(box, distances.guessed)})",
            settle="lspci -tv",
            matters="only traffic that avoids NVLink (host memory, NCCL with NVLink or P2P off)",
        )
    switched = [gpu for gpu in _all(box) if box.behind_nvswitch(gpu)]
    if switched:
        row = [(switched[0], other) for other in box.nvlink_peers(switched[0])]
        yield Assumption(
            text=f"an NVSwitch: one set of links per GPU, shared by all its peers ({_cells(box, row)})",
            settle="nvidia-smi nvlink -s",
            matters="without it every peer would have links of its own",
        )


def _slots(box: Box) -> Iterator[Assumption]:
    every = box.overlay.link

    def stated(gpu: int) -> bool:
        own = box.overlay.gpus.get(gpu)
        generation = every.generation or (own.generation if own else None)
        width = every.width or (own.width if own else None)
        return generation is not None and width is not None

    by_link: dict[tuple[int, int], list[int]] = {}
    for gpu in _all(box):
        if not stated(gpu):
            by_link.setdefault(box.gpu_link(gpu), []).append(gpu)
    for link, gpus in by_link.items():
        why = "the most GPU and host can do" if box.gpus[gpus[0]] else "the GPU model is not stated"
        yield Assumption(
            text=f"{_names(box, gpus)} on Gen{link[0]} x{link[1]}, {format_rate(pcie_bandwidth(*link))} per direction: "
            f"{why} (the matrix does not show links)",
            settle="lspci -vv, LnkSta of each GPU under load (idle links train down); nvidia-smi -q -d PCIE",
            matters="the bandwidth of every route through the slot; x8 or one generation less halves it",
        )


def _models(box: Box) -> Iterator[Assumption]:
    unknown = [gpu for gpu in _all(box) if box.gpus[gpu] is None]
    if unknown:
        yield Assumption(
            text=f"the model of {_names(box, unknown)} is not stated",
            settle="nvidia-smi -L ; state gpu in the overlay",
            matters="kernel times, memory, NCCL's constants, the PCIe generation",
        )


def _nics(box: Box) -> Iterator[Assumption]:
    if any(nic not in box.overlay.nics for nic in range(len(box.matrix.nics))):
        yield Assumption(
            text=f"NICs on Gen{DEFAULT_GENERATION} x{DEFAULT_WIDTH}; those PIX or PXB to each other only are functions "
            "of one card on one root port",
            settle="lspci -vv, LnkSta of each NIC; state nics in the overlay",
            matters="only traffic of the NICs themselves",
        )


def _host(box: Box) -> Iterator[Assumption]:
    stated = box.overlay.host
    if box.host.key == UNKNOWN_HOST:
        yield Assumption(
            text="the CPU is not stated: memory, socket link and NCCL's constant are those of a common server",
            settle="lscpu ; state host.cpu",
            matters="host memory and socket rates, NCCL's default P2P level and its search between sockets",
        )
    elif box.plan.sockets > 1 and stated.socket_link.links is None:
        yield Assumption(
            text=f"{box.host.socket_links} links between the sockets: the most {box.host.name} has",
            settle="the board's manual (AMD boards with 160 PCIe lanes wire three); state host.socket_link",
            matters="the rate of many flows at once between the sockets",
        )


def _peers(box: Box) -> Iterator[Assumption]:
    if box.overlay.host.acs_redirect is None and any(len(switch.gpus) > 1 for switch in box.plan.switches):
        yield Assumption(
            text="ACS redirect is off: peers of one switch talk inside it",
            settle="lspci -vvv | grep ACSCtl (ReqRedir-); else state host.acs_redirect",
            matters="with it on they share the uplink and cross the root complex: half the bandwidth, 0.3 us more",
        )
    if len(box.matrix.gpus) > 1 and box.overlay.p2p.driver is None:
        refused = sorted({kind.name for kind in box.gpus if kind is not None and not kind.pcie_p2p})
        yield Assumption(
            text=f"the stock driver refuses peer-to-peer over PCIe on {', '.join(refused)}"
            if refused
            else "the driver grants peer-to-peer over PCIe between all GPUs",
            settle="nvidia-smi topo -p2p r ; state p2p.driver",
            matters="without it every byte crosses host memory: three traversals instead of one",
        )


_RULES: Final[tuple[Callable[[Box], Iterator[Assumption]], ...]] = (
    _repairs,
    _sockets,
    _sys_inside_node,
    _virtual_machine,
    _shared_uplinks,
    _trees,
    _partitions,
    _root_complexes,
    _hidden_by_nvlink,
    _slots,
    _models,
    _nics,
    _host,
    _peers,
)
