"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``): to a matrix with an overlay, and from a fabric.

The XML has what the matrix lacks: the tree of switches (one ``pci`` element of bridge class per switch, at its upstream
port), speed and width of every link, NUMA nodes and the CPU's family. It lacks host bridges: two GPUs under one
``cpu`` element are in one NUMA node, no more is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

from pciesim.errors import InputError
from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind
from pciesim.formats.catalogue import gpu_type, host_by_cpuid, host_type
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix, runs
from pciesim.hardware import PCIE_WIDTHS

__all__ = ["is_nccl_xml", "read_nccl_xml", "write_nccl_xml"]

_VENDORS: Final = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
_GENERATIONS: Final = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6,
                       "64.0": 6}  # fmt: skip
_SPEEDS: Final = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
_GPU_CLASSES: Final = ("0x0300", "0x0302", "0x0380")
_BRIDGE: Final = "0x0604"
_NVSWITCH: Final = "fffffff:ff:ff.0"
_MAX_DEPTH: Final = 32
_MAX_LEAVES: Final = 300


def is_nccl_xml(text: str) -> bool:
    """Whether a text is XML at all: nothing else that describes a box begins so."""
    return text.lstrip()[:1] == "<"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A GPU or NIC: the bridges above it from the CPU down, its CPU, its element."""

    gpu: bool
    index: int | None
    label: str
    bridges: tuple[str, ...]
    cpu: int
    element: ElementTree.Element


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cpu:
    numa: int | None
    affinity: str
    element: ElementTree.Element


# -- reading ------------------------------------------------------------------------------------------------------


def read_nccl_xml(text: str, *, source: str) -> tuple[TopologyMatrix, OverlayDocument]:
    """What the XML says, as the matrix nvidia-smi would print and an overlay. Raises InputError."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError("has a document type or entities, which NCCL does not write", where=source)
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        line, column = error.position
        raise InputError(f"is not XML: {error.msg}", where=f"{source}:{line}:{column + 1}") from None
    if root.tag != "system":
        raise InputError(f"root element '{root.tag}', expected 'system' (NCCL_TOPO_DUMP_FILE)", where=source)
    cpus = [
        _Cpu(numa=_numa(element), affinity=_cpu_list(element.get("affinity", "")), element=element)
        for element in root.findall("cpu")
    ]
    bridges: dict[str, ElementTree.Element] = {}
    leaves = [leaf for position, cpu in enumerate(cpus) for leaf in _leaves(cpu.element, (), position, bridges, source)]
    if len(leaves) > _MAX_LEAVES:
        raise InputError(f"has more than {_MAX_LEAVES} devices", where=source)
    gpus = [leaf for leaf in leaves if leaf.gpu]
    gpus.sort(key=lambda leaf: len(leaves) if leaf.index is None else leaf.index)
    nics = [leaf for leaf in leaves if not leaf.gpu]
    if not gpus:
        raise InputError("has no GPU", where=source)
    matrix = TopologyMatrix(
        gpus=tuple(f"GPU{number}" for number in range(len(gpus))),
        nics=tuple(f"NIC{number}" for number in range(len(nics))),
        cells=_cells(gpus, nics),
        cpu_affinity=tuple(cpus[leaf.cpu].affinity for leaf in gpus),
        numa_affinity=tuple("" if (numa := cpus[leaf.cpu].numa) is None else str(numa) for leaf in gpus),
        gpu_numa=tuple("" for _ in gpus),
        nic_labels=tuple((f"NIC{number}", leaf.label) for number, leaf in enumerate(nics) if leaf.label),
    )
    return matrix, _overlay(gpus, nics, bridges, cpus)


def _numa(element: ElementTree.Element) -> int | None:
    text = element.get("numaid", "")
    return int(text) if re.fullmatch(r"\d{1,3}", text) else None


