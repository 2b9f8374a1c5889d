"""A prediction as JSON, schema ``pciesim/prediction/1``.

SI units with the unit in the key; what has an interval is ``{"value", "low", "high"}``. Keys come in a fixed order and
numbers with nine significant digits, so equal predictions are equal bytes on every platform.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pciesim.prediction import CollectiveLine, KernelLine, OwnKernelGain, Prediction, Request
from pciesim.profile import Interval

__all__ = ["SCHEMA", "to_dict", "to_json"]

SCHEMA: Final = "pciesim/prediction/1"
_DIGITS: Final = 9


def to_json(prediction: Prediction) -> str:
    """The prediction as JSON text, without a final newline."""
    return json.dumps(to_dict(prediction), indent=2, ensure_ascii=False, allow_nan=False)


def to_dict(prediction: Prediction) -> dict[str, Any]:
    """The prediction as plain values, keys as in ``pciesim schema prediction``."""
    link, memory = prediction.busiest_link, prediction.memory
    return {
        "schema": SCHEMA,
        "request": _request(prediction.request),
        "step_latency_s": _interval(prediction.step_latency),
        "tokens_per_s": {
            "user": _interval(prediction.tokens_per_second_user),
            "total": _interval(prediction.tokens_per_second_total),
        },
        "breakdown_s": {name: _interval(share) for name, share in prediction.breakdown},
        "collectives": [_collective(line) for line in prediction.collectives],
        "tokens_per_step": _interval(prediction.tokens_per_step),
        "traversals_per_step": prediction.traversals,
        "traversals_per_token": _per_token(prediction),
        "busiest_link": link and {"name": link.name, "bytes": _rounded(link.nbytes), "busy_share": _rounded(link.busy)},
        "levers": [
            {"what": lever.what, "how": lever.how, "saves_s": _interval(lever.saves), "caveat": lever.caveat}
            for lever in prediction.levers
        ],
        "kernels": [_kernel(line) for line in prediction.kernels],
        "memory_bytes": {
            "weights": _rounded(memory.weights),
            "kv_cache": _rounded(memory.kv_cache),
            "state": _rounded(memory.state),
            "capacity": _rounded(memory.capacity),
            "activations": _rounded(memory.activations),
            "communication_buffers": _rounded(memory.buffers),
            "graphs_and_context": _rounded(memory.graphs),
        },
        "memory_limits": {"context": memory.most_context, "sequences": memory.most_sequences},
        "sensitivities": [
            {"parameter": each.parameter, "effect_s": _rounded(each.effect), "evidence": str(each.evidence)}
            for each in prediction.sensitivities
        ],
        "assumptions": [
            {"text": each.text, "settle": each.settle, "matters": each.matters} for each in prediction.assumptions
        ],
        "warnings": list(prediction.warnings),
        "own_kernel": prediction.own_kernel and _own_kernel(prediction.own_kernel),
    }


def _request(request: Request) -> dict[str, Any]:
    return {
        "topology": request.topology,
        "model": request.model,
        "gpu_model": request.gpu_model,
        "gpus": list(request.gpus),
        "tp": request.tp,
        "batch": request.batch,
        "context": request.context,
        "engine": request.engine,
        "allreduce": request.allreduce,
        "profile": request.profile,
        "evaluator": request.evaluator,
        "choice": request.choice,
        "phase": request.phase,
        "prompt": request.prompt,
        "chunk": request.chunk,
        "ep": request.ep,
        "dp": request.dp,
        "pp": request.pp,
        "attention_dp": request.attention_dp,
        "strategies": list(request.strategies),
    }


def _per_token(prediction: Prediction) -> float:
    """Whole where a step yields one token."""
    each = prediction.traversals_per_token
    return int(each) if each.is_integer() else _rounded(each)


def _own_kernel(gain: OwnKernelGain) -> dict[str, Any]:
    return {
        "saves_s": _rounded(gain.saves),
        "against": [
            {
                "bytes": each.nbytes,
                "count": each.count,
                "own_s": _rounded(each.own),
                "break_even_s": _rounded(each.latency),
                "algorithm": each.algorithm,
            }
            for each in gain.against
        ],
    }


def _collective(line: CollectiveLine) -> dict[str, Any]:
    return {
        "kind": str(line.kind),
        "count": line.count,
        "bytes": line.nbytes,
        "gathered_bytes": line.gathered,
        "algorithm": line.algorithm,
        "protocol": line.protocol,
        "transport": line.transport,
        "channels": line.channels,
        "latency_s": _interval(line.latency),
        "in_step_s": _rounded(line.in_step),
        "traversals": line.traversals,
        "reason": line.reason,
    }


def _kernel(line: KernelLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "category": str(line.category),
        "count": line.count,
        "time_s": _interval(line.time),
        "floor_s": _rounded(line.floor),
        "source": str(line.source),
        "detail": line.detail,
    }


def _interval(interval: Interval) -> dict[str, float]:
    return {"value": _rounded(interval.value), "low": _rounded(interval.low), "high": _rounded(interval.high)}


def _rounded(value: float) -> float:
    """Nine significant digits; a whole number stays one."""
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")
