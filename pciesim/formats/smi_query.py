"""The text of ``nvidia-smi -q``: product, PCIe generation and width, BAR1 of every GPU."""

from __future__ import annotations

import re
from typing import Any, Final

from pciesim.errors import InputError
from pciesim.formats.catalogue import gpu_type
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.hardware import PCIE_GENERATIONS, PCIE_WIDTHS
from pciesim.units import MIB

__all__ = ["is_query", "read_query"]

_HEAD: Final = re.compile(r"^GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$", re.MULTILINE)


def is_query(text: str) -> bool:
    """Whether a text looks like this output."""
    return "NVSMI LOG" in text and _HEAD.search(text) is not None


def read_query(text: str, gpus: int, *, source: str) -> OverlayDocument:
    """What it says of every GPU, as an overlay.

    Idle GPUs train down to Gen1: unless the GPU is busy (P0 to P2), the generation is what GPU and host can do
    together, and only the width is what it is now. Raises InputError where the number of GPUs differs.
    """
    starts = list(_HEAD.finditer(text))
    if len(starts) != gpus:
        raise InputError(f"lists {len(starts)} GPUs, the topology has {gpus}", where=source)
    ends = [match.start() for match in starts[1:]] + [len(text)]
    entries: dict[int, dict[str, Any]] = {}
    notes: list[str] = []
    bars: list[float] = []
    for number, (match, end) in enumerate(zip(starts, ends, strict=True)):
        body = text[match.end() : end]
        entry: dict[str, Any] = {"label": match[1].lower().removeprefix("0000")}
        product = _value(body, r"Product Name\s*:\s*(.+)")
        if product is not None:
            try:
                entry["model"] = gpu_type(product).key
            except InputError:
                notes.append(f"GPU{number} is a {product.strip()}, which the catalogue lacks")
        entry |= _link(body, number, notes)
        bar1 = _value(body, r"BAR1 Memory Usage\s*\n\s*Total\s*:\s*(\d+) MiB")
        if bar1 is not None:
            bars.append(int(bar1) * MIB)
        entries[number] = entry
    p2p = {"bar1": f"{min(bars):.0f} B"} if bars else {}
    data = {"schema": "pciesim/topology/1", "notes": "; ".join(notes), "gpus": entries, "p2p": p2p}
    return OverlayDocument.told_by(data, source=source)


def _value(body: str, pattern: str) -> str | None:
    match = re.search(pattern, body)
    return match[1] if match else None


def _link(body: str, number: int, notes: list[str]) -> dict[str, Any]:
    generation = re.search(r"PCIe Generation\s*\n\s*Max\s*:\s*(\d)\s*\n\s*Current\s*:\s*(\d)", body)
    width = re.search(r"Link Width\s*\n\s*Max\s*:\s*(\d+)x\s*\n\s*Current\s*:\s*(\d+)x", body)
    busy = re.search(r"Performance State\s*:\s*P[012]\s", body) is not None
    found: dict[str, Any] = {}
    if generation is not None:
        most, now = int(generation[1]), int(generation[2])
        value = now if busy else most
        if value in PCIE_GENERATIONS:
            found["generation"] = value
        if now < most:
            notes.append(f"GPU{number} runs at Gen{now} of Gen{most} {'although busy' if busy else 'while idle'}")
    if width is not None:
        if int(width[2]) in PCIE_WIDTHS:
            found["width"] = int(width[2])
        if int(width[2]) < int(width[1]):
            notes.append(f"GPU{number} has x{width[2]} of x{width[1]}")
    return found
