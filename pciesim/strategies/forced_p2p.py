"""The driver's ForceP2P option: whether kernels may load from peers across a root complex at the rate of the wires."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Final

from pciesim.scenario import Scenario
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["FORCED_P2P", "UNFORCED_P2P"]


def _override(scenario: Scenario, on: bool) -> Scenario:
    return replace(scenario, fabric=replace(scenario.fabric, registry_override=on))


def _meets_in_root(scenario: Scenario, _argument: str) -> str:
    fabric = scenario.fabric
    if not fabric.nccl.p2p:
        return f"peer-to-peer is off on '{fabric.name}': p2p=on first"
    routes = (fabric.route(one, other) for one, other in permutations(scenario.gpus, 2))
    if any(route.root_complexes and not route.nvlink for route in routes):
        return ""
    return f"no two of these GPUs of '{fabric.name}' meet in a root complex: nothing to force"


_SOURCE: Final = (
    "local-inference-lab/rtx6kpro optimization/pcie-oneshot-allreduce.md (114 KB on root ports: 242 -> 16 us)"
)

FORCED_P2P: Final = Strategy(
    axis="bar1",
    name="force-p2p",
    sentence="the driver is told to let kernels load from peers across a root complex directly (BAR1)",
    source=_SOURCE,
    apply=lambda scenario, _: _override(scenario, True),
    obstacle=_meets_in_root,
    turn_on=lambda _: (
        Switch(
            engine="box",
            note="the driver's ForceP2P registry option: see the source for the words of your driver",
        ),
    ),
    number="same",
    size="same bytes, at the rate of the wires",
    criticality="exposed",
    risk="undocumented driver option; test copies for right data",
    hurts="nothing: topologies have it on unless their overlay says p2p: {registry_override: false}",
)

UNFORCED_P2P: Final = Strategy(
    axis="bar1",
    name="default",
    sentence="the driver is left as it comes: loads from peers across a root complex are slow",
    source=_SOURCE,
    apply=lambda scenario, _: _override(scenario, False),
    obstacle=_meets_in_root,
    turn_on=lambda _: (Switch(engine="box", note="a driver without registry options"),),
    number="same",
    size="same bytes, at about 1.5 GB/s into a GPU",
    criticality="exposed",
    risk="one published point; stores, copies and NCCL are taken as unchanged",
    hurts="kernels that load from peers (one-shot pull, vLLM's custom all-reduce)",
)