def _cpu_list(mask: str) -> str:
    """``'00ff00ff'`` -> ``'0-7,16-23'``."""
    digits = mask.replace(",", "")
    if not re.fullmatch(r"[0-9a-fA-F]{1,512}", digits):
        return ""
    bits = int(digits, 16)
    members = (bit for bit in range(bits.bit_length()) if bits >> bit & 1)
    return ",".join(f"{first}-{last}" if first != last else str(first) for first, last in runs(members))


def _leaves(
    element: ElementTree.Element,
    above: tuple[str, ...],
    cpu: int,
    bridges: dict[str, ElementTree.Element],
    source: str,
) -> Iterator[_Leaf]:
    if len(above) > _MAX_DEPTH:
        raise InputError(f"nests pci elements deeper than {_MAX_DEPTH}", where=source)
    for pci in element.findall("pci"):
        kind, address = pci.get("class", ""), pci.get("busid", "")
        gpu = pci.find("gpu")
        if pci.findall("pci") or kind.startswith(_BRIDGE):
            if address in bridges:
                raise InputError(f"has two bridges at '{address}'", where=source)
            if _inside_card(pci):
                yield from _leaves(pci, above, cpu, bridges, source)
            else:
                bridges[address] = pci
                yield from _leaves(pci, (*above, address), cpu, bridges, source)
        elif gpu is not None or kind.startswith(_GPU_CLASSES):
            dev = "" if gpu is None else gpu.get("dev", "")
            index = int(dev) if re.fullmatch(r"\d{1,3}", dev) else None
            yield _Leaf(gpu=True, index=index, label=address, bridges=above, cpu=cpu, element=pci)
        elif kind.startswith("0x02") or pci.find("nic") is not None:
            net = pci.find("nic/net")
            label = address if net is None else net.get("name", address)
            yield _Leaf(gpu=False, index=None, label=label, bridges=above, cpu=cpu, element=pci)
        elif not kind:
            raise InputError(
                f"pci '{address}' has no class: it could be a GPU or a NIC (a hint file, not a dump)", where=source
            )


def _inside_card(bridge: ElementTree.Element) -> bool:
    """The bridge that AMD's accelerators carry on the card itself."""
    below = bridge.findall("pci")
    return len(below) == 1 and bridge.get("vendor") == "0x1022" and below[0].get("vendor") == "0x1002"


def _cells(gpus: Sequence[_Leaf], nics: Sequence[_Leaf]) -> tuple[tuple[str, ...], ...]:
    leaves = [*gpus, *nics]
    rows = [[_word(one, other) if one is not other else "X" for other in leaves] for one in leaves]
    at = {leaf.label.lower(): position for position, leaf in enumerate(gpus)}
    switched = []
    for position, leaf in enumerate(gpus):
        for link in leaf.element.iterfind("gpu/*"):
            count = link.get("count", "")
            if link.tag not in ("nvlink", "xgmi") or not re.fullmatch(r"\d{1,2}", count):
                continue
            target = at.get(link.get("target", "").lower())
            if link.get("target") == _NVSWITCH or link.get("tclass", "").startswith("0x0680"):
                switched.append((position, count))
            elif target is not None and target != position:
                rows[position][target] = f"NV{int(count)}"
    for position, count in switched:
        for other, _ in switched:
            if other != position:
                rows[position][other] = f"NV{int(count)}"
    return tuple(tuple(row) for row in rows)


def _word(one: _Leaf, other: _Leaf) -> str:
    """nvidia-smi's word for a pair, from the bridges between them."""
    if one.cpu != other.cpu:
        return "SYS"
    shared = 0
    while shared < min(len(one.bridges), len(other.bridges)) and one.bridges[shared] == other.bridges[shared]:
        shared += 1
    if not shared:
        return "NODE"
    between = len(one.bridges) + len(other.bridges) - 2 * shared + 1
    return "PIX" if between == 1 else "PXB"


