"""Sweeps: rows, resuming, processes, Dask, and what is told where an extra is missing."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

from pciesim.cli import run
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import outcome_of
from pciesim.compare.quick import quick_outcome
from pciesim.errors import InputError
from pciesim.reports.sweep_csv import write_parquet
from pciesim.strategies.choice import apply_choices
from pciesim.whatif import sweeping
from pciesim.whatif.sweeping import COLUMNS, confirm, rows_of, sweep, sweep_grid
from tests.support.scenarios import scenario

VARY = {"tp": ("4", "8"), "allreduce": ("nccl", "oneshot-push", "symm-mem"), "batch": ("1", "16")}


def cells(**fixed: str):
    return sweep_grid(topo="rtx6000x8", model="qwen35_397b", vary=VARY, fixed=fixed)


def test_every_combination_has_one_row() -> None:
    rows = list(sweep(cells()))
    assert [row.configuration for row in rows].sort() == list(cells()).sort()
    refused = [row for row in rows if row.refused]
    assert {dict(row.configuration)["allreduce"] for row in refused} == {"symm-mem"}
    assert all(row.values["token_latency_s"] is None for row in refused)
    good = next(row for row in rows if not row.refused)
    assert set(good.values) == set(COLUMNS)
    assert good.values["tokens_per_s_user"] == pytest.approx(1 / good.values["token_latency_s"])


def test_processes_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {row.configuration: dict(row.values) for row in sweep(cells(), jobs=1)}
    monkeypatch.setattr(sweeping, "_ALONE", 1)  # twelve rows are worth two processes
    seen: list[int] = []
    many = {row.configuration: dict(row.values) for row in sweep(cells(), jobs=2, progress=seen.append)}
    assert many == alone
    assert sum(seen) == len(cells())


def test_the_closed_form_finds_the_order_that_simulation_confirms() -> None:
    rows = list(sweep(cells()))
    again = confirm(rows, count=3)
    estimated = {row.configuration: row.values["token_latency_s"] for row in rows}
    for row in again:
        assert row.values["evaluator"] == "simulate"
        assert row.values["token_latency_s"] == pytest.approx(estimated[row.configuration], rel=0.02)


def test_a_broken_run_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "grid.csv"
    base = [
        "sweep",
        "--topo",
        "rtx6000x8",
        "--model",
        "qwen35_397b",
        "--vary",
        "tp=4,8",
        "-o",
        str(path),
        "--confirm",
        "0",
    ]
    assert run([*base, "--vary", "batch=1"]) == 0
    first = path.read_text(encoding="utf-8")
    assert run([*base, "--vary", "batch=1"]) == 2, "an existing file is not overwritten"
    assert run([*base, "--vary", "batch=1,2,4", "--resume"]) == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith(first)
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 6
    assert len({(row["tp"], row["batch"]) for row in rows}) == 6
    assert run([*base, "--vary", "context=1,2", "--resume"]) == 2, "another sweep's file"
    assert "holds another sweep" in capsys.readouterr().err


def test_the_ending_decides_the_format(tmp_path: Path) -> None:
    base = ["sweep", "--topo", "rtx6000x8", "--model", "qwen35_397b", "--vary", "tp=8", "-o"]
    assert run([*base, str(tmp_path / "grid.xlsx")]) == 2


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pip install pyarrow"):
        write_parquet(tmp_path / "grid.parquet", (), (), [])


@pytest.mark.skipif(importlib.util.find_spec("distributed") is not None, reason="Dask is installed")
def test_dask_says_what_it_needs() -> None:
    with pytest.raises(InputError, match=r"pciesim\[dask\]"):
        list(sweep(cells(), scheduler="tcp://127.0.0.1:9"))


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="Dask is not installed")
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_gives_the_same_rows() -> None:
    from dask import distributed

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        found = {row.configuration: dict(row.values) for row in sweep(cells(), scheduler=cluster.scheduler_address)}
    assert found == {row.configuration: dict(row.values) for row in rows_of(cells(), "estimate", False)}
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        list(sweep(cells()[:1], scheduler="tcp://127.0.0.1:9"))


def test_the_quick_way_gives_the_same_outcome() -> None:
    """The search's arithmetic against the step's, for plain, fused, speculative and overlapped schedules."""
    memo = Memo(evaluator="estimate")
    for choices in ([], [("allreduce", "oneshot-push"), ("fused", "norm")], [("spec", "mtp:3")], [("sync", "ladder")]):
        one = apply_choices(scenario(batch=4), choices).scenario
        slow, fast = outcome_of((), one, memo, intervals=False), quick_outcome((), one, memo)
        assert fast.step == pytest.approx(slow.step, rel=1e-12)
        assert dict(fast.parts) == pytest.approx(dict(slow.parts), rel=1e-9)
        assert (fast.traversals, fast.tokens, fast.memory) == (slow.traversals, slow.tokens, slow.memory)
        assert sorted(fast.calls, key=repr) == sorted(slow.calls, key=repr)
