"""Comparisons: what both sides share cancels, signs, what is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pciesim.cli import run
from pciesim.compare.advice import doubts_of
from pciesim.compare.comparison import gain_of
from pciesim.compare.configuration import grid, label, with_choices
from pciesim.compare.ranking import front, ranked
from pciesim.compare.response import Response, change_of, difference, interval, ratio
from pciesim.errors import Infeasible, InputError, UnknownName
from pciesim.reports.compare_json import comparisons_json
from pciesim.reports.compare_plot import plot_waterfall
from pciesim.reports.compare_text import comparison_text
from pciesim.whatif import compare
from pciesim.whatif.loading import check_axes, parse_gpus, parse_vary


@pytest.fixture(scope="module")
def comparison():
    return compare(
        topo="rtx6000x8",
        model="qwen35_397b",
        vary={"allreduce": ["nccl", "oneshot-pull", "symm-mem"], "tp": ["4", "8"]},
        evaluator="estimate",
    )[0]


def test_shared_figures_cancel() -> None:
    """x = 10 +- 3 in both, y only in the other: the difference knows y alone."""
    shared = Response(low=-3.0, high=3.0, evidence="")
    mine, theirs = {"x": shared}, {"x": shared, "y": Response(low=-1.0, high=0.5, evidence="")}
    gap = difference(10.0, 12.0, mine, theirs)
    assert (gap.value, gap.low, gap.high) == (2.0, 1.0, 2.5)
    assert difference(10.0, 10.0, mine, mine).low == difference(10.0, 10.0, mine, mine).high == 0.0


def test_only_parts_of_both_sides_cancel() -> None:
    """a is in both; b moves one side by 3, c the other by 4: 5 of the difference, though each side sums its parts."""
    mine = Response(low=-5.0, high=5.0, evidence="", parts={"a": (-2.0, 2.0), "b": (-3.0, 3.0)})
    theirs = Response(low=-6.0, high=6.0, evidence="", parts={"a": (-2.0, 2.0), "c": (-4.0, 4.0)})
    gap = difference(10.0, 10.0, {"x": mine}, {"x": theirs})
    assert (gap.low, gap.high) == (-5.0, 5.0)
    assert change_of(mine, theirs) == 5.0
    assert change_of(mine, mine) == 0.0
    assert interval(10.0, {"x": mine}).high == 15.0
    assert mine.scaled(0.5).parts["b"] == (-1.5, 1.5)


def test_another_split_of_the_experts_is_not_surer_than_its_kernels() -> None:
    """EP moves the routed experts alone: the gain is uncertain by their tables, and by nothing else."""
    (found,) = compare(topo="rtx6000x8", model="qwen35_397b", vary={"ep": ["1", "8"]}, evaluator="estimate")
    (gain,) = found.gains
    assert {each.category for each in gain.why} == {"routed_experts"}
    assert {doubt.figure for doubt in doubts_of(gain, found.baseline)} == {"kernels: routed_experts"}
    assert not gain.certain


def test_independent_figures_add_in_quadrature() -> None:
    responses = {"x": Response(low=-3.0, high=3.0, evidence=""), "y": Response(low=4.0, high=-4.0, evidence="")}
    found = interval(10.0, responses)
    assert (found.low, found.high) == (5.0, 15.0)


def test_a_ratio_moves_with_both_sides() -> None:
    """Both twice as long under x: the ratio stays; 10 / 5 with the other at 4..6 alone: 1.67 to 2.5."""
    both = ratio(
        10.0, 5.0, {"x": Response(low=0.0, high=10.0, evidence="")}, {"x": Response(low=0.0, high=5.0, evidence="")}
    )
    assert both.low == both.value == both.high == 2.0
    other = ratio(10.0, 5.0, {}, {"x": Response(low=-1.0, high=1.0, evidence="")})
    assert (other.low, other.high) == (pytest.approx(10 / 6), pytest.approx(10 / 4))


def test_another_all_reduce_leaves_the_host_out_of_the_difference(comparison) -> None:
    """The step is uncertain by a millisecond of host time and by its kernels, the gain by neither."""
    gain = next(each for each in comparison.gains if dict(each.outcome.configuration)["allreduce"] == "oneshot-pull")
    baseline = comparison.baseline
    uncertain = {name for name, each in baseline.responses.items() if each.low or each.high}
    doubts = {doubt.figure for doubt in doubts_of(gain, baseline, count=len(uncertain) + 100)}
    assert "host.sglang" in uncertain
    assert not {name for name in doubts if name.startswith(("host.", "kernels"))}
    assert gain.saved.high - gain.saved.low < baseline.latency_interval.high - baseline.latency_interval.low
    assert gain.certain
    assert gain.sign == "faster"
    assert gain.why[0].category == "all_reduce"


def test_parts_explain_the_whole_difference(comparison) -> None:
    for gain in comparison.gains:
        assert sum(each.change for each in gain.why) == pytest.approx(-gain.saved.value, abs=1e-9)


def test_swapping_sides_turns_the_sign(comparison) -> None:
    base, other = comparison.baseline, comparison.gains[-1].outcome
    there, back = gain_of(base, other), gain_of(other, base)
    assert there.saved.value == pytest.approx(-back.saved.value)
    assert there.saved.low == pytest.approx(-back.saved.high)
    assert there.speed_up.value * back.speed_up.value == pytest.approx(1)


def test_what_cannot_run_is_listed_with_its_reason(comparison) -> None:
    assert {dict(each.configuration)["allreduce"] for each in comparison.refused} == {"symm-mem"}
    assert len(comparison.gains) == 3


def test_text_json_html_and_picture(comparison, tmp_path: Path) -> None:
    text = comparison_text(comparison)
    assert "oneshot-pull" in text
    assert "Cannot run" in text
    assert max(map(len, text.splitlines())) <= 160
    document = json.loads(comparisons_json([comparison]))
    row = document["comparisons"][0]["rows"][0]
    assert {"step_latency_s", "tokens_per_s", "traversals_per_token", "saved_s", "sign_certain", "why_s"} <= set(row)
    html = comparison._repr_html_()
    assert html.count("<tr>") == 1 + 1 + len(comparison.gains)
    for ending in ("svg", "png"):
        plot_waterfall(comparison, tmp_path / f"step.{ending}")
        assert (tmp_path / f"step.{ending}").stat().st_size > 5000
    with pytest.raises(InputError, match="not a picture format"):
        plot_waterfall(comparison, tmp_path / "step.doc")


def test_topologies_vary_too() -> None:
    found = compare(topo="rtx6000x8", model="qwen35_397b", vary={"topo": ["rtx6000x8", "rtx6000x8_2switch"]},
                    evaluator="estimate")[0]  # fmt: skip
    assert found.named(found.gains[0].outcome.configuration) == "topo=rtx6000x8_2switch"


def test_a_baseline_that_cannot_run_is_an_answer() -> None:
    with pytest.raises(Infeasible, match="the baseline"):
        compare(topo="rtx6000x8", model="qwen35_397b", vary={"tp": ["1", "8"]})
    with pytest.raises(Infeasible, match="the baseline"):
        compare(topo="rtx6000x8", model="qwen35_397b", vary={"allreduce": ["symm-mem"]})


def test_grid_and_labels() -> None:
    base = (("topo", "a"), ("tp", "4"))
    cells = grid(base, {"tp": ["4", "8"], "dp": ["1", "2"]})
    assert len(cells) == 4
    assert cells[0] == (("topo", "a"), ("tp", "4"), ("dp", "1"))
    assert label(cells[-1], ["tp", "dp"]) == "tp=8 dp=2"
    assert with_choices(base, (("tp", "8"),)) == (("topo", "a"), ("tp", "8"))
    with pytest.raises(InputError):
        grid(base, {"tp": ["4", "4"]})
    with pytest.raises(InputError):
        grid(base, {"tp": []})


@pytest.mark.parametrize("text", ["tp", "tp=", "=4"])
def test_vary_must_be_axis_and_values(text: str) -> None:
    with pytest.raises(InputError):
        parse_vary([text])


def test_axes_and_values_are_checked_before_anything_is_loaded() -> None:
    assert parse_vary(["tp=4,8", "allreduce=nccl"]) == {"tp": ("4", "8"), "allreduce": ("nccl",)}
    with pytest.raises(UnknownName):
        parse_vary(["tpp=4"])
    with pytest.raises(InputError):
        check_axes({"batch": ["0"]})
    with pytest.raises(InputError):
        parse_vary(["tp=4", "tp=8"])
    assert parse_gpus("0-2.5") == (0, 1, 2, 5)
    with pytest.raises(InputError):
        parse_gpus("a")


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    question = ["compare", "--topo", "rtx6000x8", "--model", "qwen35_397b"]
    assert run([*question, "--vary", "tp=8,4", "--batch", "1,16", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["comparisons"]) == 2
    assert run([*question, "--vary", "tp=8,4", "--plot", str(tmp_path / "a.svg")]) == 0
    assert "TP" not in capsys.readouterr().err
    assert run([*question, "--vary", "tpp=8"]) == 2
    assert run([*question, "--vary", "tp=8", "--baseline", "tp"]) == 2
    assert run([*question, "--vary", "tp=8", "--batch", "none"]) == 2
    assert run([*question, "--vary", "tp=1"]) == 1, "the model does not fit on one GPU"
    assert run(["compare", "--axes"]) == 0
    assert "hierarchical" in capsys.readouterr().out


def test_front_and_ranking(comparison) -> None:
    outcomes = [comparison.baseline, *(gain.outcome for gain in comparison.gains)]
    best = ranked(outcomes, "latency")
    assert best[0].latency == min(each.latency for each in outcomes)
    kept = front(outcomes)
    for each in kept:
        better = [
            o for o in outcomes if o.latency < each.latency and o.sequences / o.latency > each.sequences / each.latency
        ]
        assert not better
