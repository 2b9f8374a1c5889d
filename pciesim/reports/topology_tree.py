"""The tree of a fabric, from sockets down to cards, for what draws it."""

from __future__ import annotations

from typing import Final

from pciesim.fabric import Device, DeviceKind, Fabric, Link

__all__ = ["children_of", "upward"]

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
    """Devices below each device with their link up: switches and ports first, then cards, each by number."""
    found: dict[str, list[tuple[Device, Link]]] = {}
    for device in fabric.devices:
        link = upward(fabric, device)
        if link is not None:
            found.setdefault(link.target, []).append((device, link))
    return {name: sorted(below, key=lambda each: _order(each[0])) for name, below in found.items()}


def _order(device: Device) -> tuple[int, int, str]:
    kinds = list(DeviceKind)
    number = "".join(filter(str.isdecimal, device.name))
    return kinds.index(device.kind), int(number or 0), device.name
