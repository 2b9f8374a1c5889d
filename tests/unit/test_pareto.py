"""The front of speed per user against total throughput."""

from __future__ import annotations

import json
from pathlib import Path

from pciesim.reports.pareto_plot import plot_front
from pciesim.reports.pareto_text import front_json, front_text
from pciesim.whatif.advising import pareto


def test_nothing_beats_the_front_and_everything_else_is_beaten(tmp_path: Path) -> None:
    found = pareto(
        topo="rtx6000x8", model="qwen35_397b",
        vary={"tp": ["4", "8"], "allreduce": ["auto", "oneshot-push"], "batch": ["1", "8", "64"]},
    )  # fmt: skip
    assert len(found.outcomes) + len(found.others) + found.refused == 12
    points = [(1 / each.latency, each.sequences / each.latency) for each in found.outcomes]
    assert points == sorted(points, key=lambda each: -each[0])
    for each in found.others:
        user, total = 1 / each.latency, each.sequences / each.latency
        assert any(u >= user and t >= total for u, t in points)
    assert front_text(found).count("tp=") == len(found.outcomes)
    assert len(json.loads(front_json(found))["front"]) == len(found.outcomes)
    plot_front(found.title, found.outcomes, found.others, tmp_path / "front.svg")
    assert (tmp_path / "front.svg").stat().st_size > 5000
