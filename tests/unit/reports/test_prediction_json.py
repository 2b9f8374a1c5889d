from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from pciesim.commands.schema import schema_text
from pciesim.prediction import Prediction
from pciesim.profile import Interval
from pciesim.reports.prediction_json import to_dict, to_json
from tests.support.predictions import a_batched_prediction, a_prediction

SCHEMA = json.loads(schema_text("prediction"))
both = pytest.mark.parametrize("make", [a_prediction, a_batched_prediction])


@both
def test_valid_against_the_shipped_schema(make: Callable[[], Prediction]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(to_json(make())), SCHEMA, jsonschema.Draft202012Validator)


def test_the_schema_refuses_what_is_missing_or_unknown() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    document = to_dict(a_prediction())
    assert not validator.is_valid(document | {"surprise": 1})
    for key in document:
        assert not validator.is_valid({name: value for name, value in document.items() if name != key})


def test_the_keys_that_tools_rely_on() -> None:
    document: dict[str, Any] = json.loads(to_json(a_prediction()))
    assert document["schema"] == "pciesim/prediction/1"
    assert {"value", "low", "high"} == set(document["step_latency_s"])
    assert {"user", "total"} == set(document["tokens_per_s"])
    relied_on = {"kind", "count", "bytes", "algorithm", "protocol", "transport", "latency_s", "traversals"}
    assert relied_on <= set(document["collectives"][0])
    assert {"breakdown_s", "traversals_per_token", "assumptions"} <= set(document)


def test_the_breakdown_adds_up() -> None:
    document = to_dict(a_prediction())
    total = sum(part["value"] for part in document["breakdown_s"].values())
    assert total == pytest.approx(document["step_latency_s"]["value"], rel=1e-8)


def test_equal_predictions_are_equal_bytes() -> None:
    """Noise below the ninth digit, as another platform's libm makes it, does not reach the file."""
    one = a_prediction()
    step = one.step_latency
    noisy = Interval(value=step.value * (1 + 1e-13), low=step.low, high=step.high)
    assert to_json(one) == to_json(replace(a_prediction(), step_latency=noisy))


def test_not_a_number_is_never_written() -> None:
    broken = replace(a_prediction(), step_latency=Interval(value=1.0, low=1.0, high=float("inf")))
    with pytest.raises(ValueError, match="JSON"):
        to_json(broken)
