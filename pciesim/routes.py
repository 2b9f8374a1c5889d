"""Ways through a machine: the shortest from device to device, and what it crosses.

Every wire is two links, so hops to a device are hops from it. A route never passes through a third GPU, a NIC or a
memory; NVLink is taken only where it joins the two ends directly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pciesim.errors import InputError
from pciesim.wiring import Constraint, Device, DeviceKind, Link, LinkKind

__all__ = ["Route", "Wires", "find_path", "hops_from", "route_along"]

_ENDS: Final = (DeviceKind.GPU, DeviceKind.NIC, DeviceKind.MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of a message. ``links`` and ``constraints`` are indices into the fabric's tuples.

    The counters say what the route passes on its way; partitions of one chip count as one switch, and two root
    complexes are passed between those of one socket as well as between sockets (a message still crosses from PCIe to
    PCIe once, so that latency counts them once: :mod:`pciesim.physics`). ``path_type`` is NCCL's and nvidia-smi's word
    for it (``NV#`` appears as ``NVL``, the old ``SOC`` as ``SYS``).
    """

    source: str
    target: str
    links: tuple[int, ...]
    constraints: tuple[int, ...]
    switches: int
    root_complexes: int
    socket_hops: int
    nvlink: bool
    path_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """Devices and links, indexed for walks. ``neighbours`` are (device, index of the link to it), by name."""

    devices: Mapping[str, Device]
    links: tuple[Link, ...]
    index: Mapping[tuple[str, str], int]
    neighbours: Mapping[str, tuple[tuple[str, int], ...]]

    @classmethod
    def of(cls, devices: Sequence[Device], links: tuple[Link, ...], *, machine: str) -> Wires:
        """The index. Raises InputError (naming the ``machine``) for two devices or links of one name, a link that ends
        nowhere or has no bandwidth."""
        by_name: dict[str, Device] = {}
        for device in devices:
            if device.name in by_name:
                raise InputError(f"fabric '{machine}' has two devices named '{device.name}'")
            by_name[device.name] = device
        index: dict[tuple[str, str], int] = {}
        neighbours: dict[str, list[tuple[str, int]]] = {name: [] for name in by_name}
        for position, link in enumerate(links):
            pair = link.source, link.target
            if link.source not in by_name or link.target not in by_name:
                raise InputError(f"fabric '{machine}': link {link.source} -> {link.target} ends at an unknown device")
            if not link.bandwidth > 0:
                raise InputError(f"fabric '{machine}': link {link.source} -> {link.target} has no bandwidth")
            if pair in index:
                raise InputError(f"fabric '{machine}' has two links {link.source} -> {link.target}")
            index[pair] = position
            neighbours[link.source].append((link.target, position))
        ordered = {name: tuple(sorted(found)) for name, found in neighbours.items()}
        return cls(devices=by_name, links=links, index=index, neighbours=ordered)


def find_path(wires: Wires, source: str, target: str, *, nvlink: bool, acs_redirect: bool) -> list[str]:
    """Names of the devices along the route: over NVLink where there is one (and it may be used), else the shortest.

    ``acs_redirect`` sends what would turn inside a switch up to the nearest root complex and back. Raises KeyError for
    an unknown device, InputError where nothing connects the two.
    """
    if nvlink and (source, target) in wires.index:
        return [source, target]
    path = _shortest(wires, source, target)
    if acs_redirect and _turns_in_switch(wires, path):
        complexes = [device.name for device in wires.devices.values() if device.kind is DeviceKind.ROOT_COMPLEX]
        up = min((_shortest(wires, source, each) for each in complexes), key=len)
        path = up + _shortest(wires, up[-1], target)[1:]
    return path


def route_along(wires: Wires, path: Sequence[str], constraints: Sequence[Constraint], word: str) -> Route:
    """The route of a path. ``word`` is its type as printed; where it is empty, the type is told by the wiring."""
    positions = tuple(wires.index[pair] for pair in pairwise(path))
    links = [wires.links[position] for position in positions]
    kinds = [wires.devices[name].kind for name in path]
    inside_chip = sum(
        1 for (one, other), link in zip(pairwise(kinds), links, strict=True)
        if link.kind is LinkKind.ON_CHIP and one is other is DeviceKind.SWITCH
    )  # fmt: skip
    switches = kinds.count(DeviceKind.SWITCH) - inside_chip
    root_complexes = kinds.count(DeviceKind.ROOT_COMPLEX)
    socket_hops = sum(1 for link in links if link.kind is LinkKind.SOCKET)
    nvlink = any(link.kind is LinkKind.NVLINK for link in links)
    crossed = set(pairwise(path))
    return Route(
        source=path[0],
        target=path[-1],
        links=positions,
        constraints=tuple(
            position for position, limit in enumerate(constraints) if not crossed.isdisjoint(limit.links)
        ),
        switches=switches,
        root_complexes=root_complexes,
        socket_hops=socket_hops,
        nvlink=nvlink,
        path_type="NVL" if nvlink else word or _word(switches, root_complexes, socket_hops),
    )


def _word(switches: int, root_complexes: int, socket_hops: int) -> str:
    """nvidia-smi's word: PHB within one host bridge, NODE between host bridges of one socket."""
    if socket_hops:
        return "SYS"
    if root_complexes:
        return "NODE" if root_complexes > 1 else "PHB"
    return "PXB" if switches > 1 else "PIX"


def hops_from(wires: Wires, device: str) -> dict[str, int]:
    """Hops from a device to every one it reaches, over any link and through any device."""
    hops = {device: 0}
    waiting = deque((device,))
    while waiting:
        here = waiting.popleft()
        for there, _ in wires.neighbours[here]:
            if there not in hops:
                hops[there] = hops[here] + 1
                waiting.append(there)
    return hops


def _shortest(wires: Wires, source: str, target: str) -> list[str]:
    """Names along the route with fewest hops, the first by name among equals."""
    hops = {target: 0}
    waiting = deque((target,))
    while waiting and source not in hops:
        here = waiting.popleft()
        for there, position in wires.neighbours[here]:
            passable = there == source or wires.devices[there].kind not in _ENDS
            if passable and there not in hops and wires.links[position].kind is not LinkKind.NVLINK:
                hops[there] = hops[here] + 1
                waiting.append(there)
    if source not in hops:
        raise InputError(f"nothing connects {source} to {target}")
    path = [source]
    while path[-1] != target:
        here = path[-1]
        path.append(
            next(
                there
                for there, position in wires.neighbours[here]
                if hops.get(there) == hops[here] - 1 and wires.links[position].kind is not LinkKind.NVLINK
            )
        )
    return path


def _turns_in_switch(wires: Wires, path: Sequence[str]) -> bool:
    kinds = {wires.devices[name].kind for name in path}
    return DeviceKind.SWITCH in kinds and not kinds & {DeviceKind.ROOT_COMPLEX, DeviceKind.SOCKET}
