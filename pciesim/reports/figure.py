"""What every picture shares: a figure without a display, the formats, equal bytes for equal input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pciesim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "new_figure", "save_figure"]

FORMATS: Final = (".pdf", ".png", ".svg")


def new_figure(width: float, height: float, path: Path) -> tuple[Figure, Axes]:
    """A figure of that many inches and its axes. Raises InputError where ``path`` has another ending."""
    if path.suffix not in FORMATS:
        raise InputError(f"'{path.suffix}' is not a picture format (valid: {', '.join(FORMATS)})", where=str(path))
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (a quarter second; only plots pay it)
    from matplotlib.figure import Figure as NewFigure  # noqa: PLC0415

    figure = NewFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Figure, path: Path) -> None:
    """Writes the figure. Raises InputError where it cannot."""
    from matplotlib import rc_context  # noqa: PLC0415

    try:
        # A fixed salt and no date: the same input gives the same file.
        with rc_context({"svg.hashsalt": "pciesim"}):
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
