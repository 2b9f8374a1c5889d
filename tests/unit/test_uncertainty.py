"""Parameters that a collective does not read are not moved: leaving them out changes no interval."""

from __future__ import annotations

from typing import Any

import pytest

from pciesim.api import load_scenario
from pciesim.scenario import Scenario
from pciesim.step import evaluate_step, slowest, timer_of
from pciesim.uncertainty import propagate, shifts_of, touching

CASES: list[dict[str, Any]] = [
    {"topo": "rtx6000x8"}, {"topo": "rtx6000x8", "allreduce": "nccl-tree-simple"}, {"topo": "h200x2_shm"},
    {"topo": "h200x2", "allreduce": "nccl-ring-ll128"}, {"topo": "rtx6000x4", "allreduce": "oneshot-pull"},
    {"topo": "h200x2_shm", "allreduce": "oneshot-host"}, {"topo": "rtx6000x8", "allreduce": "hierarchical"},
]  # fmt: skip


def asked(**more: Any) -> Scenario:
    question: dict[str, Any] = {
        "model": "llama31_8b", "tp": None, "batch": 64, "context": 1024, "gpus": None, "engine": "sglang",
        "allreduce": "auto", "profile": None, "overlay": None, "nccl": None,
    }  # fmt: skip
    return load_scenario(**question | more)[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case.values()))
def test_only_parameters_without_effect_are_left_out(case: dict[str, Any]) -> None:
    scenario = asked(**case)
    timer = timer_of(scenario, "estimate")
    step = evaluate_step(scenario, timer)
    reference, shifts = shifts_of(timer)
    for op, timed in step.timed.items():
        fewer = touching(shifts, (timed.lowered,))
        assert len(fewer) < len(shifts)

        def latency(each: Any, op: Any = op, name: str = timed.name) -> float:
            return slowest(each, scenario.parallelism, op, name).latency

        assert propagate(reference, fewer, latency) == propagate(reference, shifts, latency)
