"""The front as a table and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pciesim.compare.configuration import label
from pciesim.reports.compare_json import outcome_dict
from pciesim.units import MS

if TYPE_CHECKING:
    from pciesim.compare.ranking import Front

__all__ = ["SCHEMA", "front_json", "front_text"]

SCHEMA: Final = "pciesim/front/1"
_LOADED: Final = ("topo", "model")


def front_text(front: Front) -> str:
    """One line a point of the front, the fastest per user first."""
    lines = [
        f"{front.title}: {len(front.outcomes)} of {len(front.outcomes) + len(front.others)} configurations are on the "
        f"front, {front.refused} cannot run",
        "",
        f"{'tok/s user':>10}  {'total':>8}  {'ms/token':>8}  {'trav./token':>11}  configuration",
    ]
    for each in front.outcomes:
        axes = [axis for axis, _ in each.configuration if axis not in _LOADED]
        lines.append(
            f"{each.user.value:10.1f}  {each.total.value:8.0f}  {each.latency / MS:8.2f}  "
            f"{each.traversals_per_token:11,.0f}  {label(each.configuration, axes)}"
        )
    return "\n".join(lines) + "\n"


def front_json(front: Front) -> str:
    """The front as JSON, schema ``pciesim/front/1``."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "title": front.title,
            "front": [outcome_dict(each) for each in front.outcomes],
            "tried": len(front.outcomes) + len(front.others) + front.refused,
            "refused": front.refused,
        },
        indent=2,
        allow_nan=False,
    )
