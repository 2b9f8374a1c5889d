"""Collectives of every measured box under its own profile, on the points that were not fitted."""

from __future__ import annotations

import statistics
from functools import cache

import pytest

from pciesim.accuracy.collectives import DATASETS, PointError, point_errors

# By the start of a dataset's name: the most that the median and the 90th percentile may be. What is above 5 and 15 %
# has its reason in docs/accuracy.md. All-to-alls are apart: they stand on parameters that none of these curves tell.
LIMITS = {
    "asus_4gpu_oneshot": (0.02, 0.08), "asus_4gpu_nccl": (0.06, 0.12), "asus_8gpu": (0.16, 0.20),
    "turin_4gpu": (0.12, 0.20), "turin_8gpu": (0.13, 0.21), "wrx90": (0.05, 0.20), "cpayne": (0.06, 0.10),
    "nvidia_server_2gpu": (0.06, 0.18), "nvidia_server_4gpu": (0.08, 0.20), "nvidia_server_8gpu": (0.05, 0.12),
    "l40s_a_2gpu": (0.06, 0.32), "l40s_a_4gpu": (0.11, 0.18), "l40s_b": (0.08, 0.22), "mc62": (0.03, 0.07),
}  # fmt: skip


@cache
def checked(name: str, root) -> tuple[PointError, ...]:
    found = point_errors(root / "calibration" / "runs", name)
    return tuple(error for error in found if not error.point.fitted and error.point.kind != "all_to_all")


@pytest.mark.parametrize("start", LIMITS)
def test_published_boxes(root, start):
    errors = [
        abs(error.relative)
        for _, name in DATASETS
        if "published" in name
        for error in checked(name, root)
        if error.point.dataset.startswith(start)
    ]
    median, ninetieth = LIMITS[start]
    assert len(errors) >= 2
    assert statistics.median(errors) <= median
    assert statistics.quantiles(errors, n=10, method="inclusive")[-1] <= ninetieth


@pytest.mark.parametrize("run", [f"h200x2_2026-11-30{letter}/collectives.csv" for letter in "bcd"])
def test_own_runs_through_host_memory_and_nvlink(root, run):
    """NCCL as it chooses itself: 5 % in the median over both transports and three collectives."""
    errors = [abs(e.relative) for e in checked(run, root) if e.point.dataset.endswith("/default")]
    assert len(errors) >= 50
    assert statistics.median(errors) <= 0.05
    assert statistics.quantiles(errors, n=10)[-1] <= 0.15
