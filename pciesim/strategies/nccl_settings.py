"""What NCCL's own variables change: how far it goes peer to peer, which ring it finds, how many channels it opens."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.errors import InputError
from pciesim.scenario import Scenario
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["CHANNELS", "GRAPH_FILE", "NO_GRAPH_FILE", "P2P_LEVEL"]

_LEVELS: Final = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
_MOST_CHANNELS: Final = 64


def _level(scenario: Scenario, argument: str) -> Scenario:
    if argument not in _LEVELS:
        raise InputError(f"nccl=p2p-level:{argument}: expected one of {', '.join(_LEVELS)}")
    fabric = scenario.fabric
    return replace(scenario, fabric=replace(fabric, nccl=replace(fabric.nccl, p2p_level=argument)))


def _level_obstacle(scenario: Scenario, _argument: str) -> str:
    return "" if scenario.fabric.nccl.p2p else f"peer-to-peer is off on '{scenario.fabric.name}': p2p=on first"


def _graph(scenario: Scenario, given: bool) -> Scenario:
    fabric = scenario.fabric
    return replace(scenario, fabric=replace(fabric, nccl=replace(fabric.nccl, graph_file=given)))


def _channels(scenario: Scenario, argument: str) -> Scenario:
    if not argument.isdecimal() or not 1 <= int(argument) <= _MOST_CHANNELS:
        raise InputError(f"nccl=channels:{argument}: expected a number of channels from 1 to {_MOST_CHANNELS}")
    fabric = scenario.fabric
    return replace(
        scenario,
        fabric=replace(fabric, nccl=replace(fabric.nccl, min_channels=int(argument), max_channels=int(argument))),
    )


P2P_LEVEL: Final = Strategy(
    axis="nccl",
    name="p2p-level",
    argument="LOC, NVL, PIX, PXB, PHB or SYS",
    sentence="NCCL uses peer-to-peer up to this kind of path, host memory beyond",
    source="NVIDIA/nccl src/graph/paths.cc; local-inference-lab/rtx6kpro optimization/nccl-tuning.md",
    apply=_level,
    obstacle=_level_obstacle,
    turn_on=lambda argument: (Switch(engine="nccl", environment=(("NCCL_P2P_LEVEL", argument),)),),
    number="a hop through host memory is three traversals, peer to peer one",
    size="same",
    criticality="exposed",
    risk="some boxes say peer-to-peer works and hang at the first all-reduce or return wrong data",
    hurts="large all-to-all on boxes whose posted writes collapse; A40 boxes across sockets",
)

GRAPH_FILE: Final = Strategy(
    axis="nccl",
    name="graph",
    sentence="an NCCL_GRAPH_FILE gives NCCL the ring that its own search misses",
    source="local-inference-lab/rtx6kpro optimization/nccl-tuning.md (dual Turin: 48.2 -> 26.2 us at 32 KiB)",
    apply=lambda scenario, _: _graph(scenario, True),
    turn_on=lambda _: (
        Switch(engine="nccl", environment=(("NCCL_GRAPH_FILE", "graph.xml"),), note="pciesim nccl graph writes it"),
    ),
    number="same",
    size="LL where NCCL took Simple",
    criticality="exposed",
    risk="a wrong file stops NCCL at start-up",
    hurts="nothing where the search failed; it overrides a good search elsewhere",
)

NO_GRAPH_FILE: Final = Strategy(
    axis="nccl",
    name="no-graph",
    sentence="NCCL is left with what its own ring search finds",
    source=GRAPH_FILE.source,
    apply=lambda scenario, _: _graph(scenario, False),
    number="same",
    size="Simple where the search fails on two AMD sockets",
    criticality="exposed",
    risk="none",
    hurts="dual-socket boxes with compute capability 10.0 and later",
)

CHANNELS: Final = Strategy(
    axis="nccl",
    name="channels",
    argument="a number from 1 to 64",
    sentence="NCCL opens this many channels (thread blocks) for every call",
    source="rtx6kpro optimization/nccl-tuning.md (NCCL_MIN_NCHANNELS=8: 22.2 -> 37.6 GB/s at 32 MB)",
    apply=_channels,
    turn_on=lambda argument: (
        Switch(engine="nccl", environment=(("NCCL_MIN_NCHANNELS", argument), ("NCCL_MAX_NCHANNELS", argument))),
    ),
    number="same",
    size="same",
    criticality="exposed",
    risk="more thread blocks taken from compute that overlaps",
    hurts="never much; gains only where a few channels cannot fill the link",
)
