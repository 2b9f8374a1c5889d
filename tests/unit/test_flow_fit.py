"""Constants of a box from copy tests, and the reader of such tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pciesim.calibrate.contention import FlowCase, FlowRow, fit_constants, predict_flows
from pciesim.errors import InputError, UnknownName
from pciesim.fabric import Concurrency, Fabric
from pciesim.flows import Metric
from pciesim.formats.contention_csv import read_flow_rows
from pciesim.units import GB
from tests.support.fabrics import box
from tests.support.flows import COSTS, flows

HEADER = "box,topology,overlay,variant,flows,metric,low_GB_per_s,high_GB_per_s,use,collapse,note\n"
BOX = box([[0, 1], [2, 3]], sockets=[0, 1])


def case(fabric: Fabric, pairs: list[tuple[int, int]], use: str, variant: str = "") -> FlowCase:
    row = FlowRow(
        box="b", topology="t", overlay="", variant=variant, flows="", metric=Metric.P2P_TEST, low=GB, high=GB, use=use,
        collapse=False, note="",
    )  # fmt: skip
    return FlowCase(row=row, fabric=fabric, flows=tuple(flows(*pairs)), costs=COSTS)


def test_planted_constants_are_found() -> None:
    """Rows made with known constants give them back, the second under the first."""
    truth = Concurrency(copy_share=0.8, socket_peer=33 * GB, host_dma=40 * GB)
    planted = replace(BOX, concurrency=truth)
    asked = [
        case(planted, [(0, 1)], "fit copy_share"),
        case(planted, [(0, 2)], "fit socket_peer"),
        case(planted, [(0, 2), (1, 3)], "check"),
        case(planted, [(0, 1)], "fit host_dma", "p2p_off"),
    ]
    known = [
        replace(each, fabric=BOX, row=replace(each.row, low=figure, high=figure))
        for each in asked
        for figure in [predict_flows(each).figure]
    ]
    assert fit_constants(known) == pytest.approx(
        {"copy_share": 0.8, "socket_peer": 33 * GB, "host_dma": 40 * GB}, rel=1e-6
    )


def test_a_range_is_its_middle() -> None:
    row = replace(case(BOX, [(0, 1)], "check").row, low=53 * GB, high=56 * GB)
    assert (row.measured, row.scored, row.fits) == (54.5 * GB, True, "")


def test_reads_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + "a,rtx6000x4,,acs,0>1 1>0,p2p_test,50,51,fit copy_share,yes,why\n")
    (row,) = read_flow_rows(path)
    assert (row.flows, row.low, row.high, row.fits, row.collapse) == ("0>1 1>0", 50 * GB, 51 * GB, "copy_share", True)


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("a,b,,,0>1,p2p_tst,1,1,check,,", UnknownName, "rows.csv:2: unknown metric 'p2p_tst'; did you mean 'p2p_test'"),
        ("a,b,,,0>1,p2p_test,1,1,guess,,", UnknownName, "rows.csv:2: unknown use"),
        ("a,b,,,0>1,p2p_test,1,x,check,,", InputError, "rows.csv:2: not a number"),
        ("a,b,,,0>1,p2p_test,2,1,check,,", InputError, "rows.csv:2: expected 0 <"),
        ("a,b,,,0>1", InputError, "rows.csv:2: expected 11 columns"),
    ],
)
def test_refuses_a_row(tmp_path: Path, line: str, error: type[InputError], message: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + line + "\n")
    with pytest.raises(error, match=message):
        read_flow_rows(path)


def test_refuses_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n")
    with pytest.raises(InputError, match="expected the columns"):
        read_flow_rows(path)
