"""Published comparisons of two settings of one box: saved time predicted against measured, and draft costs."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pciesim.accuracy.document import replace_block
from pciesim.compare.comparison import gain_of
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import outcome_of
from pciesim.errors import InputError, PciesimError
from pciesim.flows import Metric, run_flows
from pciesim.formats.documents import read_text
from pciesim.formats.flow_text import parse_flows
from pciesim.formats.points_csv import read_iterations
from pciesim.physics import RouteCosts
from pciesim.profile import Interval, Profile
from pciesim.refit import draft_residual, iteration_scenario
from pciesim.reports.strategies_text import strategies_markdown
from pciesim.scenario import Scenario
from pciesim.schedule import CollectiveKind
from pciesim.step import evaluate_step, timer_of
from pciesim.units import GB, MS, US, Seconds, format_bytes
from pciesim.whatif.loading import Loader

__all__ = [
    "Comparison",
    "IterationError",
    "ab_page",
    "comparisons",
    "draft_costs",
    "filled_page",
    "iteration_errors",
    "within",
]  # fmt: skip

FOLDER: Final = "ab_published"
TOLERANCE: Final = 0.35  # of the saved time
_SCORED: Final = "score"
_SHOWN: Final = "show"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One published row; ``measured`` and ``predicted`` are seconds saved (None where it is excluded)."""

    row: str
    grade: str
    what: str
    use: str
    reason: str
    source: str
    before: Seconds = 0.0
    measured: Seconds | None = None
    predicted: Interval | None = None

    @property
    def sign_right(self) -> bool:
        """Whether both have one sign; a measured change below 1 % of the time is no sign."""
        if self.measured is None or self.predicted is None:
            return False
        return self.measured * self.predicted.value > 0 or abs(self.measured) < self.before / 100

    @property
    def relative(self) -> float:
        """Predicted over measured saving, less one."""
        if self.measured is None or self.predicted is None:
            raise ValueError(f"row {self.row} is excluded")
        return self.predicted.value / self.measured - 1


def within(rows: Iterable[Comparison]) -> tuple[int, int]:
    """How many scored rows save what was measured within the tolerance, and how many there are."""
    scored = [each for each in rows if each.use == _SCORED]
    return sum(abs(each.relative) <= TOLERANCE for each in scored), len(scored)


def comparisons(runs: Path) -> tuple[Comparison, ...]:
    """Every row of ``ab_published/comparisons.csv``, predicted where it is not excluded."""
    path = runs / FOLDER / "comparisons.csv"
    loader, memo = Loader(), Memo(evaluator="simulate")
    found: list[Comparison] = []
    for number, row in enumerate(csv.DictReader(read_text(path).splitlines()), start=2):
        plain = Comparison(
            row=row["row"], grade=row["grade"], what=_what(row), use=row["use"], reason=row["reason"],
            source=row["source"],
        )  # fmt: skip
        if row["use"] == "exclude":
            found.append(plain)
            continue
        try:
            before, after = (_measured(row, row[f"value_{side}"]) for side in ("before", "after"))
            saved = _saved(row, loader, memo)
        except (PciesimError, ValueError) as error:
            raise InputError(str(error), where=f"{path}:{number}") from error
        found.append(replace(plain, before=before, measured=before - after, predicted=saved))
    return tuple(found)


def _what(row: dict[str, str]) -> str:
    if row["use"] == "exclude":
        return ""
    change = f"{_short(row['before'], row['after'])} -> {_short(row['after'], row['before'])}"
    if row["kind"] == "collective":
        return f"{row['topology']}, all-reduce {format_bytes(int(row['bytes']))}: {change}"
    if row["kind"] == "flows":
        return f"{row['topology']}, copies {row['gpus']} of {format_bytes(int(row['bytes']))} each: {change}"
    return f"{row['model']}, {row['topology']}, {row['engine']}, {row['batch']} users: {change}"


def _short(one: str, other: str) -> str:
    """The choices of one side that the other does not have."""
    theirs = set(other.split(";"))
    return " ".join(each for each in one.split(";") if each not in theirs) or "as it is"


def _measured(row: dict[str, str], text: str) -> Seconds:
    """The published figure as seconds: of a token of one user, or of a call."""
    value = float(text)
    match row["quantity"]:
        case "tok_s_total":
            return int(row["batch"]) / value
        case "us":
            return value * US
        case "busbw_gb_s":
            ranks = len(_gpus(row["gpus"]))
            return 2 * (ranks - 1) / ranks * int(row["bytes"]) / (value * GB)
        case "sum_gb_s":
            return len(row["gpus"].split()) * int(row["bytes"]) / (value * GB)
        case other:
            raise ValueError(f"unknown quantity '{other}'")


def _gpus(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last) + 1))


def _configuration(row: dict[str, str], side: str) -> tuple[tuple[str, str], ...]:
    chosen = {"topo": row["topology"], "model": row["model"] or "qwen35_397b"}
    if row["kind"] != "flows":
        chosen["gpus"] = row["gpus"]
    if row["kind"] == "step":
        chosen |= {"engine": row["engine"], "batch": row["batch"], "context": row["context"]}
    for each in row[side].split(";"):
        axis, _, value = each.partition("=")
        chosen[axis] = value
    return tuple(chosen.items())


def _saved(row: dict[str, str], loader: Loader, memo: Memo) -> Interval:
    sides = [_configuration(row, side) for side in ("before", "after")]
    scenarios = [loader.applied(each).scenario for each in sides]
    if row["kind"] == "step":
        before, after = (outcome_of(c, s, memo) for c, s in zip(sides, scenarios, strict=True))
        return gain_of(before, after).saved
    if row["kind"] == "flows":
        return _saved_by_copies(row, scenarios)
    times = [memo.timer(each).time("nccl", CollectiveKind.ALL_REDUCE, int(row["bytes"])).latency for each in scenarios]
    return Interval.exact(times[0] - times[1])


