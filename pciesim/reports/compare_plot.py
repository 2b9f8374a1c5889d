"""A waterfall from the baseline to another configuration: what each part of a step adds or takes away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pciesim.errors import Infeasible
from pciesim.reports.compare_text import part_name
from pciesim.reports.figure import new_figure, save_figure
from pciesim.units import MS

if TYPE_CHECKING:
    from pciesim.compare.comparison import Comparison, Gain

__all__ = ["plot_waterfall"]

_TOTAL, _LESS, _MORE = "#404040", "#15803d", "#c2410c"
_SMALLEST: Final = 0.003  # of the baseline: parts below are drawn together


def plot_waterfall(comparison: Comparison, path: Path, gain: Gain | None = None) -> None:
    """Writes the waterfall from the baseline to ``gain`` (default: the best one) to ``path`` (.svg, .png, .pdf)."""
    gain = gain or comparison.best
    if gain is None:
        raise Infeasible("there is nothing to draw: no other configuration can run")
    base, then = comparison.baseline, gain.outcome
    small = _SMALLEST * base.latency
    shown = [each for each in gain.why if abs(each.change) >= small]
    rest = sum(each.change for each in gain.why if abs(each.change) < small)
    steps = [(part_name(each.category), each.change) for each in sorted(shown, key=lambda each: each.change)]
    if abs(rest) > small / 10:
        steps.append(("everything else", rest))
    figure, axes = new_figure(9.0, 0.45 * (len(steps) + 2) + 1.6, path)
    bars = [("baseline", 0.0, base.latency, _TOTAL)]
    level = base.latency
    for name, change in steps:
        bars.append((name, min(level, level + change), abs(change), _LESS if change < 0 else _MORE))
        level += change
    bars.append(("then", 0.0, then.latency, _TOTAL))
    places = list(range(len(bars)))[::-1]
    axes.barh(
        places,
        [length / MS for _, _, length, _ in bars],
        left=[left / MS for _, left, _, _ in bars],
        color=[colour for *_, colour in bars],
        height=0.62,
    )
    right = max(left + length for _, left, length, _ in bars) / MS
    texts = [base.latency, *(change for _, change in steps), then.latency]
    interval = gain.saved
    beyond = [*(0.0 for _ in bars[1:]), max(0.0, (base.latency - interval.low) - then.latency)]  # past the error bar
    for place, (_, left, length, colour), value, more in zip(places, bars, texts, beyond, strict=True):
        label = f"{value / MS:.2f}" if colour == _TOTAL else f"{value / MS:+.2f}"
        axes.text((left + length + more) / MS + 0.012 * right, place, label, va="center", fontsize=9)
    axes.errorbar(
        [then.latency / MS],
        [places[-1]],
        xerr=[
            [max(0.0, (then.latency - (base.latency - interval.high)) / MS)],
            [max(0.0, ((base.latency - interval.low) - then.latency) / MS)],
        ],
        fmt="none",
        ecolor="#737373",
        elinewidth=1.5,
        capsize=3,
    )
    axes.set_yticks(places, [name for name, *_ in bars])
    axes.set_xlim(0, 1.12 * right)
    axes.set_xlabel("milliseconds a token of one user (the last bar with the interval of the difference)")
    figure.suptitle(
        f"{comparison.title}\n{comparison.named(base.configuration)}  to  {comparison.named(then.configuration)}: "
        f"{gain.sign}, x{gain.speed_up.value:.2f} ({gain.speed_up.low:.2f} to {gain.speed_up.high:.2f})",
        x=0.01,
        ha="left",
        fontsize=10,
    )
    save_figure(figure, path)
