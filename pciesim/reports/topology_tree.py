"""The tree of a fabric, from sockets down to cards, for what draws it."""

from __future__ import annotations

import math
from typing import Final

from pciesim.fabric import Device, DeviceKind, Fabric, Link
from pciesim.units import BytesPerSecond

__all__ = ["children_of", "is_usual", "limit_of", "upward"]

_ABOVE: Final = {
    DeviceKind.GPU: (DeviceKind.SWITCH, DeviceKind.ROOT_PORT),
    DeviceKind.NIC: (DeviceKind.SWITCH, DeviceKind.ROOT_PORT),
    DeviceKind.ROOT_PORT: (DeviceKind.ROOT_COMPLEX,),
    DeviceKind.ROOT_COMPLEX: (DeviceKind.SOCKET,),
    DeviceKind.MEMORY: (DeviceKind.SOCKET,),
}


def upward(fabric: Fabric, device: Device) -> Link | None:
    """The link from a device towards its socket, None for a socket."""
    if device.kind is DeviceKind.SWITCH:  # also has links to the switches below: the way up leads to a socket
        sockets = [socket.name for socket in fabric.of_kind(DeviceKind.SOCKET)]
        route = min((fabric.route(device.name, socket) for socket in sockets), key=lambda each: len(each.links))
        return fabric.links[route.links[0]]
    above = _ABOVE.get(device.kind, ())
    links = (link for link in fabric.links if link.source == device.name)
    return next((link for link in links if fabric.device(link.target).kind in above), None)


def children_of(fabric: Fabric) -> dict[str, list[tuple[Device, Link]]]:
    """Devices below each device with their link up: in order of the lowest GPU below, then NICs, memory last."""
    found: dict[str, list[tuple[Device, Link]]] = {}
    for device in fabric.devices:
        link = upward(fabric, device)
        if link is not None:
            found.setdefault(link.target, []).append((device, link))

    def lowest(device: Device) -> float:
        if device.kind is DeviceKind.GPU:
            return device.index or 0
        return min((lowest(below) for below, _ in found.get(device.name, ())), default=math.inf)

    def order(each: tuple[Device, Link]) -> tuple[bool, float, bool]:
        return each[0].kind is DeviceKind.MEMORY, lowest(each[0]), each[0].kind is DeviceKind.NIC

    return {name: sorted(below, key=order) for name, below in found.items()}


def is_usual(fabric: Fabric, root_complex: Device) -> bool:
    """Whether a root complex is the one that its socket gets unasked: then it says nothing and is not shown."""
    up = upward(fabric, root_complex)
    own = [link for link in fabric.links if up is not None and link.target == up.target]
    beside = [link for link in own if fabric.device(link.source).kind is DeviceKind.ROOT_COMPLEX]
    return root_complex.name.startswith("root_complex") and len(beside) == 1


def limit_of(fabric: Fabric, root_complex: Device) -> tuple[BytesPerSecond, str]:
    """(what a root complex carries to its socket, the name of the quadrant that says so), (0, "") where its ports
    limit before it does."""
    up = upward(fabric, root_complex)
    if up is None:
        return 0.0, ""
    found = [(up.bandwidth, "")]
    found += [
        (each.capacity, each.name.removesuffix("_up"))
        for each in fabric.constraints
        if (up.source, up.target) in each.links
    ]
    least = min(found)
    ports = sum(link.bandwidth for link in fabric.links if link.target == root_complex.name) - up.bandwidth
    return least if least[0] < ports else (0.0, "")
