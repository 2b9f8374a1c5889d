"""Where a step goes, as a picture: one bar a part, with its interval."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pciesim.errors import InputError
from pciesim.prediction import Prediction
from pciesim.reports.prediction_text import CATEGORY_NAMES
from pciesim.units import MS

__all__ = ["plot_prediction"]

_COMMUNICATION: Final = frozenset({"all_reduce", "logits_gather"})
_COLOURS: Final = {"communication": "#c2410c", "host": "#737373", "compute": "#1d4ed8"}
_FORMATS: Final = (".pdf", ".png", ".svg")


def plot_prediction(prediction: Prediction, path: Path) -> None:
    """Writes the breakdown to ``path`` (.svg, .png or .pdf). Raises InputError for another ending or folder."""
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (a quarter second; only plots pay it)
    from matplotlib.figure import Figure  # noqa: PLC0415

    if path.suffix not in _FORMATS:
        raise InputError(f"'{path.suffix}' is not a picture format (valid: {', '.join(_FORMATS)})", where=str(path))
    parts = [(CATEGORY_NAMES.get(name, name), _kind(name), value) for name, value in reversed(prediction.breakdown)]
    figure = Figure(figsize=(8.0, 0.42 * len(parts) + 1.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    values = [value.value / MS for _, _, value in parts]
    errors = [
        [(value.value - value.low) / MS for _, _, value in parts],
        [(value.high - value.value) / MS for _, _, value in parts],
    ]
    places = range(len(parts))
    axes.barh(places, values, color=[_COLOURS[kind] for _, kind, _ in parts], height=0.66)
    axes.errorbar(values, places, xerr=errors, fmt="none", ecolor="#171717", elinewidth=1.0, capsize=2.5)
    axes.set_yticks(places, [label for label, _, _ in parts])
    right = max(value.high for _, _, value in parts) / MS
    for place, (_, _, value) in zip(places, parts, strict=True):
        axes.text(value.high / MS + 0.012 * right, place, f"{value.value / MS:.2f}", va="center", fontsize=9)
    axes.set_xlim(0, 1.1 * right)
    axes.set_xlabel("milliseconds of one decode step (bars with 90 % interval)")
    axes.spines[["top", "right"]].set_visible(False)
    request, step = prediction.request, prediction.step_latency
    figure.suptitle(
        f"{request.model} on {len(request.gpus)} x {request.gpu_model}, {request.engine}\n"
        f"{step.value / MS:.1f} ms a step ({step.low / MS:.1f} to {step.high / MS:.1f}), "
        f"{prediction.tokens_per_second_user.value:.0f} tok/s a user, "
        f"{prediction.traversals_per_token:,.0f} PCIe traversals a token",
        x=0.01,
        ha="left",
        fontsize=10,
    )
    try:
        # A fixed salt and no date: the same prediction gives the same file.
        with rc_context({"svg.hashsalt": "pciesim"}):
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None


def _kind(name: str) -> str:
    if name in _COMMUNICATION:
        return "communication"
    return "host" if name.startswith("host") else "compute"
