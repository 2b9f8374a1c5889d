"""What people ask for and pciesim does not model: listed, so that the answer is a reason and not an unknown name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pciesim.errors import Infeasible
from pciesim.scenario import Scenario
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["BAR1_OVERRIDE"]


def _never(reason: str) -> tuple[Callable[[Scenario, str], Scenario], Callable[[Scenario, str], str]]:
    def apply(_scenario: Scenario, _argument: str) -> Scenario:
        raise Infeasible(reason)

    return apply, lambda _scenario, _argument: reason


_BAR1, _BAR1_REASON = _never(
    "not modelled: what a driver does without the override is its own affair (242 instead of 16 us were seen); "
    "pciesim takes peer-to-peer as working"
)

BAR1_OVERRIDE: Final = Strategy(
    axis="bar1",
    name="force-p2p",
    sentence="the driver is told to use peer-to-peer through BAR1 where it would refuse",
    source="local-inference-lab/rtx6kpro optimization/pcie-oneshot-allreduce.md (114 KB on root ports: 242 -> 16 us)",
    apply=_BAR1,
    obstacle=_BAR1_REASON,
    turn_on=lambda _: (
        Switch(
            engine="box",
            note="the driver's ForceP2P registry option: see the source for the words of your driver",
        ),
    ),
    number="same",
    size="same",
    criticality="exposed",
    risk="undocumented driver option; test copies for right data",
    hurts="not known",
)
