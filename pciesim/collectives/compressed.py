"""Two-shot push and copy-engine ring with a compressed format on the wire."""

from __future__ import annotations

from functools import partial
from typing import Final

from pciesim.collectives import copy_engine, twoshot
from pciesim.collectives.entry import AlgorithmEntry, Cost
from pciesim.collectives.wire import WIRES
from pciesim.schedule import CollectiveKind

__all__ = ["ce_ring", "twoshot_push"]

_ALL_REDUCE: Final = CollectiveKind.ALL_REDUCE


def _cost(traversals: str, ratio: float) -> dict[CollectiveKind, Cost]:
    return {_ALL_REDUCE: Cost(traversals=traversals, messages="2*(n-1)", nbytes=f"{ratio:g}*2*(n-1)/n*S")}


def twoshot_push(wire: str) -> AlgorithmEntry:
    """The two-shot push in that format: quantise, reduce-scatter, add and quantise again, all-gather."""
    ratio = WIRES[wire].ratio
    name = f"twoshot-push-{wire}"
    return AlgorithmEntry(
        lower=partial(twoshot.lower_push, wire=ratio, name=name, protocol=f"sentinel, {wire.upper()}"),
        costs=_cost("2", ratio),
        about=f"twoshot-push with {wire.upper()} and scales on the wire: {ratio:.4g} of the bytes, lossy",
        source=WIRES[wire].source,
    )


def ce_ring(wire: str) -> AlgorithmEntry:
    """The copy-engine ring in that format."""
    ratio = WIRES[wire].ratio
    return AlgorithmEntry(
        lower=partial(copy_engine.lower_ring_copies, wire=ratio, name=f"ce-ring-{wire}"),
        costs=_cost("4*(n-1)", ratio),
        about=f"ce-ring with {wire.upper()} and scales on the wire: {ratio:.4g} of the bytes, lossy",
        source="local-inference-lab/b12x (FP8, INT8, MXFP8 wire)",
    )