def _overlay(
    gpus: Sequence[_Leaf], nics: Sequence[_Leaf], bridges: dict[str, ElementTree.Element], cpus: Sequence[_Cpu]
) -> OverlayDocument:
    used = [address for address in bridges if any(address in leaf.bridges for leaf in (*gpus, *nics))]
    names = {address: f"switch{number}" for number, address in enumerate(used)}
    above = {
        address: leaf.bridges[depth - 1] if depth else None
        for leaf in (*gpus, *nics)
        for depth, address in enumerate(leaf.bridges)
    }
    first = cpus[0].element
    host = _host_key(first)
    data: dict[str, Any] = {
        "schema": "pciesim/topology/1",
        "notes": "from NCCL's topology XML",
        "gpus": {number: _link(leaf.element) | {"label": leaf.label} for number, leaf in enumerate(gpus)},
        "nics": {number: _link(leaf.element) for number, leaf in enumerate(nics)},
        "switches": [
            {
                "name": names[address],
                "gpus": [number for number, leaf in enumerate(gpus) if leaf.bridges[-1:] == (address,)],
                "nics": [number for number, leaf in enumerate(nics) if leaf.bridges[-1:] == (address,)],
                "uplink": _link(bridges[address]),
            }
            | ({"behind": names[parent]} if (parent := above[address]) is not None else {})
            for address in used
        ],
        "host": {"cpu": host} if host else {},
    }
    return OverlayDocument.model_validate(data)


def _host_key(cpu: ElementTree.Element) -> str | None:
    vendor = _VENDORS.get(cpu.get("vendor", ""))
    numbers = [cpu.get("familyid", ""), cpu.get("modelid", "")]
    if vendor is None or not all(re.fullmatch(r"\d{1,4}", number) for number in numbers):
        return None
    family, model = map(int, numbers)
    if vendor == "amd":  # NCCL adds the extended family times 16 to the base family, CPUID adds it as it is
        family = (family & 0xF) + (family >> 4)
    found = host_by_cpuid(vendor, family, model)
    return found.key if found is not None else None


def _link(element: ElementTree.Element) -> dict[str, Any]:
    """Generation and width, where the element has them (virtual machines write an empty speed and width 0)."""
    found: dict[str, Any] = {}
    generation = _GENERATIONS.get(element.get("link_speed", "").split(" ")[0])
    width = element.get("link_width", "")
    if generation is not None:
        found["generation"] = generation
    if re.fullmatch(r"\d{1,2}", width) and int(width) in PCIE_WIDTHS:
        found["width"] = int(width)
    return found


# -- writing ------------------------------------------------------------------------------------------------------


def write_nccl_xml(fabric: Fabric) -> str:
    """The fabric as NCCL would dump it (usable as ``NCCL_TOPO_FILE``). Addresses are labels where they are addresses,
    invented otherwise."""
    root = ElementTree.Element("system", version="1")
    addresses = _addresses(fabric)
    for memory in fabric.of_kind(DeviceKind.MEMORY):
        cpu = ElementTree.SubElement(root, "cpu", _cpu_attributes(fabric, memory))
        for device in _tops(fabric, memory):
            _write(cpu, fabric, device, addresses)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _addresses(fabric: Fabric) -> dict[str, str]:
    found: dict[str, str] = {}
    cards = (DeviceKind.SWITCH, DeviceKind.GPU, DeviceKind.NIC)
    for number, device in enumerate(each for each in fabric.devices if each.kind in cards):
        given = re.fullmatch(r"([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", device.label)
        found[device.name] = device.label if given else f"{number >> 8:04x}:{number & 0xFF:02x}:00.0"
    return found


def _cpu_attributes(fabric: Fabric, memory: Device) -> dict[str, str]:
    kind = host_type(fabric.host.cpu) if fabric.host.cpu else None
    family = 0 if kind is None else kind.family
    if kind is not None and kind.vendor == "amd":
        family = 0xF + ((kind.family - 0xF) << 4)
    vendor = {own: name for name, own in _VENDORS.items()}.get(fabric.host.vendor, "")
    lists = [gpu.affinity for gpu in fabric.gpus if gpu.numa == memory.numa and gpu.affinity]
    return {
        "numaid": str(memory.numa),
        "affinity": _mask(lists[0]) if lists else "",
        "arch": "x86_64",
        "vendor": vendor,
        "familyid": str(family),
        "modelid": str(0 if kind is None else kind.model),
    }


