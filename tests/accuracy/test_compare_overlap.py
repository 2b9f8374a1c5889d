"""Collectives beside kernels on two H200: within 10 % of what was measured, with one rate a transport."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pciesim.api import load_profile
from pciesim.evaluate.timeline import interfering_schedule
from pciesim.formats.catalogue import gpu_type
from pciesim.model import Precision
from pciesim.schedule import Category, Collective, CollectiveKind, Compute, Gemm, Schedule
from tests.support.scenarios import scenario

RUN = Path(__file__).resolve().parents[2] / "calibration" / "runs" / "h200x2_2026-11-30" / "overlap.json"
ROWS = json.loads(RUN.read_text(encoding="utf-8"))


def two_streams(gemms: int, sums: int) -> Schedule:
    gemm = Gemm(m=64, n=14336, k=4096, precision=Precision.BF16)
    compute = Compute(name="gemm", category=Category.GEMM_MLP, kernel=gemm, nbytes=0.0, flop=0.0)
    collective = Collective(
        name="sum", category=Category.ALL_REDUCE, kind=CollectiveKind.ALL_REDUCE, nbytes=8192, ranks=2, stream=7
    )
    return Schedule(ops=(compute,) * gemms + (collective,) * sums, after=((),) * (gemms + sums))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['tag']} {row['ar_bytes']}")
def test_both_at_once(row: dict[str, float]) -> None:
    rate = load_profile(None, gpu_type("h200")).value("overlap.nvl" if row["tag"] == "nvl" else "overlap.pcie")
    gemms, sums = int(row["gemms"]), int(row["ars"])
    durations = [row["gemm_alone_s"] / gemms] * gemms + [row["ar_alone_s"] / sums] * sums
    shares = dict.fromkeys(range(gemms, gemms + sums), rate)
    both = interfering_schedule(two_streams(gemms, sums), durations, shares).length
    assert both == pytest.approx(row["both_s"], rel=0.10)


def test_without_disturbance_the_longer_of_both() -> None:
    """Two streams of 3 x 1 s and 2 x 1 s: 3 s at rate 1; at rate 1/2, 2 s of work beside take 4 s, then 1 s alone."""
    schedule = two_streams(3, 2)
    assert interfering_schedule(schedule, [1.0] * 5, {3: 1.0, 4: 1.0}).length == pytest.approx(3.0)
    assert interfering_schedule(schedule, [1.0] * 5, {3: 0.5, 4: 0.5}).length == pytest.approx(5.0)


def test_a_delayed_sum_is_not_free() -> None:
    """Ladder residual hides sums behind kernels, but both slow down: less is gained than the sums take."""
    from pciesim.compare.memo import Memo
    from pciesim.compare.outcome import outcome_of
    from pciesim.strategies.choice import apply_choices

    memo = Memo(evaluator="estimate")
    base = outcome_of((), scenario(), memo)
    ladder = outcome_of((), apply_choices(scenario(), [("sync", "ladder")]).scenario, memo)
    saved = base.step - ladder.step
    assert 0 < saved < base.parts["all_reduce"]
