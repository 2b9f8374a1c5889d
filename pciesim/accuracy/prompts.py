"""Predicted against published times to the first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pciesim.api import predict
from pciesim.formats.prompts_csv import PromptPoint, read_prompts
from pciesim.prediction import Prediction

__all__ = ["PromptError", "prompt_errors", "prompt_lines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptError:
    """One published prompt and what pciesim says of it."""

    point: PromptPoint
    prediction: Prediction

    @property
    def relative(self) -> float:
        """Predicted over measured, less one."""
        return self.prediction.step_latency.value / self.point.first_token - 1


def prompt_errors(runs: Path) -> tuple[PromptError, ...]:
    """Every row of ``prefill_published``, the excluded ones too."""
    return tuple(
        PromptError(
            point=point,
            prediction=predict(
                topo=point.topology, model=point.model, engine=point.engine, tp=point.tp, phase="prefill",
                prompt=point.prompt, nccl=dict(point.nccl),
            ),
        )
        for point in read_prompts(runs / "prefill_published" / "prompts.csv")
    )  # fmt: skip


def prompt_lines(errors: Sequence[PromptError]) -> list[str]:
    """Lines for the accuracy page."""
    lines = ["| dataset | model | prompt | measured s | predicted s | error | collectives | |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---|")
    for error in errors:
        point, step = error.point, error.prediction.step_latency
        calls = sum(line.count * line.latency.value for line in error.prediction.collectives)
        lines.append(
            f"| {point.dataset} | {point.model} | {point.prompt} | {point.first_token:.3f} | {step.value:.3f} "
            f"({step.low:.2f} to {step.high:.2f}) | {error.relative:+.1%} | {calls / step.value:.0%} "
            f"| {'' if point.scored else 'excluded'} |"
        )
    return lines
