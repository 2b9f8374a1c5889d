"""A model's summary as JSON, schema ``pciesim/model-summary/1``: bytes and counts, the unit in the key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from pciesim.model_summary import GpuShare, ModelSummary

__all__ = ["SCHEMA", "list_to_json", "to_dict", "to_json"]

SCHEMA: Final = "pciesim/model-summary/1"
LIST_SCHEMA: Final = "pciesim/model-list/1"


def to_json(summary: ModelSummary) -> str:
    """The summary as JSON text, without a final newline."""
    return json.dumps(to_dict(summary), indent=2, ensure_ascii=False, allow_nan=False)


def to_dict(summary: ModelSummary) -> dict[str, Any]:
    """The summary as plain values."""
    model = summary.model
    return {
        "schema": SCHEMA,
        "name": model.name,
        "source": model.source,
        "hidden": model.hidden,
        "vocabulary": model.vocabulary,
        "layers": summary.layers,
        "layer_kinds": [{"kind": kind, "count": count} for kind, count in summary.kinds],
        "kv_precision": str(model.kv_precision),
        "parameters": _parameters(summary),
        "weight_bytes": round(summary.nbytes),
        "modules": [
            {
                "module": str(size.module),
                "precision": str(size.precision),
                "parameters": size.parameters,
                "active_parameters": size.active_parameters,
                "bytes": round(size.nbytes),
            }
            for size in summary.modules
        ],
        "all_reduces": [
            {
                "after": each.after,
                "count": count,
                "bytes_per_token": each.bytes_per_token,
                "precision": str(each.precision),
            }
            for each, count in summary.all_reduces
        ],
        "all_reduce_count": sum(count for _, count in summary.all_reduces),
        "context": summary.context,
        "per_gpu": [_share(share) for share in summary.shares],
        "legal_tp": list(summary.legal_tp),
    }


def list_to_json(entries: Iterable[tuple[str, ModelSummary]]) -> str:
    """The shipped models by short name."""
    models = [
        {
            "id": name,
            "name": summary.model.name,
            "layers": summary.layers,
            "parameters": _parameters(summary),
            "weight_bytes": round(summary.nbytes),
            "kv_precision": str(summary.model.kv_precision),
        }
        for name, summary in entries
    ]
    return json.dumps({"schema": LIST_SCHEMA, "models": models}, indent=2, ensure_ascii=False, allow_nan=False)


def _parameters(summary: ModelSummary) -> dict[str, int | None]:
    return {
        "total": summary.total,
        "active": summary.active,
        "active_without_embedding": summary.active_without_embedding,
        "mtp": summary.mtp,
        "vision": summary.model.vision_parameters,
    }


def _share(share: GpuShare) -> dict[str, Any]:
    return {
        "tp": share.tp,
        "ep": share.ep,
        "weight_bytes": round(share.weights),
        "weight_bytes_read_per_step": round(share.weights_read),
        "kv_bytes_per_token": share.kv_per_token,
        "kv_bytes_at_context": round(share.kv_at_context),
        "state_bytes_per_sequence": round(share.state_per_sequence),
    }
