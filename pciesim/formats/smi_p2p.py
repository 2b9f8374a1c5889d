"""The text of ``nvidia-smi topo -p2p r`` (or ``w``): which pairs the driver lets peer."""

from __future__ import annotations

import re
from typing import Final

from pciesim.errors import InputError
from pciesim.formats.topology_overlay import OverlayDocument

__all__ = ["is_p2p", "read_p2p"]

# What nvidia-smi prints for a pair, with its legend.
_STATES: Final = {
    "OK": "granted",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
    "U": "unknown",
}
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ROW: Final = re.compile(rf"\s*(GPU\d+)((?:\s+(?:X|{'|'.join(_STATES)}))+)\s*")


def is_p2p(text: str) -> bool:
    """Whether a text looks like this output."""
    return bool(re.search(r"^\s*GPU\d+(?:\s+(?:X|OK|CNS|GNS|TNS|NS|DR|U))+\s*$", _ESCAPE.sub("", text), re.MULTILINE))


def read_p2p(text: str, gpus: int, *, source: str) -> OverlayDocument:
    """The pairs as an overlay. Raises InputError where the table is not one of ``gpus`` GPUs."""
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(_ESCAPE.sub("", text).split("\n"), start=1):
        match = _ROW.fullmatch(line)
        if match is None:
            continue
        cells = match[2].split()
        if len(cells) != gpus:
            raise InputError(
                f"{match[1]} has {len(cells)} cells, the topology has {gpus} GPUs", where=f"{source}:{number}"
            )
        rows[match[1]] = cells
    if len(rows) != gpus:
        raise InputError(f"has {len(rows)} rows, the topology has {gpus} GPUs", where=source)
    table = list(rows.values())
    pairs = [(one, other) for one in range(gpus) for other in range(one + 1, gpus)]
    refused = [pair for pair in pairs if "OK" not in (table[pair[0]][pair[1]], table[pair[1]][pair[0]])]
    if refused and refused == pairs:
        p2p: dict[str, object] = {"driver": False}
    else:
        p2p = {"driver": True} | ({"refused": refused} if refused else {})
    states = sorted({table[one][other] for one, other in refused})
    notes = f"refused: {', '.join(_STATES.get(state, state) for state in states)}" if refused else ""
    return OverlayDocument.model_validate({"schema": "pciesim/topology/1", "notes": notes, "p2p": p2p})
