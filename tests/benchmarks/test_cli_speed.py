"""How fast the commands start. Run alone: ``make bench``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
HEADLINE = ("predict", "--topo", "rtx6000x8", "--model", "qwen35_397b")


def best_of(runs: int, *words: str, folder: Path) -> float:
    """Seconds of the fastest of several runs of ``pciesim``, interpreter start included."""
    command = [sys.executable, "-c", "from pciesim.cli import main; main()", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment)
        times.append(time.perf_counter() - began)
    return min(times)


def test_help(tmp_path: Path) -> None:
    assert best_of(5, "--help", folder=tmp_path) < 0.3


def test_help_of_a_command(tmp_path: Path) -> None:
    assert best_of(5, "predict", "--help", folder=tmp_path) < 0.5


def test_the_headline_command(tmp_path: Path) -> None:
    assert best_of(3, *HEADLINE, folder=tmp_path) < 1.0


def test_a_warm_prediction(benchmark: Callable[..., Any]) -> None:
    """The inputs are read and the memo of collectives is kept; the step is scheduled, run and given its interval."""
    from pciesim.api import load_scenario, predict
    from pciesim.predict import predict as predict_scenario
    from pciesim.step import timer_of

    asked = predict(topo="rtx6000x8", model="qwen35_397b").request
    scenario, _ = load_scenario(
        topo="rtx6000x8", model="qwen35_397b", tp=None, batch=1, context=1024, gpus=None, engine="sglang",
        allreduce="auto", profile=None, overlay=None, nccl=None,
    )  # fmt: skip
    timer = timer_of(scenario, "simulate")
    predict_scenario(scenario, asked, timer)
    benchmark(predict_scenario, scenario, asked, timer)
    assert benchmark.stats.stats.median < 0.05  # type: ignore[attr-defined]


def test_reading_the_inputs(benchmark: Callable[..., Any]) -> None:
    """A whole call from names: the YAML files are read again each time."""
    from pciesim.api import predict

    benchmark(predict, topo="rtx6000x8", model="qwen35_397b")
    assert benchmark.stats.stats.median < 0.2  # type: ignore[attr-defined]
