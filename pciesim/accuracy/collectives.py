"""Predicted against measured collectives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pciesim.api import box_profile
from pciesim.calibrate.points import Point
from pciesim.formats.points_csv import read_points
from pciesim.formats.shipped import find_input
from pciesim.formats.topology import load_fabric
from pciesim.profile import Profile
from pciesim.refit import point_timers
from pciesim.units import Seconds

__all__ = ["DATASETS", "PointError", "point_errors"]

DATASETS = (
    ("RTX PRO 6000, five published boxes", "rtx_pro_6000_published/collectives.csv"),
    ("RTX PRO 6000, NVIDIA's server (wiring inferred)", "nvidia_server_published/collectives.csv"),
    ("L40S, two boxes (wiring inferred)", "l40s_published/collectives.csv"),
    ("four RTX 4090", "rtx_4090_published/collectives.csv"),
    ("two H200, the run that was fitted", "h200x2_2026-11-30b/collectives.csv"),
    ("two H200, a second run on a fresh machine", "h200x2_2026-11-30c/collectives.csv"),
    ("two H200, a third and full run on another", "h200x2_2026-11-30d/collectives.csv"),
)
"""What was measured, and the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointError:
    """One measured collective, what was said of it, and by which profile."""

    point: Point
    profile: str
    predicted: Seconds

    @property
    def relative(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.point.latency - 1


def point_errors(runs: Path, name: str) -> tuple[PointError, ...]:
    """Every point of one file under the profile of its box, by the closed form."""
    timers = point_timers()
    found: list[PointError] = []
    for point in read_points(runs / name):
        profile = _profile_of(point.topology)
        timed = timers(point, profile).time(point.algorithm, point.kind, point.nbytes)
        found.append(PointError(point=point, profile=profile.name, predicted=timed.latency))
    return tuple(found)


@cache
def _profile_of(topology: str) -> Profile:
    return box_profile(load_fabric(find_input("topologies", topology)))
