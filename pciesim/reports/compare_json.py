"""A comparison as JSON, schema ``pciesim/comparison/1``. SI units with the unit in the key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pciesim.profile import Interval

if TYPE_CHECKING:
    from pciesim.compare.comparison import Comparison, Gain
    from pciesim.compare.outcome import Outcome

__all__ = ["SCHEMA", "comparisons_json", "outcome_dict"]

SCHEMA: Final = "pciesim/comparison/1"
_DIGITS: Final = 9


def comparisons_json(comparisons: Sequence[Comparison]) -> str:
    """All comparisons as one JSON text."""
    return json.dumps(
        {"schema": SCHEMA, "comparisons": [_comparison(each) for each in comparisons]}, indent=2, allow_nan=False
    )


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "title": comparison.title,
        "axes": list(comparison.axes),
        "baseline": outcome_dict(comparison.baseline),
        "rows": [_gain(each) for each in comparison.gains],
        "refused": [{"configuration": dict(each.configuration), "reason": each.reason} for each in comparison.refused],
    }


def _gain(gain: Gain) -> dict[str, Any]:
    return {
        **outcome_dict(gain.outcome),
        "saved_s": _interval(gain.saved),
        "speed_up": _interval(gain.speed_up),
        "speed_up_total": _interval(gain.total),
        "sign": gain.sign,
        "sign_certain": gain.certain,
        "why_s": {each.category: _rounded(each.change) for each in gain.why},
    }


def outcome_dict(outcome: Outcome) -> dict[str, Any]:
    """One configuration's figures as plain values."""
    memory = outcome.memory
    return {
        "configuration": dict(outcome.configuration),
        "step_latency_s": _rounded(outcome.step),
        "tokens_per_step": _rounded(outcome.tokens),
        "token_latency_s": _interval(outcome.latency_interval),
        "tokens_per_s": {"user": _interval(outcome.user), "total": _interval(outcome.total)},
        "traversals_per_token": _rounded(outcome.traversals_per_token),
        "breakdown_s": {name: _rounded(value) for name, value in outcome.parts.items()},
        "collectives": [
            {
                "kind": line.kind,
                "count": line.count,
                "bytes": line.nbytes,
                "algorithm": line.algorithm,
                "latency_s": _rounded(line.latency),
                "traversals": line.traversals,
            }
            for line in outcome.calls
        ],
        "memory_bytes": {
            "weights": _rounded(memory.weights),
            "kv_cache": _rounded(memory.kv_cache),
            "state": _rounded(memory.state),
            "capacity": _rounded(memory.capacity),
        },
        "gpus": list(outcome.gpus),
        "notes": list(outcome.notes),
    }


def _interval(each: Interval) -> dict[str, float]:
    return {"value": _rounded(each.value), "low": _rounded(each.low), "high": _rounded(each.high)}


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")
