"""Traces: slices of a track never overlap, counters stay within the link, the step is all there."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from pciesim.cli import run
from pciesim.reports.trace_json import trace_events, trace_json
from pciesim.step import evaluate_step, timer_of
from pciesim.strategies.choice import apply_choices
from tests.support.scenarios import scenario


@pytest.mark.parametrize(
    "choices",
    [[], [("allreduce", "oneshot-push")], [("allreduce", "oneshot-pull")], [("p2p", "off")], [("spec", "mtp:2")]],
    ids=str,
)
def test_slices_of_a_track_never_overlap(choices: list[tuple[str, str]]) -> None:
    one = apply_choices(scenario(), choices).scenario
    step = evaluate_step(one, timer_of(one, "simulate"))
    tracks = defaultdict(list)
    for event in trace_events(one, step):
        if event["ph"] == "X":
            assert event["dur"] > 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "C":
            assert 0 <= event["args"]["share"] <= 1
    for slices in tracks.values():
        slices.sort()
        assert all(after[0] >= before[1] - 2e-4 for before, after in pairwise(slices))
    assert max(end for _, end in tracks[1, 0]) == pytest.approx(step.timeline.length * 1e6, rel=1e-3)


def test_every_track_has_a_name_and_the_links_are_directed() -> None:
    one = scenario()
    step = evaluate_step(one, timer_of(one, "simulate"))
    events = json.loads(trace_json(one, step))["traceEvents"]
    named = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    used = {(each["pid"], each["tid"]) for each in events if each["ph"] == "X"}
    assert used <= set(named)
    assert "GPU0 -> root_port0" in named.values()
    assert "root_port0 -> GPU0" in named.values()


def test_predict_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert run(["predict", "--topo", "rtx6000x4", "--model", "qwen35_397b", "--trace", str(path)]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert "a step" in capsys.readouterr().out
