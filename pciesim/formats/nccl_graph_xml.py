"""NCCL's graph file (``NCCL_GRAPH_FILE``, ``NCCL_GRAPH_DUMP_FILE``): written for a ring, read for a check.

Graph 0 (pattern 4) is the ring; graph 1 (pattern 1) the balanced tree, on one node a chain in the same order. ``dev``
is the GPU's number as nvidia-smi counts. Format as in NVIDIA/nccl src/graph/search.cc (ncclTopoGetXmlFromGraph) and the
graph that Microsoft ships for NC A100 v4 machines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from pciesim.errors import InputError
from pciesim.nccl_explain import GraphFile
from pciesim.units import GB

__all__ = ["graph_text", "read_graph"]

_RING: Final = ("0", "4")
_TREE: Final = ("1", "1")


def graph_text(graph: GraphFile) -> str:
    """The file's text."""
    lines = ['<graphs version="1">']
    for identifier, pattern in (_RING, _TREE):
        lines.append(
            f'  <graph id="{identifier}" pattern="{pattern}" crossnic="0" nchannels="{graph.channels}" '
            f'speedintra="{graph.speed / GB:g}" speedinter="{graph.speed / GB:g}" latencyinter="0" '
            f'typeintra="{graph.type_intra}" typeinter="PIX" samechannels="1">'
        )
        for _ in range(graph.channels):
            lines.append("    <channel>")
            lines += [f'      <gpu dev="{dev}"/>' for dev in graph.ring]
            lines.append("    </channel>")
        lines.append("  </graph>")
    lines.append("</graphs>")
    return "\n".join(lines) + "\n"


def read_graph(path: Path) -> GraphFile:
    """The ring of a graph file. Raises InputError where the file has none, or its channels are not one ring."""
    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except (ElementTree.ParseError, UnicodeDecodeError) as error:
        raise InputError(f"is not XML: {error}", where=str(path)) from None
    ring = next((each for each in root.iter("graph") if each.get("id") == _RING[0]), None)
    if root.tag != "graphs" or ring is None:
        raise InputError(f'has no ring: expected <graphs> with a <graph id="0">, found <{root.tag}>', where=str(path))
    orders = [
        tuple(_number(gpu.get("dev"), "dev", path) for gpu in channel.iter("gpu")) for channel in ring.iter("channel")
    ]
    if not orders or not orders[0]:
        raise InputError("the ring has no channel with GPUs", where=str(path))
    if any(sorted(order) != sorted(orders[0]) for order in orders):
        raise InputError("its channels do not hold the same GPUs", where=str(path))
    return GraphFile(
        ring=orders[0],
        channels=len(orders),
        speed=_rate(ring.get("speedintra"), path),
        type_intra=ring.get("typeintra", "SYS"),
    )


def _number(text: str | None, name: str, path: Path) -> int:
    if text is None or not text.isdecimal():
        raise InputError(f'{name}="{text}" is not a GPU number', where=str(path))
    return int(text)


def _rate(text: str | None, path: Path) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = 0.0
    if not value > 0:
        raise InputError(f'speedintra="{text}" is not a rate in GB/s', where=str(path))
    return value * GB
