"""Steps that were measured: plain PyTorch on two H200, and published serving steps by batch."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from pciesim.accuracy.engine_steps import TorchStep, torch_step_lines, torch_steps
from pciesim.accuracy.steps import StepError, step_errors

RUNS = Path(__file__).parents[2] / "calibration" / "runs"


@pytest.fixture(scope="module")
def steps() -> tuple[TorchStep, ...]:
    return torch_steps(RUNS)


def of(steps: tuple[TorchStep, ...], model: str) -> list[TorchStep]:
    return [step for step in steps if step.model == model]


def test_dense_steps_without_collectives(steps: tuple[TorchStep, ...]) -> None:
    """Within 8 % at the median, with the launch gap of the other steps."""
    errors = [abs(step.relative) for step in of(steps, "llama8b")]
    assert len(errors) == 12
    assert statistics.median(errors) <= 0.08
    assert max(errors) <= 0.10


def test_steps_with_experts_lack_measured_kernels(steps: tuple[TorchStep, ...]) -> None:
    """PyTorch's grouped GEMM, sorting and index_add were not measured: rooflines and borrowed rows, all too short."""
    assert all(step.relative < 0 for step in of(steps, "qwen30b_a3b"))


def test_the_table_has_every_step(steps: tuple[TorchStep, ...]) -> None:
    assert sum(line.startswith("| llama8b") for line in torch_step_lines(steps)) == 2 + 12


@pytest.fixture(scope="module")
def published() -> tuple[StepError, ...]:
    return step_errors(RUNS)


def errors_of(published: tuple[StepError, ...], *, one: bool) -> list[float]:
    return [
        abs(each.relative) for each in published if not each.point.fitted and (each.point.batch == 1) is one
    ]  # fmt: skip


def test_one_user(published: tuple[StepError, ...]) -> None:
    assert statistics.median(errors_of(published, one=True)) <= 0.08


def test_two_to_sixty_four_users(published: tuple[StepError, ...]) -> None:
    errors = errors_of(published, one=False)
    assert len(errors) > 40
    assert statistics.median(errors) <= 0.12
    assert statistics.quantiles(errors, n=10, method="inclusive")[-1] <= 0.25
