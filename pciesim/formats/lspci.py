"""``lspci -vvv`` and ``lspci -tv``: the tree of bridges above the GPUs, their links, ACS, NUMA nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pciesim.errors import InputError
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.hardware import PCIE_WIDTHS

__all__ = ["is_lspci", "is_lspci_tree", "read_lspci", "read_lspci_tree"]

_DEVICE: Final = re.compile(r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\n]+): (.*)$", re.MULTILINE)
_LINK: Final = r"{}:[^\n]*?Speed ([\d.]+)GT/s[^\n]*?Width x(\d+)"
_GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_GPU_CLASSES: Final = ("VGA compatible controller", "3D controller", "Display controller")
_ROOT_BUS: Final = re.compile(r"-?\[([0-9a-f]{4}:)?([0-9a-f]{2})(?:-[0-9a-f]{2})?\]")
_SLOT: Final = re.compile(r"([0-9a-f]{2}\.[0-7])(?:-\[(?:[0-9a-f]{4}:)?([0-9a-f]{2})(?:-[0-9a-f]{2})?\])?")
_MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pci:
    """One function: where it is, the buses behind it (bridges), its link as it can be and as it is."""

    address: str
    text: str
    gpu: bool
    secondary: str | None
    body: str

    def link(self, which: str) -> tuple[int, int] | None:
        """(generation, width) of ``LnkCap`` or ``LnkSta``."""
        match = re.search(_LINK.format(which), self.body)
        if match is None or float(match[1]) not in _GENERATIONS or int(match[2]) not in PCIE_WIDTHS:
            return None
        return _GENERATIONS[float(match[1])], int(match[2])


def is_lspci(text: str) -> bool:
    """Whether a text looks like ``lspci -vvv``."""
    return _DEVICE.search(text) is not None and ("\tCapabilities:" in text or "LnkSta:" in text)


def is_lspci_tree(text: str) -> bool:
    """Whether a text looks like ``lspci -t``."""
    return re.match(r"\s*-\+?-?\[[0-9a-f]{4}:", text) is not None


def read_lspci(text: str, gpus: int, *, source: str) -> OverlayDocument:
    """The GPUs' links and NUMA nodes, the switches and root complexes above them, uplinks and ACS, as an overlay.

    The generation is the least that the two ends of a link can do, because idle links train down; the width is the
    negotiated one. Raises InputError where the number of GPUs differs or the text lacks the capabilities.
    """
    starts = list(_DEVICE.finditer(text))
    if not starts:
        raise InputError("lists no devices, expected the output of lspci -vvv", where=source)
    ends = [match.start() for match in starts[1:]] + [len(text)]
    devices = [_device(match, text[match.end() : end]) for match, end in zip(starts, ends, strict=True)]
    by_secondary = {_bus_key(device.address, device.secondary): device for device in devices if device.secondary}
    cards = sorted((device for device in devices if device.gpu), key=lambda device: device.address)
    _check_count(len(cards), gpus, source)
    if all(device.link("LnkSta") is None for device in cards):
        raise InputError("shows no link states; run lspci -vvv as root", where=source)
    paths = [_above(device, by_secondary, source) for device in cards]
    entries: dict[int, dict[str, Any]] = {}
    notes: list[str] = []
    for number, (card, path) in enumerate(zip(cards, paths, strict=True)):
        entries[number] = {"label": card.address} | _negotiated(card, path[-1] if path else None)
        numa = re.search(r"NUMA node: (\d+)", card.body)
        if numa is not None:
            entries[number]["numa"] = int(numa[1])
        now, can = card.link("LnkSta"), card.link("LnkCap")
        if now and can and now[1] < can[1]:
            notes.append(f"GPU{number} has x{now[1]} of x{can[1]}")
    chains = [[bridge.address for bridge in path] for path in paths]
    bridges = {bridge.address: bridge for path in paths for bridge in path}
    switches = _switches(
        chains, {name: _negotiated(each, _parent(each, by_secondary)) for name, each in bridges.items()}
    )
    ports = [bridges[chain[depth]] for chain in chains for depth in range(2, len(chain), 2)]
    data: dict[str, Any] = {
        "schema": "pciesim/topology/1",
        "notes": "; ".join(notes),
        "gpus": entries,
        "switches": switches,
        "root_complexes": _root_complexes(
            [(path[0] if path else card).address for card, path in zip(cards, paths, strict=True)],
            [entry.get("numa") for entry in entries.values()],
        ),
    }
    if ports and any("ACSCtl" in port.body for port in ports):
        data["host"] = {"acs_redirect": any(re.search(r"ACSCtl:.*ReqRedir\+", port.body) for port in ports)}
    return OverlayDocument.told_by(data, source=source)


def read_lspci_tree(text: str, gpus: int, *, source: str) -> OverlayDocument:
    """The switches and root complexes above the GPUs from ``lspci -tv``, as an overlay without links."""
    found = _walk(text, source)
    cards = sorted(chain for chain, name in found if "NVIDIA" in name and not re.search("Audio|USB|NVSwitch", name))
    chains = [chain for chain in cards if chain[-1].endswith(".0")]
    _check_count(len(chains), gpus, source)
    roots = _root_complexes([chain[0] for chain in chains], [None for _ in chains])
    return OverlayDocument.model_validate(
        {
            "schema": "pciesim/topology/1",
            "switches": _switches([chain[:-1] for chain in chains], {}),
            # One bus for all is what many virtual machines show whatever the sockets, which this text does not have.
            "root_complexes": roots if len(roots) > 1 else [],
        }
    )


def _check_count(found: int, gpus: int, source: str) -> None:
    if found != gpus:
        raise InputError(f"shows {found} NVIDIA GPUs, the topology has {gpus}", where=source)


def _device(match: re.Match[str], body: str) -> _Pci:
    secondary = re.search(r"Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2})", body)
    return _Pci(
        address=match[1] if match[1].count(":") == 2 else f"0000:{match[1]}",
        text=match[3],
        gpu=match[2].startswith(_GPU_CLASSES) and "NVIDIA" in match[3],
        secondary=secondary[1] if secondary else None,
        body=body,
    )


def _bus_key(address: str, bus: str | None) -> str:
    return f"{address[:4]}:{bus}"


def _parent(device: _Pci, by_secondary: Mapping[str, _Pci]) -> _Pci | None:
    return by_secondary.get(device.address[:7])


def _above(device: _Pci, by_secondary: Mapping[str, _Pci], source: str) -> list[_Pci]:
    """Bridges from the root port down to the one right above a device."""
    path: list[_Pci] = []
    here: _Pci | None = device
    while (here := _parent(here, by_secondary) if here else None) is not None:
        path.insert(0, here)
        if len(path) > _MAX_DEPTH:
            raise InputError("has bridges in a circle", where=source)
    return path


def _negotiated(device: _Pci, parent: _Pci | None) -> dict[str, Any]:
    """Width as it is now; generation the least that both ends can do."""
    can = [link for each in (device, parent) if each is not None and (link := each.link("LnkCap")) is not None]
    now = device.link("LnkSta")
    found: dict[str, Any] = {"generation": min(generation for generation, _ in can)} if can else {}
    return found | ({"width": now[1]} if now else {})


def _switches(chains: Sequence[Sequence[str]], links: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Switches from the bridges above each GPU: root port, then upstream and downstream port of each switch."""
    upstream = list(dict.fromkeys(chain[depth] for chain in chains for depth in range(1, len(chain), 2)))
    above = {
        chain[depth]: chain[depth - 2] if depth > 2 else None for chain in chains for depth in range(1, len(chain), 2)
    }
    names = {address: f"switch{number}" for number, address in enumerate(upstream)}

    # A GPU hangs on the last switch of its chain: the largest odd position.
    holders = [chain[(len(chain) - 2) | 1] if len(chain) > 1 else None for chain in chains]
    return [
        {"name": names[address], "gpus": [gpu for gpu, holder in enumerate(holders) if holder == address]}
        | ({"uplink": links[address]} if links.get(address) else {})
        | ({"behind": names[parent]} if (parent := above[address]) is not None else {})
        for address in upstream
    ]


