"""Concurrent flows as JSON, schema ``pciesim/flows/1``: SI units with the unit in the key."""

from __future__ import annotations

import json
from typing import Any, Final

from pciesim.flows import FlowRate, FlowsResult

__all__ = ["SCHEMA", "to_dict", "to_json"]

SCHEMA: Final = "pciesim/flows/1"


def to_json(result: FlowsResult) -> str:
    """The result as JSON text, without a final newline."""
    return json.dumps(to_dict(result), indent=2, ensure_ascii=False, allow_nan=False)


def to_dict(result: FlowsResult) -> dict[str, Any]:
    """The result as plain values, keys as in ``pciesim schema flows``; numbers with nine significant digits."""
    return {
        "schema": SCHEMA,
        "topology": result.topology,
        "operation": str(result.operation),
        "engine": str(result.engine),
        "metric": str(result.metric),
        "volume_bytes": _rounded(result.volume),
        "figure_bytes_per_s": _rounded(result.figure),
        "rows": [_row(flow) for flow in result.flows],
        "collapsed": list(result.collapsed),
        "notes": list(result.notes),
    }


def _row(flow: FlowRate) -> dict[str, Any]:
    return {
        "source": flow.source,
        "target": flow.target,
        "rate_bytes_per_s": _rounded(flow.rate),
        "limited_by": flow.limited_by,
        "completion_s": None if flow.completion is None else _rounded(flow.completion),
        "background": flow.background,
    }


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")
