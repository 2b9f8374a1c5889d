"""An all-reduce of one's own, given as a measured curve: what it takes, what it saves, and how far it is believed."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from pciesim.api import predict
from pciesim.cli import run
from pciesim.collectives.curve import Curve, lower_own
from pciesim.collectives.proof import prove
from pciesim.commands.schema import schema_text
from pciesim.errors import InputError
from pciesim.evaluate.estimate import estimate
from pciesim.evaluate.simulate import simulate
from pciesim.prediction import Prediction
from pciesim.schedule import CollectiveKind
from pciesim.units import KIB, US
from pciesim.whatif import compare
from tests.support.tasks import BOXES, fabric_named, task

MODEL = {"topo": "rtx6000x8", "model": "qwen35_397b"}
CURVE = Curve(name="mine", points=((4 * KIB, 8 * US), (64 * KIB, 32 * US)))


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text("bytes,latency_us\n4096,8\n65536,32\n", encoding="utf-8")
    return path


@pytest.fixture
def said(mine: Path) -> Prediction:
    return predict(**MODEL, allreduce=str(mine))


def test_halfway_in_logs() -> None:
    assert CURVE.latency(16 * KIB) == pytest.approx(16 * US)


@pytest.mark.parametrize("nbytes", [2 * KIB - 1, 128 * KIB + 1])
def test_not_believed_beyond_twice_its_range(nbytes: int) -> None:
    with pytest.raises(InputError, match="from 4 KiB to 64 KiB"):
        CURVE.latency(nbytes)


@pytest.mark.parametrize("name", BOXES)
def test_its_program_is_proved_and_takes_what_the_curve_says(name: str) -> None:
    program = lower_own(CURVE, task(fabric_named(name), 16 * KIB)).program
    prove(program, CollectiveKind.ALL_REDUCE)
    assert simulate(program).latency == estimate(program) == pytest.approx(16 * US)
    assert not program.link_bytes()


def test_a_step_with_it(said: Prediction) -> None:
    """8 KiB lie a quarter of the way in logs: 8 us x 4^(1/4), exact as measured."""
    line = next(each for each in said.collectives if each.kind == CollectiveKind.ALL_REDUCE)
    assert (line.algorithm, line.transport, line.in_step) == ("own kernel (mine)", "own", 0.0)
    assert line.latency.value == line.latency.low == line.latency.high == pytest.approx(8 * US * 4**0.25)


def test_break_even_is_the_engines_own_choice(said: Prediction) -> None:
    """Nothing overlaps the all-reduces of this step: what each saves adds up to what the step saves."""
    auto = predict(**MODEL)
    gain = said.own_kernel
    assert auto.own_kernel is None
    assert gain is not None
    assert gain.saves == pytest.approx(auto.step_latency.value - said.step_latency.value)
    assert gain.saves == pytest.approx(sum(each.count * (each.latency - each.own) for each in gain.against))
    theirs = next(each for each in auto.collectives if each.kind == CollectiveKind.ALL_REDUCE)
    assert [(each.count, each.latency, each.algorithm) for each in gain.against] == [
        (theirs.count, pytest.approx(theirs.latency.value), theirs.algorithm)
    ]


def test_sums_in_fp32_stay_with_nccl(mine: Path) -> None:
    found = predict(topo="rtx6000x8", model="minimax_m2", tp=4, allreduce=str(mine))
    assert {each.algorithm.split()[0] for each in found.collectives if each.kind == CollectiveKind.ALL_REDUCE} == {
        "own", "NCCL",
    }  # fmt: skip


def test_it_is_shown(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--topo", "rtx6000x8", "--model", "qwen35_397b", "--allreduce", str(mine)]
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "Your kernel saves" in text
    assert "121 of 8 KiB: 11.3 us, breaks even at" in text
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads(schema_text("prediction")), jsonschema.Draft202012Validator)
    assert document["own_kernel"]["against"][0]["count"] == 121


def test_two_of_them_are_told_apart_in_a_comparison(mine: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow" / "mine.csv"  # of the same name
    slow.parent.mkdir()
    slow.write_text("bytes,latency_us\n8192,50\n", encoding="utf-8")
    found = compare(**MODEL, vary={"allreduce": ["nccl", str(mine), str(slow)]}, evaluator="estimate")[0]
    steps = [each.step for each in (found.baseline, *(other.outcome for other in found.gains))]
    assert steps[2] - steps[1] == pytest.approx(121 * (50 * US - 8 * US * 4**0.25), rel=1e-6)
