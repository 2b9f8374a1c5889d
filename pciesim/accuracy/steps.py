"""Predicted against published decode steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pciesim.calibrate.steps import StepPoint
from pciesim.formats.points_csv import read_steps
from pciesim.profile import Profile
from pciesim.refit import step_scenario
from pciesim.step import evaluate_step, timer_of
from pciesim.units import Seconds

__all__ = ["OTHER_MODELS", "StepError", "step_errors"]

OTHER_MODELS = "other_models.csv"
"""Steps of models that nothing is fitted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepError:
    """One published step and what pciesim says of it."""

    point: StepPoint
    measured: Seconds
    predicted: Seconds

    @property
    def relative(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


def step_errors(runs: Path, profile: Profile | None = None, *, name: str = "steps.csv") -> tuple[StepError, ...]:
    """Every published step of a file of ``decode_published``; ``profile`` None is the shipped one of the box's GPU."""
    found: list[StepError] = []
    for point in read_steps(runs / "decode_published" / name):
        scenario = step_scenario(point, profile)
        step = evaluate_step(scenario, timer_of(scenario, "simulate"))
        found.append(StepError(point=point, measured=1 / point.tokens_per_second, predicted=step.timeline.length))
    return tuple(found)
