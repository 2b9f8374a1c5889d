"""A measured decode step, with drafts or without, as a value."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IterationPoint", "StepPoint"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationPoint:
    """One published serving measurement with a draft head; fitted rows set the draft cost of their engine.

    ``tokens`` is what an iteration yields each sequence, ``drafts`` the length of the chain.
    """

    step: StepPoint
    drafts: int
    tokens: float
