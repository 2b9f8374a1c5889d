"""A sweep of collectives as JSON, schema ``pciesim/collective/1``: SI units with the unit in the key."""

from __future__ import annotations

import json
from typing import Any, Final

from pciesim.collective_sweep import Sweep, SweepRow

__all__ = ["SCHEMA", "to_dict", "to_json"]

SCHEMA: Final = "pciesim/collective/1"


def to_json(sweep: Sweep) -> str:
    """The sweep as JSON text, without a final newline."""
    return json.dumps(to_dict(sweep), indent=2, ensure_ascii=False, allow_nan=False)


def to_dict(sweep: Sweep) -> dict[str, Any]:
    """The sweep as plain values, keys as in ``pciesim schema collective``; numbers with nine significant digits."""
    return {
        "schema": SCHEMA,
        "collective": str(sweep.kind),
        "topology": sweep.topology,
        "gpus": list(sweep.gpus),
        "profile": sweep.profile,
        "evaluator": sweep.evaluator,
        "skew": _rounded(sweep.skew),
        "rows": [_row(row) for row in sweep.rows],
        "floors": [{"bytes": size, "latency_s": _rounded(floor)} for size, floor in sweep.floors],
        "crossovers": [
            {"bytes": _rounded(each.nbytes), "before": each.before, "after": each.after} for each in sweep.crossovers
        ],
        "refused": [{"algorithm": each.algorithm, "reason": each.reason} for each in sweep.refused],
    }


def _row(row: SweepRow) -> dict[str, Any]:
    latency = row.latency
    return {
        "bytes": row.nbytes,
        "counted_bytes": _rounded(row.counted),
        "algorithm": row.algorithm,
        "ran": row.ran,
        "protocol": row.protocol,
        "transport": row.transport,
        "channels": row.channels,
        "latency_s": {"value": _rounded(latency.value), "low": _rounded(latency.low), "high": _rounded(latency.high)},
        "algbw_bytes_per_s": _rounded(row.algorithm_bandwidth),
        "busbw_bytes_per_s": _rounded(row.bus_bandwidth),
        "traversals": row.traversals,
        "fastest": row.fastest,
        "reason": row.reason,
        "notes": list(row.notes),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")
