"""What every choice of an all-reduce has in common: a name in the scenario, and a kernel that must be able to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pciesim.scenario import Scenario

__all__ = ["chooses", "needs_peers"]


def chooses(name: str) -> Callable[[Scenario, str], Scenario]:
    """A change that has every all-reduce of the step served by the algorithm of that name."""

    def apply(scenario: Scenario, _argument: str) -> Scenario:
        return replace(scenario, allreduce=name)

    return apply


def needs_peers(scenario: Scenario, _argument: str) -> str:
    """Why a kernel that reaches into its peers' memory cannot run on this group."""
    fabric = scenario.fabric
    if not fabric.nccl.p2p:
        return f"it needs peer-to-peer, which is off on '{fabric.name}'"
    for one in scenario.gpus:
        for other in scenario.gpus:
            if one != other and not fabric.can_peer(one, other):
                return f"it needs peer-to-peer between {one} and {other}, which the driver refuses"
    return ""
