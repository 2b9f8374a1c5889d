"""From the intervals of parameters and kernels to the interval of an answer.

Each parameter is moved to its upper bound in the closed form and its effect taken as linear (delta method); independent
effects add in quadrature. Kernels of one category share their error: their tables come from one place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pciesim.prediction import Sensitivity
from pciesim.profile import Interval, Profile
from pciesim.units import Seconds

__all__ = ["Effect", "combine", "linear_effect", "parameter_moves", "rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one uncertain figure does to an answer: seconds below and above the value, both >= 0."""

    name: str
    below: Seconds
    above: Seconds
    evidence: str


def parameter_moves(profile: Profile) -> Iterable[tuple[str, Profile, float, float]]:
    """(name, profile with it at its upper bound, step to the upper bound, step to the lower) of uncertain ones."""
    for name, parameter in profile.parameters:
        if parameter.high > parameter.value:
            moved = profile.with_value(name, parameter.high)
            yield name, moved, parameter.high - parameter.value, parameter.value - parameter.low
        elif parameter.low < parameter.value:
            moved = profile.with_value(name, parameter.low)
            yield name, moved, parameter.low - parameter.value, 0.0


def linear_effect(name: str, change: Seconds, up: float, down: float, evidence: str) -> Effect:
    """The effect of a parameter whose move by ``up`` changed the answer by ``change``; ``down`` scales the other side."""
    other = -change * down / up if up > 0 else 0.0
    return Effect(name=name, below=max(-change, -other, 0.0), above=max(change, other, 0.0), evidence=evidence)


def combine(value: float, effects: Iterable[Effect]) -> Interval:
    """A value with the quadrature sums of independent effects around it; never below zero."""
    listed = list(effects)
    below = math.sqrt(sum(effect.below**2 for effect in listed))
    above = math.sqrt(sum(effect.above**2 for effect in listed))
    return Interval(value=value, low=max(0.0, value - below), high=value + above)


def rank(effects: Iterable[Effect], count: int) -> tuple[Sensitivity, ...]:
    """The effects that widen an interval most, largest first."""
    ordered = sorted(effects, key=lambda effect: (-max(effect.below, effect.above), effect.name))
    return tuple(
        Sensitivity(
            parameter=effect.name, effect=(effect.below + effect.above) / 2, evidence=effect.evidence
        )
        for effect in ordered[:count]
        if effect.below or effect.above
    )
