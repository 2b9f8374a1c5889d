"""``pciesim predict`` on what is shipped: real answers, held against the schema and against themselves."""

from __future__ import annotations

import json
from collections.abc import Callable

import jsonschema
import pytest

from pciesim.api import predict
from pciesim.commands.schema import schema_text
from pciesim.errors import Infeasible
from pciesim.formats.shipped import shipped_names
from pciesim.reports.prediction_text import to_text
from tests.cli.conftest import Outcome

Run = Callable[..., Outcome]
SCHEMA = json.loads(schema_text("prediction"))
HEADLINE = ("predict", "--topo", "rtx6000x8", "--model", "qwen35_397b")


@pytest.mark.parametrize("evaluator", ["simulate", "estimate"])
def test_json_keeps_its_schema(pciesim: Run, evaluator: str) -> None:
    done = pciesim(*HEADLINE, "--json", "--evaluator", evaluator)
    assert done.err == ""
    document = json.loads(done.out)
    jsonschema.validate(document, SCHEMA, jsonschema.Draft202012Validator)
    parts = sum(part["value"] for part in document["breakdown_s"].values())
    assert parts == pytest.approx(document["step_latency_s"]["value"], rel=1e-8)
    assert document["tokens_per_s"]["user"]["value"] == pytest.approx(1 / document["step_latency_s"]["value"], rel=1e-8)


def test_qwen35_at_tp8_issues_what_sglang_issues(pciesim: Run) -> None:
    """1 + 2 x 60 all-reduces of hidden 4096 x 2 bytes, one logits gather of 248320 / 8 x 2 bytes a rank."""
    lines = {line["kind"]: line for line in json.loads(pciesim(*HEADLINE, "--json").out)["collectives"]}
    assert (lines["all_reduce"]["count"], lines["all_reduce"]["bytes"]) == (121, 8192)
    assert (lines["all_gather"]["count"], lines["all_gather"]["bytes"]) == (1, 62080)
    assert lines["all_gather"]["gathered_bytes"] == 8 * 62080


def test_the_same_question_has_the_same_bytes(pciesim: Run) -> None:
    assert pciesim(*HEADLINE, "--json").out == pciesim(*HEADLINE, "--json").out


@pytest.mark.parametrize("topology", shipped_names("topologies"))
@pytest.mark.parametrize("model", ["qwen35_397b", "llama31_70b", "qwen3_235b"])
def test_every_box_answers_or_says_why_not(topology: str, model: str) -> None:
    try:
        prediction = predict(topo=topology, model=model, evaluator="estimate")
    except Infeasible as no:
        refusal = str(no)
    else:
        refusal = ""
        for width in (80, 100):
            assert max(map(len, to_text(prediction, width=width).splitlines())) <= width
    assert not refusal or ("more than" in refusal and "would fit" in refusal), refusal
