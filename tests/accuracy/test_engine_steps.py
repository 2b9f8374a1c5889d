"""Steps that were measured: plain PyTorch on two H200, and published serving steps by batch."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from pciesim.accuracy.engine_steps import TorchStep, torch_step_lines, torch_steps
from pciesim.accuracy.prompts import prompt_errors
from pciesim.accuracy.steps import OTHER_MODELS, StepError, step_errors
from pciesim.api import predict
from pciesim.reports.prediction_text import to_text
from pciesim.units import MS, US

RUNS = Path(__file__).parents[2] / "calibration" / "runs"


@pytest.fixture(scope="module")
def steps() -> tuple[TorchStep, ...]:
    return torch_steps(RUNS)


def of(steps: tuple[TorchStep, ...], model: str) -> list[TorchStep]:
    return [step for step in steps if step.model == model]


@pytest.mark.parametrize(("model", "worst"), [("llama8b", 0.08), ("qwen30b_a3b", 0.08)])
def test_compute(steps: tuple[TorchStep, ...], model: str, worst: float) -> None:
    """All runs, each dense step with the launch gap of the others; no step with experts had a part in any figure."""
    errors = [abs(step.relative) for step in of(steps, model)]
    assert len(errors) == 36
    assert statistics.median(errors) <= 0.04
    assert max(errors) <= worst


@pytest.mark.parametrize("transport", ["nvl", "shm"])
@pytest.mark.parametrize("model", ["llama8b", "qwen30b_a3b"])
def test_what_collectives_add(steps: tuple[TorchStep, ...], model: str, transport: str) -> None:
    """1.5 us a call or 8 % at the median. Only the dense steps of run b gave ``in_step``; d saw none of it."""
    group = [each for each in of(steps, model) if each.transport == transport]
    later = [each for each in group if each.run.endswith(("b", "d"))]
    for part in (later, group) if model == "llama8b" or transport == "shm" else (later,):
        microseconds = statistics.median(abs(each.added_per_call) for each in part) / US
        assert microseconds <= 1.5 or statistics.median(abs(each.relative_added) for each in part) <= 0.08


def test_the_table_has_every_step(steps: tuple[TorchStep, ...]) -> None:
    assert sum("| llama8b" in line for line in torch_step_lines(steps)) == 6 + 36


def test_ranks_that_route_alone_wait_for_the_fullest(steps: tuple[TorchStep, ...]) -> None:
    """One token hits top-k experts on every rank; with eight the ranks differ, so that a call takes longer."""
    nvl = [each for each in of(steps, "qwen30b_a3b") if each.transport == "nvl" and each.context == 1024]
    one, eight = (next(each for each in nvl if each.tokens == tokens) for tokens in (1, 8))
    assert eight.predicted_added / eight.collectives > one.predicted_added / one.collectives + 0.5 * US


def test_published_prompts() -> None:
    """Time to the first token: within 25 %, nothing fitted."""
    scored = [each for each in prompt_errors(RUNS) if each.point.scored]
    assert len(scored) == 2
    assert all(abs(each.relative) <= 0.25 for each in scored)


def test_a_prompt_on_pcie_is_bound_by_communication() -> None:
    """121 all-reduces of 33.5 MB (4,096 tokens x 4,096 x 2 bytes) take 302 ms on the published box, 2.49 ms each."""
    answer = predict(topo="nvidia_server_8gpu", model="qwen35_397b", phase="prefill", prompt=4096)
    sums = [line for line in answer.collectives if line.kind == "all_reduce"]
    assert [(line.count, line.nbytes) for line in sums] == [(121, 4096 * 4096 * 2)]
    assert sums[0].latency.value == pytest.approx(2.494 * MS, rel=0.25)
    assert 121 * sums[0].latency.value > sum(line.count * line.time.value for line in answer.kernels)
    assert "Bound by communication" in to_text(answer)


@pytest.fixture(scope="module")
def published() -> tuple[StepError, ...]:
    return step_errors(RUNS)


def errors_of(published: tuple[StepError, ...], *, one: bool) -> list[float]:
    return [
        abs(each.relative) for each in published if not each.point.fitted and (each.point.batch == 1) is one
    ]  # fmt: skip


def test_one_user(published: tuple[StepError, ...]) -> None:
    assert statistics.median(errors_of(published, one=True)) <= 0.08


def test_another_model_that_nothing_was_fitted_on() -> None:
    """MiniMax-M2.5 in three precisions under two engines: other shapes, experts and collectives."""
    errors = step_errors(RUNS, name=OTHER_MODELS)
    assert len(errors) == 6
    assert not any(each.point.fitted for each in errors)
    assert statistics.median(abs(each.relative) for each in errors) <= 0.08
    assert max(abs(each.relative) for each in errors) <= 0.15


def test_two_to_sixty_four_users(published: tuple[StepError, ...]) -> None:
    errors = errors_of(published, one=False)
    assert len(errors) > 40
    assert statistics.median(errors) <= 0.12
    assert statistics.quantiles(errors, n=10, method="inclusive")[-1] <= 0.25
