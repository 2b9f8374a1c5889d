"""The catalogue of algorithms as Markdown, made from the table itself."""

from __future__ import annotations

from pciesim.collectives.select import ALGORITHMS
from pciesim.schedule import CollectiveKind

__all__ = ["catalogue_page"]


def catalogue_page() -> str:
    """What each algorithm is and needs, then what it costs for every collective it serves."""
    lines = ["| name | what it does | needs | source |", "|---|---|---|---|"]
    for name, entry in ALGORITHMS.items():
        lines.append(f"| `{name}` | {entry.about} | {entry.needs.text} | {entry.source} |")
    lines += [
        "",
        "Costs in n ranks, S input bytes a rank, k GPUs an island, m islands. Traversals are sequential one-way",
        "crossings on the critical path (a store seen by a poll 1, a load or a fenced store 2; NCCL's rows are over",
        "peer-to-peer: a hop through host memory takes 2 more); messages are those with data that the busiest rank",
        "issues; bytes are payload through the busiest rank's port in its busier direction.",
    ]
    for kind in CollectiveKind:
        words = str(kind).replace("_", "-")
        lines += ["", f"### {words}", "", "| name | traversals | messages | bytes |", "|---|---|---|---|"]
        for name, entry in ALGORITHMS.items():
            cost = entry.costs.get(kind)
            if cost is None:
                continue
            cells = (_formula(cost.traversals), _formula(cost.messages), _formula(cost.nbytes))
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _formula(text: str) -> str:
    """``2*(n-1)/n*S`` -> ``2·(n-1)/n·S``; what another entry decides is said in words."""
    if text == "-1":
        return "as chosen"
    for old, new in (("*", "·"), ("else -1", "else as chosen"), ("m & (m-1)", "m no power of 2")):
        text = text.replace(old, new)
    return text
