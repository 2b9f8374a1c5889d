"""Advice as JSON, schema ``pciesim/advice/1``. SI units with the unit in the key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pciesim.reports.compare_json import outcome_dict

if TYPE_CHECKING:
    from pciesim.compare.advice import Advice, Proposal
    from pciesim.profile import Interval

__all__ = ["SCHEMA", "advice_json"]

SCHEMA: Final = "pciesim/advice/1"


def advice_json(advice: Advice) -> str:
    """The advice as JSON text."""
    floor, even = advice.floor, advice.break_even
    return json.dumps(
        {
            "schema": SCHEMA,
            "title": advice.title,
            "objective": advice.objective,
            "limit_s": advice.limit or None,
            "met": advice.met,
            "met_for_whole_interval": advice.met_surely,
            "tried": advice.tried,
            "refused": advice.refused,
            "baseline": outcome_dict(advice.baseline),
            "ready": [_proposal(each) for each in advice.ready],
            "later": [_proposal(each) for each in advice.later],
            "measure": [
                {"figure": each.figure, "effect_s": each.effect, "evidence": each.evidence, "settle": each.settle}
                for each in advice.doubts
            ],
            "floor": {
                "all_reduces": floor.calls,
                "traversals": floor.traversals,
                "traversals_s": floor.wire,
                "bytes_per_gpu": floor.nbytes,
                "bytes_s": floor.memory,
            },
            "drafts": advice.drafts
            and {"best": advice.drafts.best, "least": advice.drafts.least, "most": advice.drafts.most},
            "break_even": even
            and {
                "bytes": even.nbytes,
                "calls": even.calls,
                "latency_s": even.latency,
                "algorithm": even.algorithm,
                "tokens_per_s_user_per_microsecond": even.rate_per_microsecond,
                "tokens_per_s_user_if_free": even.zero,
            },
        },
        indent=2,
        allow_nan=False,
    )


def _proposal(proposal: Proposal) -> dict[str, Any]:
    gain = proposal.gain
    return {
        **outcome_dict(gain.outcome),
        "speed_up": _interval(gain.speed_up),
        "speed_up_total": _interval(gain.total),
        "sign": gain.sign,
        "switches": list(proposal.switches),
        "missing": list(proposal.missing),
        "risks": list(proposal.risks),
    }


def _interval(each: Interval) -> dict[str, float]:
    return {"value": each.value, "low": each.low, "high": each.high}
