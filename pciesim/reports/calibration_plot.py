"""Measured against predicted, on points that the fit had not seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pciesim.calibrate.check import HeldOut
from pciesim.units import US

__all__ = ["plot_held_out"]

INK: Final = "#1f2933"
COLOURS: Final = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#9333ea", "#65a30d")
MOST_NAMES: Final = 14
EDGE: Final = 60.0  # per cent


def plot_held_out(found: Sequence[HeldOut], path: Path) -> None:
    """Two panels: predicted over measured latency, and the error by size. One size left out at a time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (a quarter of a second to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = [each for each in found if each.grouping == "size"] or list(found)
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    scatter, errors = figure.subplots(1, 2)
    names = list(dict.fromkeys(f"{each.point.dataset} {each.point.algorithm}" for each in shown))
    for position, name in enumerate(names):
        points = [each for each in shown if f"{each.point.dataset} {each.point.algorithm}" == name]
        measured = [each.point.latency / US for each in points]
        colour = COLOURS[position % len(COLOURS)]
        style = {"s": 14, "color": colour, "alpha": 0.75, "marker": "osD^vPX*"[position // len(COLOURS) % 8]}
        predicted = [m * (1 + each.relative) for m, each in zip(measured, points, strict=True)]
        scatter.scatter(measured, predicted, label=name if position < MOST_NAMES else None, **style)
        percent = [max(-EDGE, min(EDGE, 100 * each.relative)) for each in points]
        errors.scatter([each.point.nbytes for each in points], percent, **style)
    low = min(each.point.latency for each in shown) / US
    high = max(each.point.latency for each in shown) / US
    scatter.plot([low, high], [low, high], color=INK, linewidth=0.8)
    scatter.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="predicted without this size, us")
    scatter.legend(fontsize=6.5, frameon=False)
    errors.axhline(0, color=INK, linewidth=0.8)
    errors.axhspan(-5, 5, color=INK, alpha=0.06, linewidth=0)
    errors.set_xscale("log", base=2)
    errors.set(
        xlabel="bytes of each rank's input",
        ylabel=f"error, % (beyond {EDGE:g} at the edge)",
        ylim=(-EDGE - 2, EDGE + 2),
    )
    for axes in (scatter, errors):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, linewidth=0.3, alpha=0.5)
    figure.savefig(path, dpi=150)
