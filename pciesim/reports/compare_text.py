"""A comparison as text: one line a configuration, then why, what cannot run, and how sure the signs are."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pciesim.reports.prediction_text import CATEGORY_NAMES
from pciesim.units import GB, MS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pciesim.compare.comparison import Comparison, Gain
    from pciesim.compare.outcome import Outcome

__all__ = ["comparison_text", "part_name", "print_comparisons"]

PIPED_WIDTH: Final = 160
_WHY_SHOWN: Final = 2
_AXES_WIDTH: Final = 40  # axes that need more are folded
_PERCENT: Final = 100


def print_comparisons(comparisons: Sequence[Comparison]) -> None:
    """Prints them to stdout, in the terminal's width or in plain columns when piped."""
    if not sys.stdout.isatty():
        sys.stdout.write("\n".join(comparison_text(each) for each in comparisons))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        for each in comparisons:
            console.print(_render(each))
    sys.stdout.write(capture.get())


def comparison_text(comparison: Comparison, *, width: int = PIPED_WIDTH) -> str:
    """The same without colour, as a string without trailing blanks."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, no_color=True)
    with console.capture() as capture:
        console.print(_render(comparison))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def part_name(category: str) -> str:
    """What a reader calls a category of ops."""
    return CATEGORY_NAMES.get(category, category.replace("_", " "))


def _render(comparison: Comparison) -> RenderableType:
    base = comparison.baseline
    return Group(
        Text(comparison.title, style="bold"),
        Text(
            "baseline: " + comparison.named(base.configuration) + f"; {_ms(base.latency)} ms a token of one user "
            f"({_ms(base.latency_interval.low)} to {_ms(base.latency_interval.high)})"
        ),
        Text(""),
        Padding(_table(comparison), (0, 0, 0, 2)),
        *_why(comparison.gains, comparison),
        *_refused(comparison),
        *_notes(comparison),
        Text(""),
        Text(
            "Gains are against the baseline, with 90 % intervals of the difference: figures that both depend on "
            "cancel. 'maybe' marks a sign that the interval does not settle.",
            style="dim",
        ),
    )


def _table(comparison: Comparison) -> Table:
    base = comparison.baseline
    iterations = any(each.tokens != 1 for each in (base, *(gain.outcome for gain in comparison.gains)))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    widths = [max(len(axis), *(len(value) for value in _values(comparison, axis))) for axis in comparison.axes]
    for axis in comparison.axes:
        table.add_column(axis, overflow="fold", no_wrap=sum(widths) <= _AXES_WIDTH)
    for title in ("iter. ms" if iterations else "step ms", "ms/token", "tok/s user", "tok/s total", "trav./token",
                  "GB/GPU", "saves ms", "gain a user"):  # fmt: skip
        if title == "ms/token" and not iterations:
            continue
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("sign", no_wrap=True)
    table.add_row(*_cells(comparison, base, None, iterations))
    for gain in comparison.gains:
        table.add_row(*_cells(comparison, gain.outcome, gain, iterations))
    return table


def _values(comparison: Comparison, axis: str) -> list[str]:
    outcomes = (comparison.baseline, *(gain.outcome for gain in comparison.gains))
    return [dict(each.configuration).get(axis, "") for each in outcomes]


def _cells(comparison: Comparison, outcome: Outcome, gain: Gain | None, iterations: bool) -> list[str]:
    memory = outcome.memory
    chosen = dict(outcome.configuration)
    cells = [*(chosen.get(axis, "") for axis in comparison.axes), _ms(outcome.step)]
    if iterations:
        cells.append(_ms(outcome.latency))
    cells += [
        f"{outcome.user.value:.1f}",
        f"{outcome.total.value:.0f}",
        f"{outcome.traversals_per_token:,.0f}",
        f"{(memory.weights + memory.kv_cache + memory.state) / GB:.1f}",
    ]
    if gain is None:
        return [*cells, "-", "-", "baseline"]
    saved, speed = gain.saved, gain.speed_up
    return [
        *cells,
        f"{saved.value / MS:+.2f} ({saved.low / MS:+.2f} to {saved.high / MS:+.2f})",
        f"{_gain(speed.value)} ({_gain(speed.low)} to {_gain(speed.high)})",
        gain.sign,
    ]


def _gain(speed_up: float) -> str:
    return f"{(speed_up - 1) * _PERCENT:+.0f}%"


def _why(gains: Sequence[Gain], comparison: Comparison) -> Iterable[RenderableType]:
    if not gains:
        return
    yield Text("")
    yield Text("Why (milliseconds a token of one user, the largest changes)", style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for gain in gains:
        changes = [each for each in gain.why[:_WHY_SHOWN] if abs(each.change) > MS / _PERCENT / 2]
        told = ", ".join(f"{part_name(each.category)} {each.change / MS:+.2f}" for each in changes)
        calls = _calls(gain.outcome)
        table.add_row(comparison.named(gain.outcome.configuration), f"{told or 'nothing much changes'}{calls}")
    yield Padding(table, (0, 0, 0, 2))


def _calls(outcome: Outcome) -> str:
    sums = [line for line in outcome.calls if line.kind == "all_reduce"]
    if not sums:
        return ""
    most = max(sums, key=lambda line: line.count)
    return f"; {most.count} x {most.algorithm}, {most.traversals} traversals each"


def _refused(comparison: Comparison) -> Iterable[RenderableType]:
    if not comparison.refused:
        return
    yield Text("")
    yield Text("Cannot run", style="bold")
    reasons: dict[str, list[str]] = {}
    for each in comparison.refused:
        reasons.setdefault(each.reason, []).append(comparison.named(each.configuration))
    for reason, names in reasons.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        yield Padding(Text(f"{names[0]}{more}: {reason}"), (0, 0, 0, 2))


def _notes(comparison: Comparison) -> Iterable[RenderableType]:
    seen = dict.fromkeys(note for gain in comparison.gains for note in gain.outcome.notes)
    seen |= dict.fromkeys(comparison.baseline.notes)
    if seen:
        yield Text("")
        yield Text("To know", style="bold")
        for note in seen:
            yield Padding(Text(note), (0, 0, 0, 2))


def _ms(value: float) -> str:
    return f"{value / MS:#.4g}".rstrip(".")
