"""Concurrent copies: predicted against published, box by box, with the constants that were fitted."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pciesim.api import box_profile
from pciesim.calibrate.contention import FlowCase, FlowRow, fit_constants, predict_flows
from pciesim.contention import Rules
from pciesim.flows import FlowsResult, Metric
from pciesim.formats.contention_csv import read_flow_rows
from pciesim.formats.flow_text import parse_flows
from pciesim.formats.shipped import find_input, shipped_folder
from pciesim.formats.topology import load_fabric
from pciesim.physics import RouteCosts
from pciesim.units import GB, BytesPerSecond

__all__ = ["FLOWS", "RUNS", "FlowError", "contention_table", "fitted_constants", "flow_cases", "flow_errors"]

FLOWS: Final = Path("contention_published/flows.csv")  # below the folder of runs
RUNS: Final = Path("calibration/runs") / FLOWS


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowError:
    """One row, what pciesim says of it, and what plain max-min under the same metric says."""

    row: FlowRow
    result: FlowsResult
    ideal: BytesPerSecond

    @property
    def relative(self) -> float:
        """Predicted over measured, less one."""
        return self.result.figure / self.row.measured - 1

    @property
    def factor(self) -> float:
        """By how much it is off, as a factor >= 1."""
        ratio = self.result.figure / self.row.measured
        return max(ratio, 1 / ratio)


def flow_cases(runs: Path = RUNS) -> tuple[FlowCase, ...]:
    """The published rows with their machines. Raises InputError for a row that cannot be read."""
    machines: dict[tuple[str, str], FlowCase] = {}
    found: list[FlowCase] = []
    for row in read_flow_rows(runs):
        key = row.topology, row.overlay
        if key not in machines:
            overlay = shipped_folder("topologies") / f"{row.overlay}.yaml" if row.overlay else None
            fabric = load_fabric(find_input("topologies", row.topology), overlay)
            costs = RouteCosts.of(box_profile(fabric))
            machines[key] = FlowCase(row=row, fabric=fabric, flows=(), costs=costs)
        machine = machines[key]
        flows = parse_flows([row.flows], machine.fabric, where=str(runs))
        found.append(FlowCase(row=row, fabric=machine.fabric, flows=flows, costs=machine.costs))
    return tuple(found)


def flow_errors(runs: Path = RUNS) -> tuple[FlowError, ...]:
    """Every row of the file."""
    return tuple(
        FlowError(row=case.row, result=predict_flows(case), ideal=predict_flows(case, Rules.ideal()).figure)
        for case in flow_cases(runs)
    )


def fitted_constants(runs: Path = RUNS) -> dict[str, dict[str, float]]:
    """What the fit of every machine gives, by the name of its topology or overlay: to hold the overlays against."""
    groups: dict[str, list[FlowCase]] = {}
    for case in flow_cases(runs):
        groups.setdefault(case.row.overlay or case.row.topology, []).append(case)
    found = {name: fit_constants(cases) for name, cases in groups.items()}
    return {name: constants for name, constants in found.items() if constants}


def contention_table(runs: Path = RUNS) -> str:
    """The tables of docs/contention.md as Markdown."""
    errors = flow_errors(runs)
    lines = list(_summary(errors))
    for box in dict.fromkeys(error.row.box for error in errors):
        own = [error for error in errors if error.row.box == box]
        lines += ["", f"### {box}", "", _constants(own), "", *_rows(own)]
    return "\n".join(lines) + "\n"


def _summary(errors: Sequence[FlowError]) -> Iterable[str]:
    scored = [error for error in errors if error.row.scored]
    steady = [error for error in scored if not error.row.collapse]
    loops = [error for error in steady if error.row.metric is Metric.COPY_LOOP]
    tools = [error for error in steady if error.row.metric is not Metric.COPY_LOOP]
    yield "| rows not used to fit | rows | median | 90th percentile | worst | plain max-min: median | worst |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for what, group in (("p2p_test, p2pmark, own copies", tools), ("copy_loop", loops)):
        sizes = [abs(error.relative) for error in group]
        plain = [abs(error.ideal / error.row.measured - 1) for error in group]
        ninetieth = statistics.quantiles(sizes, n=10, method="inclusive")[-1]
        yield (
            f"| {what} | {len(group)} | {statistics.median(sizes):.1%} | {ninetieth:.1%} | {max(sizes):.1%} "
            f"| {statistics.median(plain):.1%} | {max(plain):.0%} |"
        )
    falls = [error for error in scored if error.row.collapse]
    worst, plain_worst = (
        max(values) for values in zip(*((e.factor, e.ideal / e.row.measured) for e in falls), strict=True)
    )
    median = statistics.median(error.factor for error in falls)
    yield f"| collapse, as a factor | {len(falls)} | {median:.2f} | | {worst:.2f} | | {plain_worst:.1f} |"


def _constants(errors: Sequence[FlowError]) -> str:
    names = list(dict.fromkeys(error.row.fits for error in errors if error.row.fits))
    return (
        f"Fitted on this box: {', '.join(f'`{name}`' for name in names)}." if names else "Nothing fitted on this box."
    )


def _rows(errors: Sequence[FlowError]) -> Iterable[str]:
    yield "| topology | flows | metric | measured GB/s | predicted | error | plain max-min | limited by | |"
    yield "|---|---|---|---:|---:|---:|---:|---|---|"
    for error in errors:
        row = error.row
        measured = f"{row.low / GB:g}" if row.low == row.high else f"{row.low / GB:g} to {row.high / GB:g}"
        shown = f"x {error.factor:.2f}" if row.collapse else f"{error.relative:+.1%}"
        remarks = [row.variant, "" if row.scored else row.use, "collapse" if error.result.collapsed else "", row.note]
        predicted = f"{error.result.figure / GB:.1f}"
        yield (
            f"| {row.overlay or row.topology} | {row.flows} | {row.metric} | {measured} | {predicted} | {shown} "
            f"| {error.ideal / GB:.1f} | {_limit(error.result)} | {'; '.join(filter(None, remarks))} |"
        )


def _limit(result: FlowsResult) -> str:
    """What limits the slowest flow."""
    return min(result.flows, key=lambda flow: flow.rate).limited_by
