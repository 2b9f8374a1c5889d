"""A fabric back to text: the matrix as nvidia-smi prints it, and an overlay that states everything else.

Reading both again gives the same fabric, with nothing left to assume about links, switches, sockets and peers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind
from pciesim.formats.topology_build import unbound
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix, is_nvlink
from pciesim.units import GB, MIB, BytesPerSecond

__all__ = ["fabric_matrix", "fabric_overlay", "render_overlay"]

_LINE: Final = 118


def fabric_matrix(fabric: Fabric) -> TopologyMatrix:
    """The matrix of a fabric. NUMA ranges and the GPUs' own NUMA numbers are not kept by a fabric."""
    gpus, nics = fabric.gpus, fabric.nics
    to_nics = [[row[gpu] for row in fabric.nic_matrix] for gpu in range(len(gpus))]
    rows = [(*row, *to_nics[gpu]) for gpu, row in enumerate(fabric.matrix)]
    return TopologyMatrix(
        gpus=tuple(gpu.name for gpu in gpus),
        nics=tuple(nic.name for nic in nics),
        cells=(*(tuple(row) for row in rows), *fabric.nic_matrix),
        cpu_affinity=tuple(gpu.affinity for gpu in gpus),
        numa_affinity=tuple("" if gpu.numa is None else str(gpu.numa) for gpu in gpus),
        gpu_numa=tuple("" for _ in gpus),
        nic_labels=tuple((nic.name, nic.label) for nic in nics if nic.label),
    )


def fabric_overlay(fabric: Fabric) -> OverlayDocument:
    """The overlay that, beside :func:`fabric_matrix`, gives this fabric again."""
    slots = {gpu.name: _upward(fabric, gpu) for gpu in fabric.gpus}
    common = _most_common((link.generation, link.width) for link in slots.values())
    usual = {"model": fabric.gpu_model or None, "generation": common[0], "width": common[1]}
    nodes = _nodes(fabric)
    data: dict[str, Any] = {
        "schema": "pciesim/topology/1",
        "name": fabric.name,
        "gpu": usual["model"],
        "link": {"generation": common[0], "width": common[1]},
        "gpus": {
            gpu.index: _different(gpu, slots[gpu.name], usual)
            | {
                "label": gpu.label or None,
                "socket": None if _socket(fabric, gpu) == nodes.get(gpu.numa) else _socket(fabric, gpu),
            }
            for gpu in fabric.gpus
        },
        "nics": {
            nic.index: {"generation": link.generation, "width": link.width, "socket": _socket(fabric, nic)}
            for nic in fabric.nics
            for link in [_upward(fabric, nic)]
        },
        "switches": [_switch(fabric, switch) for switch in fabric.of_kind(DeviceKind.SWITCH)],
        "root_complexes": _root_complexes(fabric),
        "quadrants": _quadrants(fabric),
        "host": _host(fabric),
        "p2p": _peers(fabric),
        "nccl": {
            "version": fabric.nccl.version,
            "p2p": fabric.nccl.p2p,
            "p2p_level": fabric.nccl.p2p_level,
            "graph_file": fabric.nccl.graph_file,
            "algorithm": fabric.nccl.algorithm,
            "protocol": fabric.nccl.protocol,
            "channels": fabric.nccl.channels,
        },
        "profile": fabric.profile or None,
        "write_collapse": fabric.write_collapse,
        "concurrency": {
            key: _rate(value) if key in _RATES else value
            for key, value in asdict(fabric.concurrency).items()
            if value is not None
        },
    }
    return OverlayDocument.model_validate(_without_nothing(data))


def _without_nothing(value: Any) -> Any:
    """Keys that hold None are left out."""
    if isinstance(value, dict):
        return {key: _without_nothing(each) for key, each in value.items() if each is not None}
    return [_without_nothing(each) for each in value] if isinstance(value, list) else value


