"""A measured decode step, as a value."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StepPoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """One published serving measurement without speculation. ``fitted`` rows set the host time of their engine."""

    dataset: str
    topology: str
    nccl: tuple[tuple[str, str], ...]
    gpus: tuple[int, ...]
    model: str
    engine: str
    allreduce: str
    batch: int
    context: int
    tokens_per_second: float
    fitted: bool
    source: str
