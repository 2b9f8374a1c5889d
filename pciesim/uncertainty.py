"""From the intervals of parameters and kernels to the interval of an answer.

Each parameter is moved to its upper bound in the closed form and its effect taken as linear (delta method); independent
effects add in quadrature. Kernels of one category share their error: their tables come from one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pciesim.collectives.task import Lowered
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.physics import UNFORCED, UNFORCED_LOADS
from pciesim.prediction import Sensitivity
from pciesim.profile import Interval
from pciesim.units import Seconds

__all__ = ["Effect", "Shift", "combine", "propagate", "rank", "shifts_of", "touching"]

# Families of parameters that a collective reads only with a certain transport (as its lowering names it).
_OF_TRANSPORT: Final = {
    "nccl.nvl.": "NVLink", "nccl.p2p.": "P2P", "nccl.shm.": "host memory", "latency.nvlink": "NVLink",
    "share.nvlink": "NVLink", "latency.host": "host memory", "nccl.copy_step": "host memory",
}  # fmt: skip
# Endings of NCCL's parameters that belong to a protocol, or to trees.
_OF_PROTOCOL: Final = {
    ".simple_extra": ("Simple",), ".simple_channel": ("Simple",), ".ll128_extra": ("LL128",),
    ".ll_channel": ("LL", "LL128"),
}  # fmt: skip
_OF_OWN_KERNELS: Final = ("oneshot.", "kernel.", "copy.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one uncertain figure does to an answer: seconds below and above the value, both >= 0."""

    name: str
    below: Seconds
    above: Seconds
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A timer with one parameter moved by ``up`` (towards its farther bound), which could move by ``down`` instead."""

    name: str
    timer: CollectiveTimer
    up: float
    down: float
    evidence: str


def shifts_of(timer: CollectiveTimer) -> tuple[CollectiveTimer, tuple[Shift, ...]]:
    """A closed-form timer as it is, and one per uncertain communication parameter. Their memos live with them."""
    profile = timer.profile if timer.fabric.registry_override else timer.profile.with_default(UNFORCED, UNFORCED_LOADS)
    shifts: list[Shift] = []
    for name, parameter in profile.parameters:
        above, below = parameter.high - parameter.value, parameter.value - parameter.low
        if name.startswith(("host.", "draft.")) or not (above or below):
            continue
        upwards = above >= below
        moved = profile.with_value(name, parameter.high if upwards else parameter.low)
        shifts.append(
            Shift(
                name=name,
                timer=timer.under(moved),
                up=above if upwards else -below,
                down=-below if upwards else above,
                evidence=parameter.evidence,
            )
        )
    return timer.under(profile), tuple(shifts)


def touching(shifts: Iterable[Shift], collectives: Iterable[Lowered]) -> tuple[Shift, ...]:
    """The shifts that can change the latency of these collectives: most parameters are of other transports."""
    listed = list(collectives)
    transports = {name for each in listed for name in each.transport.split(" + ")}
    ours = any(not each.algorithm.startswith("NCCL") for each in listed)
    theirs = any(each.algorithm.startswith("NCCL") for each in listed)

    trees = any("Tree" in each.algorithm for each in listed)
    protocols = {each.protocol for each in listed}

    def matters(name: str) -> bool:
        needed = next((title for prefix, title in _OF_TRANSPORT.items() if name.startswith(prefix)), "")
        if needed and needed not in transports and not (ours and not name.startswith("nccl.")):
            return False
        if name.startswith("nccl."):
            protocol = next((found for ending, found in _OF_PROTOCOL.items() if name.endswith(ending)), ())
            tree = trees or not name.startswith("nccl.tree.")
            return theirs and tree and (not protocol or not protocols.isdisjoint(protocol))
        return ours if name.startswith(_OF_OWN_KERNELS) else not name.startswith("overlap.")

    return tuple(shift for shift in shifts if matters(shift.name))


def propagate(
    reference: CollectiveTimer, shifts: Sequence[Shift], answer: Callable[[CollectiveTimer], float]
) -> list[Effect]:
    """The effect of every shift on an answer that a timer gives; those without one are left out."""
    base = answer(reference)
    effects: list[Effect] = []
    for shift in shifts:
        change = answer(shift.timer) - base
        if change:
            other = change * shift.down / shift.up
            effects.append(
                Effect(
                    name=shift.name,
                    below=max(-change, -other, 0.0),
                    above=max(change, other, 0.0),
                    evidence=shift.evidence,
                )
            )
    return effects


def combine(value: float, effects: Iterable[Effect], *, least: float = 0.0) -> Interval:
    """A value with the quadrature sums of independent effects around it, not below ``least``."""
    listed = list(effects)
    below = math.sqrt(sum(effect.below**2 for effect in listed))
    above = math.sqrt(sum(effect.above**2 for effect in listed))
    return Interval(value=value, low=min(value, max(least, value - below)), high=value + above)


def rank(effects: Iterable[Effect], count: int) -> tuple[Sensitivity, ...]:
    """The effects that widen an interval most, largest first."""
    ordered = sorted(effects, key=lambda effect: (-(effect.below + effect.above), effect.name))
    return tuple(
        Sensitivity(parameter=effect.name, effect=(effect.below + effect.above) / 2, evidence=effect.evidence)
        for effect in ordered[:count]
        if effect.below or effect.above
    )
