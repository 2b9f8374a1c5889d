"""Small machines for tests, wired by hand."""

from __future__ import annotations

from collections.abc import Sequence

from pciesim.fabric import Device, DeviceKind, Fabric, Host, Link, LinkKind, NcclEnvironment
from pciesim.units import GB

GEN5_X16 = 63.015 * GB


def _pair(a: str, b: str, kind: LinkKind, bandwidth: float, **more: int) -> list[Link]:
    return [
        Link(source=a, target=b, kind=kind, bandwidth=bandwidth, **more),
        Link(source=b, target=a, kind=kind, bandwidth=bandwidth, **more),
    ]


def box(
    groups: Sequence[Sequence[int]],
    *,
    switched: bool = False,
    sockets: Sequence[int] | None = None,
    pcie: float = GEN5_X16,
    uplink: float | None = None,
    nccl: NcclEnvironment | None = None,
    vendor: str = "amd",
    name: str = "test box",
) -> Fabric:
    """GPUs in groups: behind one switch each (``switched``), else on root ports of their own.

    ``sockets[g]`` is the socket of group g (default: all on socket 0).
    """
    sockets = list(sockets) if sockets is not None else [0] * len(groups)
    devices: list[Device] = []
    links: list[Link] = []
    lane = {"generation": 5, "width": 16}
    for socket in sorted(set(sockets)):
        devices += [
            Device(name=f"socket{socket}", kind=DeviceKind.SOCKET, numa=socket),
            Device(name=f"rc{socket}", kind=DeviceKind.ROOT_COMPLEX, numa=socket),
            Device(name=f"memory{socket}", kind=DeviceKind.MEMORY, numa=socket),
        ]
        links += _pair(f"rc{socket}", f"socket{socket}", LinkKind.ON_CHIP, 500 * GB)
        links += _pair(f"rc{socket}", f"memory{socket}", LinkKind.DRAM, 200 * GB)
    if len(set(sockets)) > 1:
        links += _pair("socket0", "socket1", LinkKind.SOCKET, 192 * GB)
    for number, (group, socket) in enumerate(zip(groups, sockets, strict=True)):
        if switched:
            switch, port = f"switch{number}", f"port{number}"
            devices += [Device(name=switch, kind=DeviceKind.SWITCH), Device(name=port, kind=DeviceKind.ROOT_PORT)]
            links += _pair(switch, port, LinkKind.PCIE, uplink or pcie, **lane)
            links += _pair(port, f"rc{socket}", LinkKind.ON_CHIP, 500 * GB)
        for gpu in group:
            devices.append(Device(name=f"GPU{gpu}", kind=DeviceKind.GPU, index=gpu, numa=socket))
            if switched:
                links += _pair(f"GPU{gpu}", switch, LinkKind.PCIE, pcie, **lane)
            else:
                devices.append(Device(name=f"port-gpu{gpu}", kind=DeviceKind.ROOT_PORT))
                links += _pair(f"GPU{gpu}", f"port-gpu{gpu}", LinkKind.PCIE, pcie, **lane)
                links += _pair(f"port-gpu{gpu}", f"rc{socket}", LinkKind.ON_CHIP, 500 * GB)
    where = {gpu: (number, sockets[number]) for number, group in enumerate(groups) for gpu in group}
    order = sorted(where)

    def cell(a: int, b: int) -> str:
        if a == b:
            return "X"
        if where[a][1] != where[b][1]:
            return "SYS"
        return "PIX" if switched and where[a][0] == where[b][0] else "NODE"

    return Fabric(
        name=name,
        devices=tuple(devices),
        links=tuple(links),
        matrix=tuple(tuple(cell(a, b) for b in order) for a in order),
        gpu_model="rtx_pro_6000",
        host=Host(vendor=vendor, nccl_socket_bandwidth=16 * GB if vendor == "amd" else 22 * GB),
        nccl=nccl or NcclEnvironment(p2p_level="SYS"),
    )
