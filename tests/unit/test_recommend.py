"""Advice: switches that exist, requirements that are met or not, the floor and the break-even."""

from __future__ import annotations

import json

import pytest

from pciesim.cli import run
from pciesim.compare.comparison import gain_of
from pciesim.compare.configuration import with_choices
from pciesim.compare.memo import Memo
from pciesim.errors import UnknownName
from pciesim.reports.recommend_json import advice_json
from pciesim.reports.recommend_text import advice_text
from pciesim.units import US
from pciesim.whatif.advising import recommend
from pciesim.whatif.loading import Loader, evaluate
from pciesim.whatif.simplest import PLAIN, simplest


@pytest.fixture(scope="module")
def advice():
    return recommend(topo="rtx6000x8", model="qwen35_397b")


def test_proposals_beat_the_engine_as_it_is_and_are_ordered(advice) -> None:
    times = [each.gain.outcome.latency for each in advice.ready]
    assert times == sorted(times)
    assert times[0] < advice.baseline.latency
    assert dict(advice.baseline.configuration)["allreduce"] == "auto"
    assert dict(advice.baseline.configuration)["spec"] == "none"


def test_every_change_of_a_proposal_has_a_certain_gain(advice) -> None:
    """Expert parallelism changes only the routed experts, by less than their tables err: it is never proposed here."""
    loader, memo = Loader(), Memo(evaluator="estimate")
    for each in (*advice.ready, *advice.later):
        configuration = each.gain.outcome.configuration
        changed = [axis for axis, value in PLAIN.items() if dict(configuration)[axis] != value]
        assert "ep" not in changed
        (full,), _ = evaluate([configuration], loader, memo)
        for axis in changed:
            (without,), _ = evaluate([with_choices(configuration, ((axis, PLAIN[axis]),))], loader, memo)
            assert gain_of(without, full).sign == "faster", axis


def test_the_same_idea_is_proposed_once(advice) -> None:
    for proposals in (advice.ready, advice.later):
        ideas = [
            tuple(dict(each.gain.outcome.configuration)[axis] for axis in ("tp", "allreduce", "nccl"))
            for each in proposals
        ]
        assert len(set(ideas)) == len(ideas)


def test_a_change_stays_where_the_limit_needs_it() -> None:
    question = {"topo": "rtx6000x8", "model": "qwen35_397b", "tp": "8", "ep": "8"}
    loader, memo = Loader(), Memo(evaluator="estimate")
    configuration = tuple(question.items())
    (changed, without), _ = evaluate([configuration, with_choices(configuration, (("ep", "1"),))], loader, memo)
    between = (changed.latency + without.latency) / 2
    assert dict(simplest(configuration, loader, memo))["ep"] == "1"
    assert dict(simplest(configuration, loader, memo, kept=("ep",)))["ep"] == "8"
    assert dict(simplest(configuration, loader, memo, limit=between))["ep"] == "8"


def test_what_is_ready_needs_nothing_that_the_engine_lacks(advice) -> None:
    loader = Loader()
    for each in advice.ready:
        assert not each.missing
        applied = loader.applied(each.gain.outcome.configuration)
        for strategy, argument in applied.used:
            assert any(
                switch.serves(applied.scenario.engine.name.partition("-")[0], applied.scenario.engine.version)
                for switch in strategy.turn_on(argument)
            ), strategy.name
    assert all(each.missing for each in advice.later)


def test_an_older_engine_lacks_newer_switches() -> None:
    old = recommend(topo="rtx6000x8", model="qwen35_397b", fixed={"engine": "sglang-0.5.9", "spec": "none"})
    assert not any("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE" in switch for each in old.ready for switch in each.switches)
    assert any("0.5.23" in need for each in old.later for need in each.missing)
    assert any("--enable-mscclpp" in switch for each in old.ready for switch in each.switches), "0.5.9 has MSCCL++"


def test_the_floor_is_below_everything(advice) -> None:
    floor = advice.floor
    assert floor.traversals < advice.best.traversals
    assert floor.step < advice.best.step
    assert floor.calls * 1 <= floor.traversals


def test_a_microsecond_less_is_worth_what_the_step_says(advice) -> None:
    """d(tokens / step) = tokens / (step - calls x 1 us) - tokens / step."""
    even, best = advice.break_even, advice.best
    worth = best.tokens / (best.step - even.calls * US) - best.tokens / best.step
    assert even.rate_per_microsecond == pytest.approx(worth)
    assert even.zero > best.user.value


def test_the_best_number_of_drafts_has_a_range(advice) -> None:
    drafts = advice.drafts
    assert 1 <= drafts.least <= drafts.best <= drafts.most <= 8


def test_a_requirement_that_cannot_be_met_exits_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    question = ["recommend", "--topo", "rtx6000x8", "--model", "qwen35_397b", "--fix", "spec=none,tp=8", "--max-itl"]
    assert run([*question, "1ms"]) == 1
    shown = capsys.readouterr()
    assert "no configuration of this engine serves a token in 1 ms" in shown.err
    assert "Can be done with this engine" in shown.out
    assert run([*question, "50ms"]) == 0
    assert run([*question, "50"]) == 2, "a time has a unit"


def test_a_fixed_choice_is_kept() -> None:
    found = recommend(topo="rtx6000x8", model="qwen35_397b", fixed={"tp": "4", "spec": "none"}, concurrency=8)
    for each in (*found.ready, *found.later):
        assert dict(each.gain.outcome.configuration)["tp"] == "4"


def test_unknown_objectives_are_told() -> None:
    with pytest.raises(UnknownName):
        recommend(topo="rtx6000x8", model="qwen35_397b", objective="speed")


def test_text_and_json_say_the_same(advice) -> None:
    text, document = advice_text(advice), json.loads(advice_json(advice))
    assert document["schema"] == "pciesim/advice/1"
    assert len(document["ready"]) == len(advice.ready)
    assert "--tp-size 8" in text
    assert "every microsecond less" in text
