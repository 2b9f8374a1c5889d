from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pciesim.prediction import Prediction
from pciesim.profile import Interval
from pciesim.reports.prediction_text import print_prediction, to_text
from tests.support.predictions import a_batched_prediction, a_prediction

both = pytest.mark.parametrize("make", [a_prediction, a_batched_prediction])


@both
@pytest.mark.parametrize("width", [80, 100, 140])
def test_fits_its_width(make: Callable[[], Prediction], width: int) -> None:
    text = to_text(make(), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert "…" not in text, "nothing is cut off"


def test_the_answer_comes_first() -> None:
    opening = to_text(a_prediction()).splitlines()[:6]
    assert any(re.search(r"14\.0 ms a step \(12\.7 to 15\.9\)", line) for line in opening)
    assert any("71.6 tok/s for each user (62.8 to 78.7)" in line for line in opening)
    assert not any("whole box" in line for line in opening), "one user: the same figure need not stand twice"


def test_many_users_see_both_speeds_and_the_note() -> None:
    text = to_text(a_batched_prediction())
    assert "573.0 tok/s for the whole box" in text
    assert "Note: the profile was calibrated on another GPU" in text
    assert "GPUs 0-3: the four with the shortest farthest pair" in text


def shown_breakdown(text: str) -> tuple[list[float], float]:
    rows = re.findall(r"^  (.+?)\s{2,}(-?\d+\.\d\d)\s+\d+%", text, re.MULTILINE)
    return [float(value) for name, value in rows if name != "a step"], float(rows[-1][1])


def test_the_shown_breakdown_adds_up_to_the_last_digit() -> None:
    parts, total = shown_breakdown(to_text(a_prediction()))
    assert len(parts) == len(a_prediction().breakdown)
    assert sum(parts) == pytest.approx(total, abs=1e-9)


@given(st.lists(st.floats(min_value=0, max_value=5e-3), min_size=1, max_size=12).filter(lambda v: sum(v) > 1e-4))
def test_any_breakdown_adds_up_and_stays_close(values: list[float]) -> None:
    parts = tuple((f"part_{number}", Interval.exact(value)) for number, value in enumerate(values))
    text = to_text(replace(a_prediction(), breakdown=parts, step_latency=Interval.exact(sum(values))))
    shown, total = shown_breakdown(text)
    assert sum(shown) == pytest.approx(total, abs=1e-9)
    assert all(abs(each - value * 1e3) < 0.0101 for each, value in zip(shown, values, strict=True))


def test_traversals_show_their_sum() -> None:
    assert "critical path: 1,701 = 121 x 14 + 1 x 7" in to_text(a_prediction())
    assert "critical path: 5\n" in to_text(replace(a_prediction(), traversals=5))


def test_the_three_largest_levers_largest_first() -> None:
    text = to_text(a_prediction())
    section = text[text.index("What could be removed") : text.index("How sure")]
    assert re.findall(r"^  (\d\.\d\d) ms", section, re.MULTILINE) == ["2.10", "0.80", "0.40"]


def test_the_two_parameters_that_widen_most() -> None:
    text = to_text(a_prediction())
    assert "0.61 ms either way: host.sglang.step (fitted)" in text
    assert "nccl.fixed" not in text


def test_sparse_predictions_are_said_plainly() -> None:
    bare = replace(
        a_prediction(), collectives=(), kernels=(), levers=(), sensitivities=(), assumptions=(), busiest_link=None,
        traversals=0,
    )  # fmt: skip
    text = to_text(bare)
    assert "nothing that pciesim knows of" in text
    assert "every parameter is taken as exact" in text
    assert "the input says it all" in text


def test_words_in_brackets_survive() -> None:
    """A stray [red] is text, not markup."""
    odd = replace(a_prediction(), warnings=("[red]not markup[/red] :smile:",))
    assert "[red]not markup[/red] :smile:" in to_text(odd)


def test_piped_output_is_plain_and_100_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_prediction(a_prediction())
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert 60 < max(map(len, out.splitlines())) <= 100
