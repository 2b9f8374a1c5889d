"""``pciesim engine`` and the options of ``predict`` that change what an engine issues."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pciesim.cli import run


def test_explain_names_rule_and_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engine", "explain", "--topo", "rtx6000x8", "--model", "minimax_m27", "--tp", "4"]) == 0
    text = " ".join(capsys.readouterr().out.split())  # however wide the terminal
    assert "125 x all-reduce of 6 KiB bf16 over 4 ranks (group tp), after embedding, o_proj and experts" in text
    assert "-> NCCL: pynccl serves what no other backend takes" in text
    assert "not custom all-reduce v1, one stage: needs NVLink between all pairs for more than 2 GPUs" in text
    assert "flashinfer_trtllm: not built for SM120; crashes on SM120" in text


def test_explain_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["engine", "explain", "--topo", "rtx6000x8", "--model", "qwen35_397b", "--json",
             "--engine-option", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"]  # fmt: skip
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "pciesim/engine-explain/1"
    sums = found["collectives"][0]
    assert (sums["kind"], sums["count"], sums["bytes"]) == ("all_reduce", 121, 8192)
    assert sums["algorithm"] == "pcie-ipc"
    assert {each["backend"] for each in sums["refused"]} >= {"MSCCL++", "custom all-reduce v1, one stage"}


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engine", "list"]) == 0
    out = capsys.readouterr().out
    names = [name for line in out.splitlines() for name in line.partition("  ")[0].split(", ")]
    assert {"sglang", "sglang-0.5.9", "sglang-0.5.23", "vllm", "vllm-0.17", "vllm-0.33", "torch-graph"} <= set(names)
    assert max(map(len, out.splitlines())) <= 100


ASK = ["predict", "--topo", "rtx6000x8", "--model", "qwen35_397b", "--evaluator", "estimate"]


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_layers_out(tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str) -> None:
    path = tmp_path / f"layers.{ending}"
    assert run([*ASK, "--layers-out", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text)["ops"] if ending == "json" else list(csv.DictReader(text.splitlines()))
    sums = [row for row in rows if row["kind"] == "all_reduce"]
    assert len(sums) == 121
    assert all(float(row["bytes"]) == 8192 for row in sums)
    end = max(float(row["start_s"]) + float(row["duration_s"]) for row in rows)
    assert end == pytest.approx(answer["step_latency_s"]["value"])
    assert {row["source"] for row in rows} >= {"measured", "interpolated", "borrowed", "assumed"}


def test_layers_out_names_its_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, "--layers-out", str(tmp_path / "layers.txt")]) == 2
    assert "--layers-out writes .json or .csv" in capsys.readouterr().err


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run([*ASK, *words, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_prefill(capsys: pytest.CaptureFixture[str]) -> None:
    """A prompt of 4,096 tokens: 121 all-reduces of 33.5 MB, which take most of the time."""
    found = answered(capsys, "--phase", "prefill", "--prompt", "4096")
    assert found["request"]["prompt"] == 4096  # type: ignore[index]
    sums = found["collectives"][0]  # type: ignore[index]
    assert (sums["count"], sums["bytes"]) == (121, 4096 * 8192)
    shares = {name: part["value"] for name, part in found["breakdown_s"].items()}  # type: ignore[attr-defined]
    assert max(shares, key=shares.__getitem__) == "all_reduce"
    assert shares["all_reduce"] > 0.4 * sum(shares.values())


def test_chunks_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    whole = answered(capsys, "--phase", "prefill", "--prompt", "8192")
    halves = answered(capsys, "--phase", "prefill", "--prompt", "8192", "--chunk", "4096")
    counts = [found["collectives"][0]["count"] for found in (whole, halves)]  # type: ignore[index]
    assert counts == [121, 242]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prompt", "100"], "--prompt and --chunk belong to --phase prefill"),
        (["--phase", "prefill"], "--phase prefill needs --prompt"),
        (["--attention-dp", "3"], "attention data parallelism 3 does not divide tensor parallelism 8"),
        (["--pp", "3"], "do not divide over --pp 3"),
        (["--tp", "8", "--dp", "2"], "need 16 GPUs"),
        (["--gpus", "0-3", "--tp", "4", "--pp", "2"], "does not fit --gpus"),
        (["--tp", "8", "--ep", "3"], "expert parallelism 3 does not divide"),
        (["--engine-option", "--nonsense"], "unknown option of SGLang '--nonsense'"),
    ],
)
def test_splits_that_make_no_sense(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run([*ASK, *words]) == 2
    assert said in capsys.readouterr().err


def test_replicas_multiply_the_box(capsys: pytest.CaptureFixture[str]) -> None:
    two = answered(capsys, "--tp", "4", "--dp", "2", "--batch", "8")
    rates = two["tokens_per_s"]
    assert rates["total"]["value"] == pytest.approx(16 * rates["user"]["value"])  # type: ignore[index]