def _root_complexes(ports: Sequence[str], numa: Sequence[int | None]) -> list[dict[str, Any]]:
    """One for each bus that root ports are on: behind it is a host bridge. Virtual machines put GPUs of several NUMA
    nodes on one bus; those are kept apart, because a root complex is on one socket."""
    found: dict[tuple[str, int | None], list[int]] = {}
    for gpu, (port, node) in enumerate(zip(ports, numa, strict=True)):
        found.setdefault((port[:7].removeprefix("0000:").replace(":", "_"), node), []).append(gpu)
    buses = [bus for bus, _ in found]
    return [
        {"name": f"root_{bus}" + (f"_numa{node}" if buses.count(bus) > 1 else ""), "gpus": gpus}
        for (bus, node), gpus in found.items()
    ]


# -- lspci -t -----------------------------------------------------------------------------------------------------


def _walk(text: str, source: str) -> list[tuple[list[str], str]]:
    """(addresses from the root down to a device, its name) for every device of the tree.

    Each line hangs on the bus whose branch sign (``+`` or a backslash) stands in the column where the line begins.
    """
    found: list[tuple[list[str], str]] = []
    branches: dict[int, tuple[str, list[str]]] = {}  # column of a branch sign: (bus, addresses above)
    for number, line in enumerate(text.split("\n"), start=1):
        start = re.match(r"[ |]*", line)
        position = start.end() if start else 0
        if position >= len(line):
            continue
        bus, path = branches.get(position, ("", []))
        root = _ROOT_BUS.search(line, position)
        if root is not None and not line[position : root.start()].strip("+-\\ "):
            bus, path = f"{(root[1] or '0000:')}{root[2]}", []
            position = root.end()
        elif line[position] in "+\\" and position not in branches:
            raise InputError("is not the tree that lspci -tv prints", where=f"{source}:{number}")
        while position < len(line):
            if line[position] in "+-\\":
                if line[position] in "+\\":
                    branches[position] = (bus, path)
                position += 1
                continue
            slot = _SLOT.match(line, position)
            if slot is None:
                break
            path = [*path, f"{bus}:{slot[1]}"]
            position = slot.end()
            if slot[2] is None:
                found.append((path, line[position:].strip()))
                break
            bus = f"{bus[:5]}{slot[2]}"
            if len(path) > _MAX_DEPTH:
                raise InputError("has bridges nested too deep", where=f"{source}:{number}")
    return found
