"""``pciesim calibrate`` from the shell: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pciesim.calibrate.priors import SAME_GPU
from pciesim.cli import run
from pciesim.formats.profile_yaml import read_profile
from pciesim.profile import UNMEASURED, Evidence

LOG = (
    "h:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
    "h:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nranks 2 cudaDev 0\n"
    "h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n"
    "h:1:1 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}\n"
)
MODEL = ("--model", "qwen35_397b")


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_an_nccl_log_against_the_cost_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "compare", write(tmp_path, "nccl.log", LOG), "--topo", "h200x2_shm"]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 choices agree" in said
    assert "<- differs" in said


def test_a_benchmark_against_the_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "bench.txt", "Max request concurrency: 1\nMedian TPOT (ms): 13.9\n")
    assert run(["calibrate", "compare", path, "--topo", "rtx6000x8", *MODEL]) == 0
    assert "measured  13.9 ms a step" in capsys.readouterr().out
    assert run(["calibrate", "compare", path, "--topo", "rtx6000x8"]) == 2
    assert "--model says what ran" in capsys.readouterr().err


def test_a_kernel_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "mine.csv", "size,latency\n1 KiB,5 us\n64 KiB,5 us\n")
    assert run(["calibrate", "kernel", path, "--topo", "rtx6000x8", *MODEL]) == 0
    said = capsys.readouterr().out
    assert "121 all-reduces of 8 KiB: 5 us each with 'mine'" in said
    assert "break-even" in said


def test_a_prior_has_the_nearest_figures_and_one_factor(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    assert run(["calibrate", "prior", "--topo", "rtx6000x8_2switch", "-o", str(path)]) == 0
    prior, known = read_profile(path), read_profile(Path("calibration/profiles/rtx_pro_6000_2switch.yaml"))
    told = {name for name, each in prior.parameters if each.evidence in {Evidence.MEASURED, Evidence.FITTED}}
    assert told == {UNMEASURED}
    for name, each in known.parameters:
        assert prior.value(name) == pytest.approx(each.value)
    factor = prior.parameter(UNMEASURED)
    assert (factor.low, factor.value, factor.high) == pytest.approx((SAME_GPU[0], 1.0, SAME_GPU[1]))


def test_a_box_nobody_measured_is_less_sure(capsys: pytest.CaptureFixture[str]) -> None:
    """Its calls take 0.67 to 1.42 times what the nearest box's figures say; a profile that is named is taken as is."""
    question = ["collective", "all_reduce", "--topo", "rtx6000x8_genoa", "--bytes", "8KiB", "--json"]
    found = {}
    for profile in ("", "rtx_pro_6000"):
        assert run([*question, *(["--profile", profile] if profile else [])]) == 0
        found[profile] = json.loads(capsys.readouterr().out)["rows"][0]["latency_s"]
    prior, plain = found[""], found["rtx_pro_6000"]
    assert prior["value"] == plain["value"]
    assert prior["low"] == pytest.approx(SAME_GPU[0] * plain["value"])
    assert prior["high"] == pytest.approx(SAME_GPU[1] * plain["value"])
    assert plain["low"] > prior["low"]


def test_a_box_that_is_fitted_is_measured(tmp_path: Path) -> None:
    """What its runs do not tell is the nearest box's, with its own intervals and no factor for unmeasured boxes."""
    rows = "".join(f"{2**at} KiB,{20 + 2**at / 20} us\n" for at in range(8))
    given = [write(tmp_path, "mine.csv", "size,latency\n" + rows), "--topo", "rtx6000x8_genoa", "--gpus", "0,1,2,3"]
    assert run(["calibrate", "fit", *given, "-o", str(tmp_path / "p.yaml")]) == 0
    found = read_profile(tmp_path / "p.yaml")
    assert UNMEASURED not in found
    poll = found.parameter("latency.poll")
    assert poll.low < poll.value < poll.high


def test_fit_check_and_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{2**at} KiB,{10 + 2**at / 20} us\n" for at in range(8))
    given = [write(tmp_path, "mine.csv", "size,latency\n" + rows), "--topo", "h200x2_shm", "--gpus", "0,1",
             "--algorithm", "nccl-ring-ll"]  # fmt: skip
    assert run(["calibrate", "fit", *given, "-o", str(tmp_path / "p.yaml")]) == 0
    assert "points" in capsys.readouterr().out
    assert read_profile(tmp_path / "p.yaml").gpu == "h200"
    plot = tmp_path / "check.png"
    assert run(["calibrate", "check", *given, "--plot", str(plot)]) == 0
    assert "one size" in capsys.readouterr().out
    assert plot.stat().st_size > 10_000
    assert run(["calibrate", "check", *given, "--strict"]) == 3
    assert "do not support a profile" in capsys.readouterr().err
    assert run(["calibrate", "convert", *given, "-o", str(tmp_path / "c.csv")]) == 0
    assert (tmp_path / "c.csv").read_text(encoding="utf-8").count("\n") == 9


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--gpus", "0,x"], "--gpus 0,x: write it like 0,1,2,3"),
        (["--nccl", "NCCL_ALGO"], "--nccl takes KEY=VALUE"),
        (["--algorithm", "oneshot-pul"], "did you mean 'oneshot-pull'"),
        ([], "give --gpus"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    path = write(tmp_path, "mine.csv", "size,latency\n1 KiB,5 us\n")
    code = run(["calibrate", "fit", path, "--topo", "h200x2_shm", "-o", str(tmp_path / "p.yaml"), *arguments])
    error = capsys.readouterr().err
    assert code == 2
    assert says in error
    assert error.count("\n") == 1


def test_measuring_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert run(["measure", "--out", str(tmp_path / "run")]) == 2
    assert "no NVIDIA GPU here" in capsys.readouterr().err