def _different(gpu: Device, slot: Link, usual: dict[str, Any]) -> dict[str, Any]:
    """What sets a GPU apart from the usual one."""
    own = {"model": gpu.model or None, "generation": slot.generation, "width": slot.width}
    return {key: value for key, value in own.items() if value != usual[key]}


def _nodes(fabric: Fabric) -> dict[int | None, int]:
    """NUMA node to socket."""
    return {
        memory.numa: _number(link.source)
        for memory in fabric.of_kind(DeviceKind.MEMORY)
        for link in fabric.links
        if link.target == memory.name
    }


def _most_common(values: Iterable[tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    found = list(values)
    return max(found, key=found.count)


def _upward(fabric: Fabric, device: Device) -> Link:
    """The PCIe link from a GPU, NIC or switch towards the CPU."""
    above = [
        link
        for link in fabric.links
        if link.source == device.name
        and link.kind is LinkKind.PCIE
        and fabric.device(link.target).kind in (DeviceKind.SWITCH, DeviceKind.ROOT_PORT)
    ]
    if device.kind is not DeviceKind.SWITCH:
        return above[0]
    # A switch also has links down to the switches below it: the way up is the first step of the way to a socket.
    first = next(
        fabric.links[fabric.route(device.name, socket.name).links[0]] for socket in _by_distance(fabric, device)
    )
    return first


def _by_distance(fabric: Fabric, device: Device) -> list[Device]:
    sockets = fabric.of_kind(DeviceKind.SOCKET)
    return sorted(sockets, key=lambda socket: len(fabric.route(device.name, socket.name).links))


def _socket(fabric: Fabric, device: Device) -> int:
    return _number(_by_distance(fabric, device)[0].name)


def _number(socket: str) -> int:
    return int(socket.removeprefix("socket"))


def _switch(fabric: Fabric, switch: Device) -> dict[str, Any]:
    below = [fabric.device(link.target) for link in fabric.links if link.source == switch.name]
    uplink = _upward(fabric, switch)
    above = fabric.device(uplink.target)
    return {
        "name": switch.name,
        "model": switch.model or None,
        "gpus": [device.index for device in below if device.kind is DeviceKind.GPU],
        "nics": [device.index for device in below if device.kind is DeviceKind.NIC],
        "uplink": {"generation": uplink.generation, "width": uplink.width},
        "behind": above.name if above.kind is DeviceKind.SWITCH else None,
        "chip": switch.chip,
        "socket": _socket(fabric, switch),
    }


def _root_complexes(fabric: Fabric) -> list[dict[str, Any]]:
    """All of them with what hangs on their ports; none where every socket has only the one that it gets unasked."""
    found = []
    usual = True
    sockets = {device.name: device for device in fabric.of_kind(DeviceKind.SOCKET)}
    for device in fabric.of_kind(DeviceKind.ROOT_COMPLEX):
        up = next(link for link in fabric.links if link.source == device.name and link.target in sockets)
        socket = _number(up.target)
        ports = [link.source for link in fabric.links if link.target == device.name and link.source not in sockets]
        tenants = [
            fabric.device(link.source) for link in fabric.links if link.target in ports and link.kind is LinkKind.PCIE
        ]
        memory = fabric.host.memory_bandwidth * list(_nodes(fabric).values()).count(socket)
        bound = up.bandwidth != unbound(device.name, [link for link in fabric.links if link.source in ports], memory)
        usual &= device.name == f"root_complex{socket}" and not bound
        found.append(
            {
                "name": device.name,
                "gpus": [tenant.index for tenant in tenants if tenant.kind is DeviceKind.GPU],
                "nics": [tenant.index for tenant in tenants if tenant.kind is DeviceKind.NIC],
                "switches": [tenant.name for tenant in tenants if tenant.kind is DeviceKind.SWITCH],
                "socket": socket,
                "bandwidth": _rate(up.bandwidth) if bound else None,
            }
        )
    return [] if usual and len(found) == len(sockets) and not _quadrants(fabric) else found


def _quadrants(fabric: Fabric) -> list[dict[str, Any]]:
    """From the upward constraints of root complexes."""
    return [
        {
            "name": each.name.removesuffix("_up"),
            "root_complexes": [source for source, _ in each.links],
            "bandwidth": _rate(each.capacity),
        }
        for each in fabric.constraints
        if all(fabric.device(source).kind is DeviceKind.ROOT_COMPLEX for source, _ in each.links)
    ]


def _host(fabric: Fabric) -> dict[str, Any]:
    between = [link for link in fabric.links if link.kind is LinkKind.SOCKET]
    links = between[0].width or 1 if between else None
    return {
        "cpu": fabric.host.cpu or None,
        "sockets": len(fabric.of_kind(DeviceKind.SOCKET)),
        "numa": _nodes(fabric),
        "memory_bandwidth": _rate(fabric.host.memory_bandwidth),
        "socket_link": {"links": links, "bandwidth": _rate(between[0].bandwidth / links)} if links else None,
        "iommu": fabric.host.iommu,
        "acs_redirect": fabric.acs_redirect,
    }


def _peers(fabric: Fabric) -> dict[str, Any]:
    table, gpus = fabric.peer_access, range(len(fabric.gpus))
    refused = [[one, other] for one in gpus for other in gpus if one < other and table and not table[one][other]]
    over_pcie = [[one, other] for one in gpus for other in gpus if one < other and not _bridged(fabric, one, other)]
    override = {} if fabric.registry_override else {"registry_override": False}
    if refused and refused == over_pcie:
        return {"driver": False, **override}
    return {"driver": True, **({"refused": refused} if refused else {}), **override}


def _bridged(fabric: Fabric, one: int, other: int) -> bool:
    return is_nvlink(fabric.matrix[one][other]) and is_nvlink(fabric.matrix[other][one])


def _rate(value: BytesPerSecond) -> str:
    """``63 GB/s``, or bytes where that would round."""
    text = f"{value / GB:.12g}"
    return f"{text} GB/s" if float(text) * GB == value else f"{value!r} B/s"


# -- YAML ---------------------------------------------------------------------------------------------------------


def render_overlay(overlay: OverlayDocument) -> str:
    """An overlay as YAML, without what has its default value."""
    data = overlay.model_dump(by_alias=True, exclude_defaults=True)
    data["gpus"] = {gpu: entry for gpu, entry in data.get("gpus", {}).items() if entry}
    data = {"schema": overlay.format, **{key: value for key, value in data.items() if key != "schema"}}
    return "".join(_block(key, value) for key, value in _units(data).items())


_RATES: Final = (
    "bandwidth", "memory_bandwidth", "socket_peer", "socket_peer_both", "port_socket_peer", "host_dma", "collapsed",
)  # fmt: skip


def _units(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _rate(each) if key in _RATES else f"{each / MIB:.17g} MiB" if key == "bar1" else _units(each)
            for key, each in value.items()
        }
    return [_units(each) for each in value] if isinstance(value, list | tuple) else value


def _block(key: str, value: Any) -> str:
    if value in ({}, []):
        return ""
    line = f"{key}: {_flow(value)}"
    if len(line) <= _LINE:
        return line + "\n"
    if isinstance(value, list):
        return f"{key}:\n" + "".join(f"  - {_flow(each)}\n" for each in value)
    return f"{key}:\n" + "".join(f"  {name}: {_flow(each)}\n" for name, each in value.items())


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(each) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not _plain(value):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def _plain(text: str) -> bool:
    """Whether a string needs no quotes in flow YAML."""
    word = re.fullmatch(r"[A-Za-z][\w./ -]*", text) and text.lower() not in ("true", "false", "null")
    return bool((word and text == text.strip()) or re.fullmatch(r"[\d.e+]+ [kMG]?B(/s)?", text))
