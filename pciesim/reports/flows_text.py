"""Concurrent flows as text: the tool's figure first, then every flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pciesim.flows import FlowsResult, Metric
from pciesim.units import format_bytes, format_rate, format_seconds

__all__ = ["to_text"]

_FIGURES: Final = {
    Metric.RATE: "all flows together, while all of them run",
    Metric.COMPLETION: "all bytes over the time of the last flow",
    Metric.P2P_TEST: "as p2pBandwidthLatencyTest prints it: one pair, or both ways together",
    Metric.P2PMARK: "as p2pmark prints it: all bytes over the time of the last flow",
    Metric.P2PMARK_MEAN: "as p2pmark prints staggered rings: mean of the flows' own rates",
    Metric.COPY_LOOP: "as a PyTorch copy loop prints it: all bytes over the time of the last flow",
}


def to_text(result: FlowsResult) -> str:
    """Lines of the first screen."""
    lines = [f"{format_rate(result.figure)}  {_FIGURES[result.metric]}"]
    how = f"{result.topology}: {result.engine} {result.operation}"
    if result.metric not in (Metric.RATE, Metric.P2P_TEST):
        how += f", {format_bytes(result.volume)} a copy"
    lines += [how, ""]
    timed = any(flow.completion is not None for flow in result.flows)
    rows = [["flow", "rate", *(["ends after"] if timed else []), "limited by"]]
    for flow in result.flows:
        name = f"{flow.source} > {flow.target}" + (" (background)" if flow.background else "")
        ends = "" if flow.completion is None else format_seconds(flow.completion)
        rows.append([name, format_rate(flow.rate), *([ends] if timed else []), flow.limited_by])
    lines += _columns(rows)
    lines += ["", *(f"posted writes through {switch} collapse" for switch in result.collapsed), *result.notes]
    return "\n".join(lines).rstrip() + "\n"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
