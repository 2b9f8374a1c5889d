"""NCCL's decisions as text: transports, ring, its own estimates by size, and where they mislead it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from pciesim.nccl_explain import Explanation, GraphFile, Remedy, SizeChoice, named
from pciesim.reports.collective_text import columns
from pciesim.units import US, Seconds, format_bytes, format_rate

__all__ = ["explanation_text", "graph_report"]

_WIDTH: Final = 100
_BAD: Final = 1.1  # a choice this much slower than another is worth saying


def explanation_text(explanation: Explanation) -> str:
    """Transport of each pair, ring and channels, then every size; ends with a newline."""
    told, ring = explanation, explanation.plan.ring
    words = str(told.kind).replace("_", "-")
    lines = [
        f"NCCL {told.version or '(version not stated)'} for {words} on {len(told.gpus)} GPUs of {told.topology}",
        "",
    ]
    level = f"NCCL_P2P_LEVEL {told.p2p_level}" if told.p2p_level else "NCCL's own P2P level"
    lines.append(f"Transport of each pair ({level}); path types are NCCL's")
    lines += columns(_matrix(told), right=frozenset(range(1, len(told.gpus) + 1)))
    order = " -> ".join(told.gpus[rank] for rank in [*ring.order, ring.order[0]])
    lines += ["", *textwrap.wrap(f"Ring: {order}", _WIDTH, subsequent_indent="      ")]
    if ring.fallback:
        lines += textwrap.wrap(
            f"The search found no ring: its slowest edge has {format_rate(ring.slowest)} by NCCL's constants, less "
            "than the slowest speed in its list. It fell back to rank order at 0.1 GB/s, and its cost model goes to "
            "Simple far too early. 'pciesim nccl graph' writes a file that mends it.", _WIDTH,
        )  # fmt: skip
    else:
        lines.append(
            f"Found at {format_rate(ring.speed)} a channel x {ring.graph_channels}: the slowest edge has "
            f"{format_rate(ring.slowest)} by NCCL's constants"
        )
    lines += [f"Channels of the communicator: {ring.channels}", "", *_sizes(told)]
    return "\n".join(lines) + "\n"


def _matrix(told: Explanation) -> list[list[str]]:
    rows = [["", *told.gpus]]
    for a, gpu in enumerate(told.gpus):
        rows.append(
            [gpu, *("-" if a == b else f"{told.plan.pairs[a, b]} ({told.paths[a, b]})" for b in range(len(told.gpus)))]
        )
    return rows


def _sizes(told: Explanation) -> list[str]:
    pairs = sorted({(cost.algorithm, cost.protocol) for choice in told.sizes for cost in choice.table})
    rows: list[list[str]] = [["bytes", "chosen", "ch", *(named(*pair) for pair in pairs)]]
    notes: list[str] = []
    for choice in told.sizes:
        at = {(cost.algorithm, cost.protocol): place for place, cost in enumerate(choice.table)}
        chosen = choice.table[choice.chosen]
        cells = [
            f"{_us(choice.table[at[pair]].time)} | {_us(choice.times[at[pair]])}" if pair in at else ""
            for pair in pairs
        ]
        rows.append(
            [format_bytes(choice.nbytes), named(chosen.algorithm, chosen.protocol), str(choice.channels), *cells]
        )
        notes += _note(choice)
    return [
        "Microseconds: NCCL's own estimate | predicted here",
        *columns(rows, right=frozenset({0, *range(2, len(rows[0]))})),
        "",
        f"Why: {told.sizes[0].reason}",
        *notes,
    ]


def _note(choice: SizeChoice) -> list[str]:
    chosen, best = choice.table[choice.chosen], choice.table[choice.best]
    ratio = choice.times[choice.chosen] / choice.times[choice.best]
    if ratio < _BAD:
        return []
    return [
        f"{format_bytes(choice.nbytes)}: {named(chosen.algorithm, chosen.protocol)} is {ratio:.2f} times as slow as "
        f"{named(best.algorithm, best.protocol)} would be"
    ]


def graph_report(graph: GraphFile, path: str, faults: Sequence[str], remedy: Remedy | None, topology: str) -> str:
    """What the file says, what is wrong with it, and what the environment changes; ends with a newline."""
    ring = " ".join(map(str, graph.ring))
    lines = [
        f"{path}: ring {ring}, {graph.channels} channels at {format_rate(graph.speed)}, paths up to {graph.type_intra}",
        *(f"wrong: {fault}" for fault in faults),
    ]
    if not faults:
        lines.append(f"checked on {topology}: every GPU once, no link asked for more than its rate")
    if remedy is not None and remedy.variables:
        lines += ["", "Environment", *(f"  export {name}={value}" for name, value in remedy.variables), ""]
        rows = [["bytes", "us before", "us after"]]
        rows += [
            [format_bytes(size), _us(old), _us(new)]
            for size, old, new in zip(remedy.sizes, remedy.before, remedy.after, strict=True)
        ]
        lines += columns(rows, right=frozenset({0, 1, 2}))
        lines += ["", *(f"caveat: {caveat}" for caveat in remedy.caveats)]
    elif remedy is not None:
        lines += ["", "NCCL's own choice cannot be bettered by these variables: leave the environment as it is"]
    return "\n".join(lines).rstrip() + "\n"


def _us(value: Seconds) -> str:
    text = f"{value / US:.1f}"
    return text if len(text) < 7 else f"{value / US:.0f}"
