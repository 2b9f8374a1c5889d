"""Budgets: a warm predict() within 50 ms."""

import pytest

from pciesim.api import load_scenario
from pciesim.predict import predict
from pciesim.prediction import Request
from pciesim.step import timer_of

pytestmark = pytest.mark.bench


def test_warm_predict(benchmark):
    scenario, _ = load_scenario(
        topo="rtx6000x8", model="qwen35_397b", tp=None, batch=1, context=1024, gpus=None, engine="sglang",
        allreduce="auto", profile=None, overlay=None, nccl=None,
    )  # fmt: skip
    request = Request(
        topology="", model="", gpu_model="", gpus=(), tp=8, batch=1, context=1024, engine="", allreduce="auto",
        profile="", evaluator="simulate",
    )  # fmt: skip
    timer = timer_of(scenario, "simulate")
    predict(scenario, request, timer)
    benchmark(predict, scenario, request, timer)
    assert benchmark.stats.stats.median < 0.05
