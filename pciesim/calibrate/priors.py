"""Parameters for a box that nobody has measured: those of the nearest known host, as uncertain as hosts differ.

The values are the nearest host's. How far a collective of another host is from them was found by leaving every known
host out in turn (``accuracy.coverage``, docs/calibration.md): the errors are of the whole call and hang together, so
one factor over all collectives stands for them and not forty parameters of which each would be a little uncertain. It
is wider for boxes of a GPU of which no other is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.profile import UNMEASURED, Evidence, Parameter, Profile

__all__ = ["OTHER_GPU", "SAME_GPU", "prior_profile"]

SAME_GPU: Final = (0.67, 1.42)
OTHER_GPU: Final = (0.67, 1.57)
"""Least and most of a call's time over what the nearest host's figures say of it, nine times of ten."""


def prior_profile(nearest: Profile, *, name: str, same_gpu: bool) -> Profile:
    """The nearest host's figures for another box, of the same GPU or of one that is not known."""
    low, high = SAME_GPU if same_gpu else OTHER_GPU
    hosts = Parameter(
        value=1.0, low=low, high=high, evidence=Evidence.MEASURED,
        source="known hosts left out in turn (docs/calibration.md); `pciesim measure` on this box settles it",
    )  # fmt: skip
    return replace(
        nearest,
        name=name,
        description=f"no measurements of this box: figures of '{nearest.name}', as uncertain as known hosts differ",
        parameters=(
            *((each, parameter if _not_of_calls(each) else _exact(parameter)) for each, parameter in
              nearest.borrowed().parameters if each != UNMEASURED),
            (UNMEASURED, hosts),
        ),
    )  # fmt: skip


def _not_of_calls(name: str) -> bool:
    """Whether the factor says nothing of a parameter: hosts' own time, drafts, overlap, what a step adds to a call."""
    return name.startswith(("host.", "draft.", "overlap.")) or name.endswith(".in_step")


def _exact(parameter: Parameter) -> Parameter:
    return replace(parameter, low=parameter.value, high=parameter.value)
