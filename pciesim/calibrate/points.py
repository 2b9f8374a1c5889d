"""A measured collective, as a value: where it was run, what was run, and how long it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pciesim.evaluate.collective import CollectiveTimer
from pciesim.profile import Profile
from pciesim.schedule import CollectiveKind
from pciesim.units import Seconds

__all__ = ["Point", "predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement. ``fitted`` False keeps it out of every fit: it only checks.

    ``nbytes`` is each rank's input. ``dataset`` groups points of one host and method.
    """

    dataset: str
    topology: str
    nccl: tuple[tuple[str, str], ...]  # variables over those of the topology's overlay
    gpus: tuple[int, ...]
    algorithm: str
    kind: CollectiveKind
    nbytes: int
    latency: Seconds
    fitted: bool
    source: str


def predicted(point: Point, profile: Profile, timer_for: Callable[[Point, Profile], CollectiveTimer]) -> Seconds:
    """What a profile says about a point. ``timer_for`` knows the topologies (fabrics are not calibrate's to read)."""
    return timer_for(point, profile).time(point.algorithm, point.kind, point.nbytes).latency
