"""A model's summary, and the list of shipped models, for a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pciesim.model import Module
from pciesim.units import GB, MB, Bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pciesim.model_summary import ModelSummary

__all__ = ["list_to_text", "print_list", "print_model", "to_text"]

PIPED_WIDTH: Final = 100


def print_model(summary: ModelSummary) -> None:
    """Print a summary to stdout, in the terminal's width or in 100 columns when piped."""
    _print(_model(summary))


def print_list(entries: Iterable[tuple[str, ModelSummary]]) -> None:
    """Print the shipped models to stdout."""
    _print(_list(entries))


def to_text(summary: ModelSummary, *, width: int = PIPED_WIDTH) -> str:
    """A summary without colour, as a string."""
    return _text(_model(summary), width)


def list_to_text(entries: Iterable[tuple[str, ModelSummary]], *, width: int = PIPED_WIDTH) -> str:
    """The shipped models without colour, as a string."""
    return _text(_list(entries), width)


def _print(content: RenderableType) -> None:
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:  # not straight to stdout: rich would answer a closed pipe by leaving
        console.print(content)
    sys.stdout.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def _text(content: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, no_color=True)
    with console.capture() as capture:
        console.print(content)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _model(summary: ModelSummary) -> RenderableType:
    model = summary.model
    head = f"{_billions(summary.total)} parameters, {_billions(summary.active)} active a token"
    without = f"{_billions(summary.active_without_embedding)} without the input embedding"
    apart = [
        f"{_billions(summary.mtp)} in MTP" if summary.mtp else "",
        f"{_billions(model.vision_parameters)} in vision" if model.vision_parameters else "",
        "a vision tower of unknown size" if model.vision_parameters is None else "",
    ]
    listed = " and ".join(part for part in apart if part)
    kinds = "; ".join(f"{count} x {kind}" for kind, count in summary.kinds)
    return Group(
        Text(model.name, style="bold"),
        Text(f"{head} ({without})"),
        *([Text(f"apart from that: {listed}")] if listed else []),
        Text(f"{summary.layers} layers of width {model.hidden}, vocabulary {model.vocabulary}"),
        Text(f"  {kinds}"),
        *_section("Weights", _modules(summary)),
        *_section("On each GPU, by tensor parallelism", _shares(summary)),
        Text(f"weights read: one token, uniform routing; KV cache in {model.kv_precision}", style="dim"),
        Text(f"tensor parallelism possible at {', '.join(map(str, summary.legal_tp))}", style="dim"),
        *_section("All-reduces of one pass under tensor parallelism", _sums(summary)),
        Text(""),
        Text(f"source: {model.source}", style="dim"),
    )


def _section(title: str, *content: RenderableType) -> tuple[RenderableType, ...]:
    return (Text(""), Text(title, style="bold"), *content)


def _table(*columns: str, left: int = 1) -> Table:
    """Columns side by side; the first ``left`` hold words, the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=index > 0)
    return table


def _modules(summary: ModelSummary) -> Table:
    table = _table("module", "precision", "parameters", "active", "bytes", "share", left=2)
    for size in summary.modules:
        share = "apart" if size.module is Module.MTP else f"{size.nbytes / summary.nbytes:.1%}"
        table.add_row(
            size.module.replace("_", " "),
            str(size.precision),
            _billions(size.parameters),
            _billions(size.active_parameters),
            _bytes(size.nbytes),
            share,
        )
    total = (_billions(summary.total), _billions(summary.active), _bytes(summary.nbytes))
    table.add_row("total", "", *total, "")
    return table


def _shares(summary: ModelSummary) -> Table:
    context = f"KV at {summary.context}"
    table = _table("TP", "EP", "weights", "weights read", "KV a token", context, "state a sequence", left=0)
    for share in summary.shares:
        table.add_row(
            str(share.tp),
            str(share.ep),
            _bytes(share.weights),
            _bytes(share.weights_read),
            _bytes(share.kv_per_token),
            _bytes(share.kv_at_context),
            _bytes(share.state_per_sequence),
        )
    return table


def _sums(summary: ModelSummary) -> Table:
    table = _table("after", "count", "bytes a token", "precision")
    for each, count in summary.all_reduces:
        table.add_row(each.after, str(count), str(each.bytes_per_token), str(each.precision))
    table.add_row("total", str(sum(count for _, count in summary.all_reduces)), "", "")
    return table


def _list(entries: Iterable[tuple[str, ModelSummary]]) -> Table:
    table = _table("model", "name", "parameters", "active", "weights", left=2)
    for name, summary in entries:
        table.add_row(
            name,
            summary.model.name,
            _billions(summary.total),
            _billions(summary.active),
            _bytes(summary.nbytes),
        )
    return table


def _billions(count: int) -> str:
    if count >= GB / 100:
        return f"{count / GB:.2f} B"
    return f"{count / MB:.2f} M" if count >= MB / 100 else str(count)


def _bytes(value: Bytes) -> str:
    """Decimal units, as memory and bandwidth of GPUs are compared in: 29.9 GB, 5.45 MB, 7680 B."""
    for factor, unit in ((GB, "GB"), (MB, "MB")):
        if value >= factor:
            return f"{value / factor:.{2 if value < 10 * factor else 1}f} {unit}"
    return f"{value:g} B"
