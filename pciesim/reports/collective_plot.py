"""Latency by size: one line an algorithm with its interval, crossovers marked, the floor shaded."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pciesim.collective_sweep import Sweep
from pciesim.reports.figure import new_figure, save_figure
from pciesim.units import US, format_bytes

__all__ = ["plot_sweep"]

_COLOURS: Final = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d", "#525252")
_DASHES: Final = ("-", "--", ":", "-.")


def plot_sweep(sweep: Sweep, path: Path) -> None:
    """Writes the picture to ``path`` (.svg, .png, .pdf). Raises InputError where it cannot."""
    figure, axes = new_figure(10.0, 5.2, path)
    names = list(dict.fromkeys(row.algorithm for row in sweep.rows))
    sizes = [size for size, _ in sweep.floors]
    top = max(row.latency.value for row in sweep.rows) / US
    bottom = 0.6 * min(row.latency.low for row in sweep.rows) / US
    for number, name in enumerate(names):
        rows = [row for row in sweep.rows if row.algorithm == name]
        x = [row.nbytes for row in rows]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.fill_between(
            x, [row.latency.low / US for row in rows], [row.latency.high / US for row in rows], color=colour,
            alpha=0.12, linewidth=0,
        )  # fmt: skip
        axes.plot(
            x, [row.latency.value / US for row in rows], color=colour, linewidth=1.8, marker="o", markersize=3.5,
            linestyle=_DASHES[number // len(_COLOURS) % len(_DASHES)], label=name,
        )  # fmt: skip
    axes.fill_between(
        sizes, [0.5 * bottom] * len(sizes), [max(floor / US, 0.5 * bottom) for _, floor in sweep.floors],
        color="#d4d4d4", linewidth=0, label="floor of any algorithm",
    )  # fmt: skip
    for number, each in enumerate(sweep.crossovers):
        axes.axvline(each.nbytes, color="#737373", linewidth=0.8, linestyle=":")
        # Labels of neighbours stand at different heights, and left of the line in the right half of the picture.
        high = top * 0.9 / 1.7 ** (number % 3)
        axes.annotate(
            f"{each.before}\n→ {each.after}", (each.nbytes, high), xytext=(4, 0), textcoords="offset points",
            fontsize=7, color="#404040", va="top",
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top * 1.3)
    axes.set_xlim(min(sizes) or 1, max(sizes) * 1.05)
    shown = sizes if len(sizes) <= 12 else sizes[:: -(-len(sizes) // 12)]
    axes.set_xticks([size for size in shown if size], [format_bytes(size) for size in shown if size], fontsize=8)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(True, axis="y", color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("bytes each rank passes in")
    axes.set_ylabel("microseconds")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title(
        f"{str(sweep.kind).replace('_', '-')} on {len(sweep.gpus)} GPUs of {sweep.topology}", loc="left", fontsize=11
    )
    save_figure(figure, path)
