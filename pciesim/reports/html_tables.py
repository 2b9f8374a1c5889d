"""What a notebook shows of a prediction or a comparison: plain HTML tables, built from strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from pciesim.compare.configuration import label
from pciesim.units import MS, US, format_bytes

if TYPE_CHECKING:
    from pciesim.compare.comparison import Comparison
    from pciesim.prediction import Prediction
    from pciesim.profile import Interval

__all__ = ["comparison_html", "prediction_html"]

_PERCENT: Final = 100
_RIGHT: Final = ' style="text-align:right"'


def prediction_html(prediction: Prediction) -> str:
    """The answer, where the time goes, and the collectives."""
    request, step = prediction.request, prediction.step_latency
    parts = [
        f"<p><b>{escape(request.model)}</b> on {escape(request.topology)}, {escape(request.engine)}, TP{request.tp}, "
        f"batch {request.batch}: <b>{_range(step, MS)} ms</b> a step, "
        f"<b>{_range(prediction.tokens_per_second_user, 1.0)} tok/s</b> a user, "
        f"{prediction.traversals_per_token:,.0f} PCIe traversals a token</p>",
        _table(
            ("where a step goes", "ms", "share"),
            [
                (name.replace("_", " "), _range(part, MS), f"{part.value / step.value:.0%}")
                for name, part in prediction.breakdown
            ],
        ),
        _table(
            ("collective", "calls", "bytes", "algorithm", "us each", "traversals"),
            [
                (line.kind.replace("_", "-"), str(line.count), format_bytes(line.nbytes),
                 f"{line.algorithm} {line.protocol}", _range(line.latency, US), str(line.traversals))
                for line in prediction.collectives
            ],
        ),
    ]  # fmt: skip
    return "\n".join(parts)


def comparison_html(comparison: Comparison) -> str:
    """One row a configuration, the baseline first."""
    base = comparison.baseline
    rows: list[Sequence[str]] = [
        (label(base.configuration, comparison.axes), _range(base.latency_interval, MS), f"{base.user.value:.1f}",
         f"{base.total.value:.0f}", f"{base.traversals_per_token:,.0f}", "", "baseline")
    ]  # fmt: skip
    for gain in comparison.gains:
        outcome, speed = gain.outcome, gain.speed_up
        told = f"{_gain(speed.value)} ({_gain(speed.low)} to {_gain(speed.high)})"
        rows.append(
            (label(outcome.configuration, comparison.axes), _range(outcome.latency_interval, MS),
             f"{outcome.user.value:.1f}", f"{outcome.total.value:.0f}", f"{outcome.traversals_per_token:,.0f}", told,
             gain.sign)
        )  # fmt: skip
    heads = ("configuration", "ms a token", "tok/s user", "tok/s total", "traversals a token", "gain a user", "sign")
    refused = "".join(
        f"<li>{escape(label(each.configuration, comparison.axes))}: {escape(each.reason)}</li>"
        for each in comparison.refused
    )
    return f"<p><b>{escape(comparison.title)}</b></p>\n{_table(heads, rows)}" + (
        f"\n<p>Cannot run:</p><ul>{refused}</ul>" if refused else ""
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(
        "<tr>"
        + "".join(f"<td{'' if place == 0 else _RIGHT}>{escape(cell)}</td>" for place, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _range(value: Interval, unit: float) -> str:
    if value.low == value.high:
        return f"{value.value / unit:.3g}"
    return f"{value.value / unit:.3g} ({value.low / unit:.3g} to {value.high / unit:.3g})"


def _gain(speed_up: float) -> str:
    return f"{(speed_up - 1) * _PERCENT:+.0f}%"
