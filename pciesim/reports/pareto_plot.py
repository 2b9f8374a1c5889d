"""Per-user speed against total throughput: everything that was tried, and the front."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pciesim.compare.configuration import label
from pciesim.reports.figure import new_figure, save_figure

if TYPE_CHECKING:
    from pciesim.compare.outcome import Outcome

__all__ = ["plot_front"]

_AXES: Final = ("tp", "dp", "ep", "allreduce", "nccl", "spec")
_NEUTRAL: Final = ("1", "auto", "default", "none")
_LABELLED: Final = 9


def plot_front(title: str, outcomes: tuple[Outcome, ...], others: tuple[Outcome, ...], path: Path) -> None:
    """Writes the picture to ``path`` (.svg, .png, .pdf)."""
    figure, axes = new_figure(9.0, 6.0, path)
    axes.scatter(
        [each.user.value for each in others],
        [each.total.value for each in others],
        s=10,
        color="#d4d4d4",
        label="tried",
    )
    users, totals = [each.user.value for each in outcomes], [each.total.value for each in outcomes]
    axes.plot(users, totals, color="#1d4ed8", marker="o", markersize=4, linewidth=1.2, label="front")
    every = max(1, -(-len(outcomes) // _LABELLED))
    for place, each in enumerate(outcomes):
        if place % every == 0 or place == len(outcomes) - 1:
            shown = [axis for axis in _AXES if dict(each.configuration).get(axis, "none") not in _NEUTRAL]
            batch = dict(each.configuration).get("batch", "1")
            axes.annotate(
                f"{label(each.configuration, shown)} batch={batch}",
                (each.user.value, each.total.value),
                xytext=(6, 4),
                textcoords="offset points",
                fontsize=7,
            )
    axes.set_yscale("log")
    axes.set_xlim(0.0, 1.6 * max(users))  # room for the labels, right of their points
    axes.set_xlabel("tokens per second of one user")
    axes.set_ylabel("tokens per second of the whole box")
    axes.legend(frameon=False, loc="upper right")
    axes.grid(alpha=0.25, linewidth=0.5, which="both")
    figure.suptitle(f"{title}: speed of one user against the whole box", x=0.01, ha="left", fontsize=10)
    save_figure(figure, path)
