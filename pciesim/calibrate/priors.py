"""Parameters for a box that nobody has measured: those of the nearest known host, as uncertain as hosts differ.

The value is the nearest host's. The interval holds the intervals of all known hosts that measured or fitted the
parameter, and is widened by a factor each way for the host that is not among them: more where one host is known, less
where several are. Parameters that nobody has measured keep their own interval. The factors were set so that nine of ten
points of a left-out host lie inside the predictions' intervals (docs/calibration.md says by host how often they do).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pciesim.profile import Evidence, Parameter, Profile

__all__ = ["WIDENING", "prior_profile"]

WIDENING: Final = {1: 1.6, 2: 1.25}  # by the number of hosts that told a parameter, the last for more
OWN: Final = (Evidence.MEASURED, Evidence.FITTED)


def prior_profile(nearest: Profile, others: Sequence[Profile], *, name: str) -> Profile:
    """The nearest host's parameters with intervals over all known hosts."""
    return replace(
        nearest,
        name=name,
        description=f"no measurements of this box: parameters of '{nearest.name}', as uncertain as known hosts differ",
        parameters=tuple((key, _widened(key, nearest, others)) for key, _ in nearest.parameters),
    )


def _widened(key: str, nearest: Profile, others: Sequence[Profile]) -> Parameter:
    own = nearest.parameter(key)
    known = [profile.parameter(key) for profile in (nearest, *others) if key in profile]
    told = [each for each in known if each.evidence in OWN]
    if not told:
        return own
    widening = WIDENING[min(len(told), max(WIDENING))]
    low = min(own.value, *(each.low for each in told)) / widening
    high = max(own.value, *(each.high for each in told)) * widening
    if key.startswith("share.") or key.endswith(".share"):
        high = max(own.value, min(1.0, high))
    return Parameter(
        value=own.value,
        low=low,
        high=high,
        evidence=Evidence.BORROWED,
        source=f"profile {nearest.name}: {own.source}",
    )