def _mask(cpus: str) -> str:
    bits = 0
    for part in filter(None, cpus.split(",")):
        first, _, last = part.partition("-")
        for bit in range(int(first), int(last or first) + 1):
            bits |= 1 << bit
    digits = f"{bits:x}"
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    return ",".join(digits[start : start + 8] for start in range(0, len(digits), 8))


def _up(fabric: Fabric, device: Device) -> Link:
    """The PCIe link towards the CPU."""
    memory = fabric.memory_of(device.name)
    return fabric.links[fabric.route(device.name, memory.name, nvlink=False).links[0]]


def _numa_of(fabric: Fabric, device: Device) -> int | None:
    """NUMA node of a card: its own, that of the first GPU below a switch, else that of its nearest memory."""
    if device.kind is DeviceKind.SWITCH:
        below = [fabric.device(link.source) for link in fabric.links if link.target == device.name]
        for other in below:
            if other.kind is DeviceKind.GPU or (
                other.kind is DeviceKind.SWITCH and _up(fabric, other).target == device.name
            ):
                return _numa_of(fabric, other)
    return device.numa if device.numa is not None else fabric.memory_of(device.name).numa


def _tops(fabric: Fabric, memory: Device) -> list[Device]:
    """Cards and switches on root ports of a NUMA node."""
    cards = (DeviceKind.SWITCH, DeviceKind.GPU, DeviceKind.NIC)
    return [
        device
        for device in fabric.devices
        if device.kind in cards
        and fabric.device(_up(fabric, device).target).kind is DeviceKind.ROOT_PORT
        and _numa_of(fabric, device) == memory.numa
    ]


def _write(parent: ElementTree.Element, fabric: Fabric, device: Device, addresses: dict[str, str]) -> None:
    link = _up(fabric, device)
    kinds = {DeviceKind.SWITCH: "0x060400", DeviceKind.GPU: "0x030200", DeviceKind.NIC: "0x020700"}
    attributes = {
        "busid": addresses[device.name],
        "class": kinds[device.kind],
        "link_speed": f"{_SPEEDS.get(link.generation or 0, '')} GT/s PCIe",
        "link_width": str(link.width or 0),
    }
    pci = ElementTree.SubElement(parent, "pci", attributes)
    if device.kind is DeviceKind.SWITCH:
        for other in fabric.devices:
            if other.kind in kinds and other is not device and _up(fabric, other).target == device.name:
                _write(pci, fabric, other, addresses)
    elif device.kind is DeviceKind.NIC:
        nic = ElementTree.SubElement(pci, "nic")
        ElementTree.SubElement(nic, "net", name=device.label or device.name, dev=str(device.index))
    else:
        gpu = ElementTree.SubElement(pci, "gpu", dev=str(device.index), rank=str(device.index), gdr="1")
        if device.model:
            gpu.set("sm", str(gpu_type(device.model).compute_capability))
        _write_nvlinks(gpu, fabric, device, addresses)


def _write_nvlinks(gpu: ElementTree.Element, fabric: Fabric, device: Device, addresses: dict[str, str]) -> None:
    links = [link for link in fabric.links if link.source == device.name and link.kind is LinkKind.NVLINK]
    if any(each.name == f"nvlink_out_{device.name}" for each in fabric.constraints):
        count = max(link.width or 0 for link in links)
        ElementTree.SubElement(gpu, "nvlink", target=_NVSWITCH, count=str(count), tclass="0x068000")
        return
    for link in links:
        ElementTree.SubElement(gpu, "nvlink", target=addresses[link.target], count=str(link.width), tclass="0x030200")
