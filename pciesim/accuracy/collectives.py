"""Predicted against measured collectives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pciesim.calibrate.points import Point
from pciesim.formats.points_csv import read_points
from pciesim.formats.profile_yaml import read_profile
from pciesim.formats.shipped import find_input
from pciesim.refit import point_timers
from pciesim.units import Seconds

__all__ = ["DATASETS", "PointError", "point_errors"]

DATASETS = (
    ("rtx_pro_6000", "rtx_pro_6000_published/collectives.csv"),
    ("nvidia_server", "nvidia_server_published/collectives.csv"),
    ("rtx_4090", "rtx_4090_published/collectives.csv"),
    ("h200", "h200x2_2026-11-30b/collectives.csv"),
    ("h200", "h200x2_2026-11-30c/collectives.csv"),
)
"""Profile and the runs it is held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointError:
    """One measured collective and what a profile says of it."""

    point: Point
    predicted: Seconds

    @property
    def relative(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.point.latency - 1


def point_errors(runs: Path, profile: str, name: str) -> tuple[PointError, ...]:
    """Every point of one file under a shipped profile, by the closed form."""
    parameters = read_profile(find_input("profiles", profile))
    timers = point_timers()
    return tuple(
        PointError(
            point=point,
            predicted=timers(point, parameters).time(point.algorithm, point.kind, point.nbytes).latency,
        )
        for point in read_points(runs / name)
    )
