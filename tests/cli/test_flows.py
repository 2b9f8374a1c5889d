"""``pciesim flows``: what it prints, its JSON against the schema, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable

import jsonschema
import pytest

from pciesim.commands.schema import schema_text
from tests.cli.conftest import Outcome


def test_says_rates_and_limits(pciesim: Callable[..., Outcome]) -> None:
    done = pciesim("flows", "--topo", "rtx6000x8_2switch", "0>4", "1:5")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].startswith("56.3 GB/s")
    assert "GPU1 > GPU5  28.1 GB/s  switch0 -> root_port0" in done.out


@pytest.mark.parametrize("metric", ["rate", "completion", "p2p_test", "p2pmark", "p2pmark_mean", "copy_loop"])
def test_json_keeps_its_schema(pciesim: Callable[..., Outcome], metric: str) -> None:
    done = pciesim(
        "flows", "--topo", "asus_esc8000a_e13p", "0>4", "1>6", "host:2", "--background", "3:host@1GB/s",
        "--metric", metric, "--volume", "16MiB", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    jsonschema.validate(found, json.loads(schema_text("flows")))
    assert [(row["source"], row["target"]) for row in found["rows"]] == [
        ("GPU0", "GPU4"), ("GPU1", "GPU6"), ("memory0", "GPU2"), ("GPU3", "memory0"),
    ]  # fmt: skip
    assert found["collapsed"] == ["vs0"]
    assert found["rows"][0]["limited_by"] == "posted-write collapse of vs0"


def test_collapse_and_staging_are_said(pciesim: Callable[..., Outcome]) -> None:
    assert "posted writes through vs0 collapse" in pciesim("flows", "--topo", "asus_esc8000a_e13p", "0>4", "1>6").out
    staged = pciesim("flows", "--topo", "rtx6000x4", "0:1", "--no-p2p").out
    assert "through host memory: GPU0>GPU1" in staged


def test_ideal_is_faster(pciesim: Callable[..., Outcome]) -> None:
    figures = [
        json.loads(pciesim("flows", "--topo", "rtx6000x4", "all-to-all", "--json", *more).out)["figure_bytes_per_s"]
        for more in ([], ["--ideal"])
    ]
    assert figures[0] < 0.7 * figures[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0>9"], "names GPU 9; 'rtx6000x4' has GPUs 0 to 3"),
        (["0"], "is not a flow"),
        (["0>1", "--metric", "speed"], "unknown metric 'speed'"),
        (["0>1", "--engine", "dma"], "unknown engine 'dma'"),
        (["0>1", "--op", "copy"], "unknown operation 'copy'"),
        (["0>1", "--arbitration", "none"], "unknown arbitration 'none'"),
        (["0>1", "--volume", "256"], "256"),
        (["0>1", "--volume", "0B", "--metric", "completion"], "must be positive"),
        (["0>1", "--background", "1>2"], "needs a rate"),
        (["0>1@0GB/s"], "must be positive"),
        ([], "missing argument"),
    ],
)
def test_refuses_in_one_line(pciesim: Callable[..., Outcome], words: list[str], message: str) -> None:
    done = pciesim("flows", "--topo", "rtx6000x4", *words)
    assert done.code == 2
    assert message in done.one_line()
