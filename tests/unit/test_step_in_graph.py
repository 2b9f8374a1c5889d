"""What a collective costs in a step: its stand-alone time, what only a step adds, and ranks that arrive apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pciesim.api import load_scenario
from pciesim.routing import hit_deviation
from pciesim.scenario import Scenario
from pciesim.schedule import Collective
from pciesim.step import algorithm_for, evaluate_step, slowest, timer_of
from pciesim.units import US


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(
        topo="rtx6000x4", model="llama31_8b", tp=4, batch=1, context=1024, gpus=None, engine="sglang", allreduce="auto",
        profile=None, overlay=None, nccl=None,
    )[0]  # fmt: skip


def first_sum(scenario: Scenario) -> Collective:
    step = evaluate_step(scenario, timer_of(scenario, "estimate"))
    return next(op for op in step.schedule.ops if isinstance(op, Collective))


def test_in_step_is_added_to_the_stand_alone_time(scenario: Scenario) -> None:
    op = first_sum(scenario)
    profile = scenario.profile.with_value("nccl.p2p.in_step", 2 * US)
    timer = timer_of(replace(scenario, profile=profile), "estimate")
    alone = timer.time("nccl", op.kind, op.nbytes)
    inside = slowest(timer, scenario.parallelism, op, algorithm_for(scenario, op)[0])
    assert inside.in_step == pytest.approx(2 * US)
    assert inside.latency == pytest.approx(alone.latency + 2 * US)
    assert alone.in_step == 0


def test_own_kernels_and_eager_calls_have_none(scenario: Scenario) -> None:
    op = first_sum(scenario)
    timer = timer_of(scenario, "estimate")
    assert slowest(timer, scenario.parallelism, op, "oneshot-pull").in_step == 0
    assert slowest(timer, scenario.parallelism, replace(op, graph=False), "nccl").in_step == 0


def test_a_profile_without_the_parameter_still_serves(scenario: Scenario) -> None:
    profile = scenario.profile
    without = replace(profile, parameters=tuple(each for each in profile.parameters if "in_step" not in each[0]))
    step = evaluate_step(replace(scenario, profile=without), timer_of(replace(scenario, profile=without), "estimate"))
    assert all(timed.in_step == 0 for timed in step.timed.values())


def test_scatter_of_the_experts_hit() -> None:
    """One token hits top-k whatever it chooses. Two of 2 out of 4 hit 2, 3 or 4 with chances 1/6, 4/6 and 1/6."""
    assert hit_deviation(experts=128, top_k=8, tokens=1) == pytest.approx(0, abs=1e-6)
    assert hit_deviation(experts=4, top_k=2, tokens=2) == pytest.approx((1 / 3) ** 0.5)
