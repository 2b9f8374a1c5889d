"""Strategies in a prediction: the same step as in a comparison, with everything that a prediction says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pciesim.api import predict
from pciesim.cli import run
from pciesim.compare.memo import Memo
from pciesim.errors import Infeasible, UnknownName
from pciesim.reports.prediction_text import to_text
from pciesim.whatif.loading import Loader, evaluate

BOX = {"topo": "rtx6000x8", "model": "qwen35_397b"}


@pytest.mark.parametrize(
    "strategies",
    [
        {"spec": "mtp:3"},
        {"spec": "mtp:2@2.5", "allreduce": "pcie-ipc"},
        {"overlap": "two-batch"},
        {"nccl": "no-graph", "gather": "argmax"},
        {"sync": "ladder"},
        {"host": "overlap", "spec": "mtp:1"},
    ],
)
def test_a_prediction_and_a_comparison_say_the_same(strategies: dict[str, str]) -> None:
    found = predict(**BOX, batch=8, strategies=strategies, hypothetical=True)
    configuration = (*BOX.items(), ("batch", "8"), *strategies.items())
    (outcome,), _ = evaluate([configuration], Loader(hypothetical=True), Memo(evaluator="simulate"))
    assert found.step_latency.value == pytest.approx(outcome.step, rel=1e-12)
    assert found.tokens_per_step.value == outcome.tokens
    assert found.traversals == outcome.traversals
    assert found.traversals_per_token == pytest.approx(outcome.traversals_per_token)
    assert found.tokens_per_second_user.value == pytest.approx(outcome.user.value)
    assert found.tokens_per_second_user.low == pytest.approx(outcome.user.low, rel=1e-3)
    assert found.tokens_per_second_user.high == pytest.approx(outcome.user.high, rel=1e-3)
    assert sum(part.value for _, part in found.breakdown) == pytest.approx(found.step_latency.value)
    assert found.request.strategies == tuple(f"{axis}={value}" for axis, value in strategies.items())


def test_a_split_by_strategy_is_the_split_by_option() -> None:
    one = predict(**BOX, tp=4, dp=2)
    other = predict(**BOX, tp=4, strategies={"dp": "2"})
    assert other.request.dp == 2
    assert other.step_latency.value == one.step_latency.value
    assert other.tokens_per_second_total == one.tokens_per_second_total


def test_what_cannot_run_is_refused_with_the_reason_or_noted() -> None:
    with pytest.raises(Infeasible, match="symm-mem"):
        predict(**BOX, strategies={"allreduce": "symm-mem"})
    with pytest.raises(UnknownName):
        predict(**BOX, strategies={"spec": "eagle9"})
    found = predict(**BOX, strategies={"sync": "ladder"})
    assert any("changes the model" in note for note in found.warnings)


def test_text_and_json_say_what_a_step_yields(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    question = ["predict", "--topo", "rtx6000x8", "--model", "qwen35_397b", "--with", "spec=mtp:3"]
    trace = tmp_path / "trace.json"
    assert run([*question, "--json", "--trace", str(trace)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["request"]["strategies"] == ["spec=mtp:3"]
    assert document["tokens_per_step"]["value"] == pytest.approx(3.03)
    assert document["traversals_per_token"] == pytest.approx(document["traversals_per_step"] / 3.03)
    assert "draft" in trace.read_text(encoding="utf-8")
    text = to_text(predict(**BOX, strategies={"spec": "mtp:3"}))
    assert "of 3.03 tokens" in text
    assert "with spec=mtp:3" in text
    assert run([*question, "--with", "spec=mtp:2"]) == 2
    assert "sets spec twice" in capsys.readouterr().err
