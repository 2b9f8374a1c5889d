"""Slots: link width and generation of cards, cards moved to another place, a switch added, another rank order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from pciesim.errors import InputError
from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind
from pciesim.hardware import PCIE_GENERATIONS, PCIE_WIDTHS, pcie_bandwidth
from pciesim.scenario import Scenario
from pciesim.strategies.rewire import gpu_named, rewired, upstream
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["ADD_SWITCH", "LINK_WIDTH", "MOVE_CARD", "RANK_ORDER"]

_WIDTH: Final = re.compile(r"(?:gen(?P<generation>\d))?x(?P<width>\d+)(?:@(?P<gpus>[\w.]+))?")
_GEN5: Final = 5


def _widths(scenario: Scenario, argument: str) -> Scenario:
    fabric = scenario.fabric
    found = _WIDTH.fullmatch(argument)
    if not found or int(found["width"]) not in PCIE_WIDTHS:
        raise InputError(f"slots={argument}: write it like 'x8' (all cards), 'x8@3' (GPU 3) or 'gen4x16@2.3'")
    names = {gpu.name for gpu in fabric.gpus}
    if found["gpus"]:
        names = {gpu_named(fabric, text, "slots").name for text in found["gpus"].split(".")}
    generation = int(found["generation"]) if found["generation"] else None
    if generation is not None and generation not in PCIE_GENERATIONS:
        raise InputError(f"slots={argument}: PCIe has generations {', '.join(map(str, PCIE_GENERATIONS))}")

    def changed(link: Link) -> Link:
        if link.kind is not LinkKind.PCIE or not names & {link.source, link.target}:
            return link
        new = generation or link.generation or _GEN5
        width = int(found["width"])
        return replace(link, generation=new, width=width, bandwidth=pcie_bandwidth(new, width))

    links = tuple(changed(link) for link in fabric.links)
    return replace(scenario, fabric=replace(fabric, name=f"{fabric.name}, {argument}", links=links))


def _move(scenario: Scenario, argument: str) -> Scenario:
    fabric = scenario.fabric
    card, arrow, place = argument.partition("@")
    if not arrow:
        raise InputError(f"move={argument}: write it like '4@switch0' or '4@root_complex0'")
    gpu = gpu_named(fabric, card, "move")
    places = [each.name for each in fabric.devices if each.kind in (DeviceKind.SWITCH, DeviceKind.ROOT_COMPLEX)]
    if place not in places:
        raise InputError(f"move={argument}: '{fabric.name}' has no place '{place}' (valid: {', '.join(places)})")
    own = fabric.link(gpu.name, upstream(fabric, gpu.name))
    target = fabric.device(place)
    devices = [each if each.name != gpu.name else replace(each, numa=_numa(fabric, place)) for each in fabric.devices]
    links = _without_slots(fabric, {gpu.name})
    slot = place
    if target.kind is DeviceKind.ROOT_COMPLEX:
        slot = f"root_port_of_{gpu.name}"
        devices.append(Device(name=slot, kind=DeviceKind.ROOT_PORT, numa=target.numa))
        links += _both(slot, place, replace(own, kind=LinkKind.ON_CHIP, generation=None, width=None))
    links += _both(gpu.name, slot, own)
    return replace(scenario, fabric=rewired(fabric, devices=devices, links=links, name=f"{fabric.name}, {argument}"))


def _add_switch(scenario: Scenario, argument: str) -> Scenario:
    fabric = scenario.fabric
    gpus = [gpu_named(fabric, text, "switch") for text in argument.split(".")]
    if len(gpus) < 2:
        raise InputError(f"switch={argument}: name at least two GPUs, as in 'switch=add:0.1.2.3'")
    complexes = [each for each in fabric.devices if each.kind is DeviceKind.ROOT_COMPLEX]
    if not complexes:
        raise InputError(f"switch={argument}: '{fabric.name}' has no root complex to put it on")
    near = min(complexes, key=lambda each: len(fabric.route(gpus[0].name, each.name).links))
    numa = _numa(fabric, near.name)
    number = sum(1 for each in fabric.devices if each.kind is DeviceKind.SWITCH)
    name, port = f"added_switch{number}", f"added_root_port{number}"
    names = {gpu.name for gpu in gpus}
    devices = [replace(each, numa=numa) if each.name in names else each for each in fabric.devices]
    devices += [
        Device(name=name, kind=DeviceKind.SWITCH, numa=numa),
        Device(name=port, kind=DeviceKind.ROOT_PORT, numa=numa),
    ]
    slots = {gpu.name: fabric.link(gpu.name, upstream(fabric, gpu.name)) for gpu in gpus}
    links = _without_slots(fabric, names)
    for gpu in gpus:
        links += _both(gpu.name, name, slots[gpu.name])
    uplink = slots[gpus[0].name]
    links += _both(name, port, uplink)
    links += _both(port, near.name, replace(uplink, kind=LinkKind.ON_CHIP, generation=None, width=None))
    return replace(
        scenario, fabric=rewired(fabric, devices=devices, links=links, name=f"{fabric.name}, switch {argument}")
    )


def _without_slots(fabric: Fabric, gpus: set[str]) -> list[Link]:
    """Every link but those between a card and its slot."""
    return [link for link in fabric.links if not (link.kind is LinkKind.PCIE and gpus & {link.source, link.target})]


def _both(one: str, other: str, like: Link) -> list[Link]:
    return [replace(like, source=one, target=other), replace(like, source=other, target=one)]


def _numa(fabric: Fabric, place: str) -> int | None:
    """The NUMA node of a place: its own, else that of the nearest memory, else of a GPU that reaches it directly."""
    own = fabric.device(place).numa
    if own is None and fabric.of_kind(DeviceKind.MEMORY):
        own = fabric.memory_of(place).numa
    if own is not None:
        return own
    near = (gpu.numa for gpu in fabric.gpus if not fabric.route(gpu.name, place).socket_hops)
    return next(near, None)


def _order(scenario: Scenario, argument: str) -> Scenario:
    gpus = tuple(gpu_named(scenario.fabric, text, "order").name for text in argument.split("."))
    if sorted(gpus) != sorted(scenario.gpus):
        given = ".".join(str(scenario.fabric.device(name).index) for name in scenario.gpus)
        raise InputError(f"order={argument}: must list every GPU of the group once, as in '{given}'")
    return replace(scenario, gpus=gpus)


LINK_WIDTH: Final = Strategy(
    axis="slots",
    name="width",
    argument="x8, x8@3 or gen4x16@2.3",
    sentence="cards run at another link width or generation",
    source="PCI Express base specification; club-3090 (x4 slot)",
    apply=_widths,
    turn_on=lambda _: (Switch(engine="box", note="BIOS bifurcation, or another slot; check LnkSta under load"),),
    number="same",
    size="same bytes at another rate",
    criticality="exposed where bytes, not latency, set the time",
    risk="none",
    hurts="narrower links: prefill and large batches far more than one user",
)

MOVE_CARD: Final = Strategy(
    axis="move",
    name="card",
    argument="4@switch0 or 4@root_complex1",
    sentence="a card goes behind another switch, or to a root port of its own",
    source="local-inference-lab/rtx6kpro hardware/wrx90-cpayne-8gpu-root-topology-comparison.md",
    apply=_move,
    turn_on=lambda _: (Switch(engine="box", note="power down, move the card, read nvidia-smi topo -m again"),),
    number="same",
    size="same",
    criticality="shorter or longer routes; other shared uplinks",
    risk="slots and power of the board are not checked",
    hurts="where it splits an island",
)

ADD_SWITCH: Final = Strategy(
    axis="switch",
    name="add",
    argument="GPUs, as in 0.1.2.3",
    sentence="a PCIe switch joins these cards behind one uplink",
    source="rtx6kpro hardware/ (store to peer 0.65-0.73 us on a switch, 1.06-1.12 across root ports)",
    apply=_add_switch,
    turn_on=lambda _: (Switch(engine="box", note="a Gen5 switch board (PEX89xxx, PM50xxx) and risers"),),
    number="same",
    size="peer traffic leaves the root complex; host traffic shares one uplink",
    criticality="shorter routes inside the switch",
    risk="some switches make posted writes collapse when GPUs write to two root ports at once",
    hurts="traffic to GPUs and memory outside: one uplink for all",
)

RANK_ORDER: Final = Strategy(
    axis="order",
    name="ranks",
    argument="GPUs in rank order, as in 0.4.1.5",
    sentence="ranks take the GPUs in another order",
    source="CUDA_VISIBLE_DEVICES",
    apply=_order,
    turn_on=lambda argument: (Switch(engine="box", flags=(f"CUDA_VISIBLE_DEVICES={argument.replace('.', ',')}",)),),
    number="same",
    size="same",
    criticality="a ring without a graph file follows it where NCCL's search fails",
    risk="none",
    hurts="where neighbours in the ring end up on two sockets",
)
