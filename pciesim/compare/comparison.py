"""Two outcomes side by side: the gain with its interval, whether its sign is certain, and which part made it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pciesim.compare.configuration import Configuration, label
from pciesim.compare.outcome import Outcome, Refusal
from pciesim.compare.response import difference, ratio
from pciesim.profile import Interval
from pciesim.units import Seconds

__all__ = ["Comparison", "Gain", "PartChange", "compared", "gain_of"]

_ROUNDING: Final = 1e-12  # seconds: sums of a thousand ops differ by this much in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChange:
    """What a category of ops takes more (positive) or less per token of one user."""

    category: str
    change: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """An outcome against the baseline.

    ``saved`` is the time a token of one user takes less; ``speed_up`` how many times faster a user is served,
    ``total`` the same for the whole box. ``why`` lists the changed parts, the largest first.
    """

    outcome: Outcome
    saved: Interval
    speed_up: Interval
    total: Interval
    why: tuple[PartChange, ...]

    @property
    def certain(self) -> bool:
        """Whether the whole interval lies on one side of no change."""
        return self.saved.low > 0 or self.saved.high < 0

    @property
    def sign(self) -> str:
        """``faster``, ``slower`` or ``same``, with ``maybe`` before it where the interval holds both."""
        if not self.saved.value:
            return "same"
        word = "faster" if self.saved.value > 0 else "slower"
        return word if self.certain else f"maybe {word}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A baseline, what became of it under every other configuration, and those that cannot run.

    ``axes`` are the varied axes, as shown. ``_repr_html_`` is what a notebook shows.
    """

    title: str
    axes: tuple[str, ...]
    baseline: Outcome
    gains: tuple[Gain, ...]
    refused: tuple[Refusal, ...]

    @property
    def best(self) -> Gain | None:
        """The gain with the largest speed-up of one user."""
        return max(self.gains, key=lambda gain: gain.speed_up.value, default=None)

    def named(self, configuration: Configuration) -> str:
        """How a configuration is called in this comparison."""
        return label(configuration, self.axes)

    def _repr_html_(self) -> str:
        # By name: reports stand above this room, and only a notebook asks.
        text: str = importlib.import_module("pciesim.reports.html_tables").comparison_html(self)
        return text


def gain_of(baseline: Outcome, outcome: Outcome) -> Gain:
    """The outcome against the baseline; what both share moves both and cancels."""
    time = ratio(baseline.latency, outcome.latency, baseline.responses, outcome.responses)
    saved = difference(outcome.latency, baseline.latency, outcome.responses, baseline.responses)
    share = outcome.sequences / baseline.sequences
    return Gain(outcome=outcome, saved=saved, speed_up=time, total=time.scaled(share), why=_why(baseline, outcome))


def _why(baseline: Outcome, outcome: Outcome) -> tuple[PartChange, ...]:
    names = {**baseline.parts, **outcome.parts}
    changes = [
        PartChange(
            category=name,
            change=outcome.parts.get(name, 0.0) / outcome.tokens - baseline.parts.get(name, 0.0) / baseline.tokens,
        )
        for name in names
    ]
    real = (each for each in changes if abs(each.change) > _ROUNDING)
    return tuple(sorted(real, key=lambda each: (-abs(each.change), each.category)))


def compared(
    title: str,
    axes: Sequence[str],
    baseline: Outcome,
    outcomes: Sequence[Outcome],
    refused: Sequence[Refusal],
) -> Comparison:
    """Every outcome but the baseline itself against it, in the order given."""
    return Comparison(
        title=title,
        axes=tuple(axes),
        baseline=baseline,
        gains=tuple(gain_of(baseline, each) for each in outcomes if each.configuration != baseline.configuration),
        refused=tuple(refused),
    )