def _saved_by_copies(row: dict[str, str], scenarios: Sequence[Scenario]) -> Interval:
    """Copies of equal volume at the rates that all of them reach together."""
    volume = len(row["gpus"].split()) * int(row["bytes"])
    times = [
        volume
        / run_flows(
            each.fabric, RouteCosts.of(each.profile), parse_flows([row["gpus"]], each.fabric), metric=Metric.P2P_TEST
        ).figure
        for each in scenarios
    ]
    return Interval.exact(times[0] - times[1])


# -- drafts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationError:
    """One published rate with drafts. ``bare`` is the predicted iteration without any draft cost."""

    dataset: str
    engine: str
    batch: int
    drafts: int
    fitted: bool
    measured: Seconds
    predicted: Seconds
    bare: Seconds

    @property
    def relative(self) -> float:
        """Predicted over measured iteration, less one."""
        return self.predicted / self.measured - 1

    @property
    def left(self) -> Seconds:
        """What each draft pass costs beyond its kernels and collectives, by this row alone."""
        return (self.measured - self.bare) / self.drafts


def iteration_errors(runs: Path, profile: Profile | None = None) -> tuple[IterationError, ...]:
    """Every row of ``ab_published/iterations.csv``; ``profile`` None is the shipped one of the box's GPU."""
    found: list[IterationError] = []
    for point in read_iterations(runs / FOLDER / "iterations.csv"):
        scenario = iteration_scenario(point, profile)
        measured = point.tokens / point.step.tokens_per_second
        found.append(
            IterationError(
                dataset=point.step.dataset,
                engine=scenario.engine.name,
                batch=point.step.batch,
                drafts=point.drafts,
                fitted=point.step.fitted,
                measured=measured,
                predicted=evaluate_step(scenario, timer_of(scenario, "simulate")).timeline.length,
                bare=measured - point.drafts * draft_residual(point, profile),
            )
        )
    return tuple(found)


def draft_costs(errors: Sequence[IterationError]) -> dict[str, Seconds]:
    """The mean draft cost of every engine over its fitted rows."""
    names = sorted({each.engine.partition("-")[0] for each in errors})
    return {
        name: statistics.fmean(each.left for each in errors if each.fitted and each.engine.startswith(name))
        for name in names
    }


def filled_page(text: str, runs: Path) -> str:
    """docs/what-if.md with its tables made again. Raises ValueError when its marks are missing."""
    text = replace_block(text, ab_page(runs))
    before, begin, rest = text.partition("<!-- strategies:begin -->")
    _, end, after = rest.partition("<!-- strategies:end -->")
    if not begin or not end:
        raise ValueError("the page has no strategies:begin ... strategies:end")
    return f"{before}{begin}\n{strategies_markdown()}{end}{after}"


# -- tables -----------------------------------------------------------------------------------------------------------


def ab_page(runs: Path) -> str:
    """The tables of docs/what-if.md: nothing in them is typed by hand."""
    rows = comparisons(runs)
    hits, scored = within(rows)
    signs = [each for each in rows if each.use == _SCORED]
    right = sum(each.sign_right for each in signs)
    errors = iteration_errors(runs)
    return "\n".join([
        f"Scored rows: {scored}; sign right in {right}; saved time within {TOLERANCE:.0%} in {hits} "
        f"({hits / scored:.0%}).",
        "",
        *_comparison_lines(rows),
        "",
        "### Drafts",
        "",
        *_iteration_lines(errors),
        "",
    ])  # fmt: skip


def _comparison_lines(rows: Iterable[Comparison]) -> Iterable[str]:
    yield "| row | grade | what changed | saved, measured | saved, predicted (90 %) | error | |"
    yield "|---|---|---|---:|---:|---:|---|"
    for each in rows:
        if each.measured is None or each.predicted is None:
            yield f"| {each.row} | {each.grade} | {each.source} | | | | excluded: {each.reason} |"
            continue
        unit, name = (MS, "ms") if each.before > MS else (US, "us")
        saved = each.predicted
        span = "" if saved.low == saved.high else f" ({saved.low / unit:.2f} to {saved.high / unit:.2f})"
        mark = "" if each.use == _SCORED else f"shown only: {each.reason}"
        if each.use == _SCORED:
            mark = ("" if each.sign_right else "**sign wrong** ") + (
                "" if abs(each.relative) <= TOLERANCE else f"beyond {TOLERANCE:.0%}"
            )
        error = f"{each.relative:+.0%}" if each.measured else "-"
        yield (
            f"| {each.row} | {each.grade} | {each.what} | {each.measured / unit:.2f} {name} "
            f"| {saved.value / unit:.2f} {name}{span} | {error} | {mark.strip()} |"
        )


def _iteration_lines(errors: Sequence[IterationError]) -> Iterable[str]:
    costs = ", ".join(f"{name} {cost / MS:.2f} ms" for name, cost in draft_costs(errors).items())
    yield f"Cost of a draft pass beyond its kernels, mean of the rows marked fit: {costs}."
    yield ""
    yield "| dataset | users | drafts | iteration, measured ms | predicted | without draft cost | error | |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for each in errors:
        yield (
            f"| {each.dataset} | {each.batch} | {each.drafts} | {each.measured / MS:.2f} | {each.predicted / MS:.2f} "
            f"| {each.bare / MS:.2f} | {each.relative:+.1%} | {'fit' if each.fitted else ''} |"
        )
