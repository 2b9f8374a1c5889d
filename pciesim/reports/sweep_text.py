"""A sweep in the terminal: progress on stderr, and the fastest rows after they were simulated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pciesim.compare.configuration import label
from pciesim.units import MS

__all__ = ["confirmed_text", "progress_bar"]


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], Any] | None]:
    """A bar on stderr where that is a terminal; yields a function that is told of new rows (or None)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("configurations", total=total)
        yield lambda count: bar.advance(task, count)


def confirmed_text(rows: Sequence[Any], confirmed: Sequence[Any], axes: Sequence[str]) -> str:
    """The confirmed rows with what the closed form had said of them."""
    estimated = {row.configuration: float(row.values["token_latency_s"]) for row in rows}
    lines = ["", f"The {len(confirmed)} that serve one user fastest, simulated (and estimated), ms a token:"]
    for row in confirmed:
        time = float(row.values["token_latency_s"])
        lines.append(
            f"  {time / MS:7.2f} ({estimated[row.configuration] / MS:.2f})  "
            f"{float(row.values['tokens_per_s_total']):8.0f} tok/s total  {label(row.configuration, axes)}"
        )
    return "\n".join(lines)
