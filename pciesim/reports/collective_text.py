"""A sweep of collectives as a table like that of nccl-tests; the fastest of each size and the crossovers are marked."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from pciesim.collective_sweep import Sweep, SweepRow
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, US, Seconds, format_bytes

__all__ = ["columns", "to_text"]

_WIDTH: Final = 100
_HEAD: Final = (
    "bytes", "", "algorithm", "protocol", "transport", "ch", "us", "low", "high", "algbw", "busbw", "trav", "floor",
)  # fmt: skip
_RIGHT: Final = frozenset({0, *range(5, len(_HEAD))})


def to_text(sweep: Sweep) -> str:
    """The table, the crossovers, and what cannot run and why; ends with a newline."""
    words = str(sweep.kind).replace("_", "-")
    lines = textwrap.wrap(f"{words} on {len(sweep.gpus)} GPUs of {sweep.topology}: {', '.join(sweep.gpus)}", _WIDTH)
    lines += [f"profile {sweep.profile}, {sweep.evaluator}d; bytes are what each rank passes in{_note(sweep)}", ""]
    rows: list[Sequence[str]] = [_HEAD]
    for nbytes, floor in sweep.floors:
        same = [row for row in sweep.rows if row.nbytes == nbytes]
        rows += [_cells(row, floor, first=number == 0) for number, row in enumerate(same)]
    lines += columns(rows, right=_RIGHT)
    lines += [
        "",
        "us with the low and high of the profile's parameters; algbw and busbw in GB/s as nccl-tests counts them;",
        "trav: one-way crossings on the critical path; floor: us no algorithm on GPUs can beat; * fastest of its size",
    ]
    if sweep.crossovers:
        lines += ["", "Crossovers"]
        lines += [
            f"  about {format_bytes(float(f'{each.nbytes:.2g}'))}: {each.before} -> {each.after}"
            for each in sweep.crossovers
        ]
    noted: dict[str, list[str]] = {}
    for row in sweep.rows:
        for note in row.notes:
            if row.algorithm not in (names := noted.setdefault(note, [])):
                names.append(row.algorithm)
    for note, names in noted.items():
        lines += ["", *textwrap.wrap(f"{', '.join(names)}: {note}", _WIDTH)]
    if sweep.refused:
        lines += ["", "Cannot run here"]
        for each in sweep.refused:
            lines += textwrap.wrap(each.reason, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def columns(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Rows as lines of aligned columns, two blanks apart; those in ``right`` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _note(sweep: Sweep) -> str:
    if sweep.kind is CollectiveKind.ALL_GATHER:
        return "; bandwidths count the gathered tensor"
    if sweep.skew != 1.0:
        return f"; rank 0 is sent {sweep.skew:g} times the mean"
    return ""


def _cells(row: SweepRow, floor: Seconds, *, first: bool) -> Sequence[str]:
    latency = row.latency
    return (
        format_bytes(row.nbytes) if first else "",
        "*" if row.fastest else "",
        row.algorithm,
        row.protocol,
        row.transport,
        str(row.channels),
        _us(latency.value),
        _us(latency.low),
        _us(latency.high),
        f"{row.algorithm_bandwidth / GB:.2f}",
        f"{row.bus_bandwidth / GB:.2f}",
        str(row.traversals),
        _us(floor) if first else "",
    )


def _us(value: Seconds) -> str:
    text = f"{value / US:.1f}"
    return text if len(text) < 6 else f"{value / US:.0f}"
