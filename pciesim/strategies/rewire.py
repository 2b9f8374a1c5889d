"""Changing the wiring of a sealed fabric: links replaced, devices added, the words of the matrix found again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pciesim.errors import InputError
from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind

__all__ = ["gpu_named", "rewired", "upstream"]


def gpu_named(fabric: Fabric, text: str, where: str) -> Device:
    """The GPU written as a number or a device name. Raises InputError naming those there are."""
    for gpu in fabric.gpus:
        if text in (gpu.name, str(gpu.index)):
            return gpu
    raise InputError(f"{where}: '{fabric.name}' has no GPU '{text}' (valid: 0 to {len(fabric.gpus) - 1})")


def upstream(fabric: Fabric, gpu: str) -> str:
    """The device a GPU's slot belongs to: a switch or a root port."""
    return next(link.target for link in fabric.links if link.source == gpu and link.kind is LinkKind.PCIE)


def rewired(fabric: Fabric, *, devices: Iterable[Device], links: Iterable[Link], name: str) -> Fabric:
    """The fabric with other devices and links, and a matrix that says what nvidia-smi would print of them."""
    changed = replace(fabric, name=name, devices=tuple(devices), links=tuple(links), matrix=(), nic_matrix=())
    order = [gpu.name for gpu in changed.gpus]
    old = [gpu.name for gpu in fabric.gpus]
    pcie = [[_word(changed, a, b) if a != b else "X" for b in order] for a in order]
    for row, a in enumerate(order):  # NVLink stays where it is: bridges move with their cards
        for column, b in enumerate(order):
            cell = fabric.matrix[old.index(a)][old.index(b)] if fabric.matrix else ""
            if cell.startswith("NV"):
                pcie[row][column] = cell
    return replace(changed, matrix=tuple(map(tuple, pcie)))


def _word(fabric: Fabric, a: str, b: str) -> str:
    route = fabric.route(a, b, nvlink=False)
    if route.socket_hops:
        return "SYS"
    if not route.root_complexes:
        kinds = [fabric.device(link.target).kind for link in (fabric.links[each] for each in route.links)]
        return "PXB" if kinds.count(DeviceKind.SWITCH) > 1 else "PIX"
    numas = {fabric.device(a).numa, fabric.device(b).numa} - {None}
    return "NODE" if len(numas) < 2 else "SYS"
