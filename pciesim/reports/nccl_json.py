"""NCCL's decisions as JSON, schemas ``pciesim/nccl/1`` and ``pciesim/nccl-graph/1``: SI units, units in the keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from pciesim.nccl_explain import Explanation, GraphFile, Remedy

__all__ = ["GRAPH_SCHEMA", "SCHEMA", "explanation_json", "graph_json"]

SCHEMA: Final = "pciesim/nccl/1"
GRAPH_SCHEMA: Final = "pciesim/nccl-graph/1"


def explanation_json(told: Explanation) -> str:
    """The explanation as JSON text, without a final newline."""
    ring = told.plan.ring
    return _text(
        {
            "schema": SCHEMA,
            "collective": str(told.kind),
            "topology": told.topology,
            "gpus": list(told.gpus),
            "version": told.version,
            "pairs": [
                {"source": told.gpus[a], "target": told.gpus[b], "path": told.paths[a, b], "transport": transport}
                for (a, b), transport in told.plan.pairs.items()
            ],
            "ring": {
                "gpus": [told.gpus[rank] for rank in ring.order],
                "speed_bytes_per_s": _rounded(ring.speed),
                "slowest_edge_bytes_per_s": _rounded(ring.slowest),
                "graph_channels": ring.graph_channels,
                "channels": ring.channels,
                "fallback": ring.fallback,
            },
            "rows": [
                {
                    "bytes": choice.nbytes,
                    "algorithm": str(choice.table[choice.chosen].algorithm),
                    "protocol": str(choice.table[choice.chosen].protocol),
                    "channels": choice.channels,
                    "reason": choice.reason,
                    "options": [
                        {
                            "algorithm": str(cost.algorithm),
                            "protocol": str(cost.protocol),
                            "nccl_estimate_s": _rounded(cost.time),
                            "predicted_s": _rounded(time),
                            "chosen": place == choice.chosen,
                            "best": place == choice.best,
                        }
                        for place, (cost, time) in enumerate(zip(choice.table, choice.times, strict=True))
                    ],
                }
                for choice in told.sizes
            ],
        }
    )


def graph_json(graph: GraphFile, path: str, faults: Sequence[str], remedy: Remedy | None) -> str:
    """The graph file, its faults and the remedy as JSON text, without a final newline."""
    return _text(
        {
            "schema": GRAPH_SCHEMA,
            "file": path,
            "ring": list(graph.ring),
            "channels": graph.channels,
            "speed_bytes_per_s": _rounded(graph.speed),
            "type_intra": graph.type_intra,
            "faults": list(faults),
            "environment": dict(remedy.variables) if remedy is not None else {},
            "rows": [
                {"bytes": size, "before_s": _rounded(old), "after_s": _rounded(new)}
                for size, old, new in zip(remedy.sizes, remedy.before, remedy.after, strict=True)
            ]
            if remedy is not None
            else [],
            "caveats": list(remedy.caveats) if remedy is not None else [],
        }
    )


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")
