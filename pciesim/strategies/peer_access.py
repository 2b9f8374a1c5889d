"""Peer-to-peer and its way: driver on or off, and whether switches may turn traffic around (ACS)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.fabric import DeviceKind
from pciesim.scenario import Scenario
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["ACS_OFF", "ACS_ON", "P2P_OFF", "P2P_ON"]


def _p2p(scenario: Scenario, on: bool) -> Scenario:
    fabric = scenario.fabric
    access = () if on else fabric.peer_access
    return replace(scenario, fabric=replace(fabric, nccl=replace(fabric.nccl, p2p=on), peer_access=access))


def _driver(scenario: Scenario, _argument: str) -> str:
    if scenario.gpu.pcie_p2p:
        return ""
    return f"the stock driver refuses peer-to-peer over PCIe on {scenario.gpu.name} (a patched one exists)"


def _acs(scenario: Scenario, redirect: bool) -> Scenario:
    return replace(scenario, fabric=replace(scenario.fabric, acs_redirect=redirect))


def _switched(scenario: Scenario, _argument: str) -> str:
    if scenario.fabric.of_kind(DeviceKind.SWITCH):
        return ""
    return f"'{scenario.fabric.name}' has no switch whose traffic ACS could redirect"


_DOC = "NVIDIA/nccl docs troubleshooting; local-inference-lab/rtx6kpro hardware/ (bidirectional 50 -> 103 GB/s)"

P2P_ON: Final = Strategy(
    axis="p2p",
    name="on",
    sentence="GPUs reach each other's memory directly",
    source="luigifcruz/stelline (4x RTX 6000 Ada: 10-14 -> 1.2-1.4 us); NVIDIA/nccl issue 1603",
    apply=lambda scenario, _: _p2p(scenario, True),
    obstacle=_driver,
    turn_on=lambda _: (
        Switch(engine="box", note="IOMMU off (amd_iommu=off), BIOS large BAR; RTX 4090 and 3090 need a patched driver"),
    ),
    number="a hop through host memory is three traversals, a direct one is one",
    size="one crossing of each link instead of two",
    criticality="exposed",
    risk="wrong data or hangs on some boxes (2x RTX 3090 on Z390; Core Ultra 5 245T with NCCL 2.30): test first",
    hurts="all-to-all on boxes whose posted writes collapse",
)

P2P_OFF: Final = Strategy(
    axis="p2p",
    name="off",
    sentence="everything goes through host memory",
    source=P2P_ON.source,
    apply=lambda scenario, _: _p2p(scenario, False),
    turn_on=lambda _: (Switch(engine="nccl", environment=(("NCCL_P2P_DISABLE", "1"),)),),
    number="three traversals a hop",
    size="twice through the links",
    criticality="exposed",
    risk="none: the way out where peer-to-peer hangs",
    hurts="every collective",
)

ACS_OFF: Final = Strategy(
    axis="acs",
    name="off",
    sentence="switches send peer traffic straight to the peer",
    source=_DOC,
    apply=lambda scenario, _: _acs(scenario, False),
    obstacle=_switched,
    turn_on=lambda _: (
        Switch(engine="box", note="setpci -s <bridge> ECAP_ACS+0x6.w=0000 on switch ports, or ACS off in the BIOS"),
    ),
    number="same",
    size="off the uplinks",
    criticality="exposed",
    risk="gives up isolation between virtual machines",
    hurts="nothing else",
)

ACS_ON: Final = Strategy(
    axis="acs",
    name="on",
    sentence="switches send peer traffic up to the root complex and back",
    source=_DOC,
    apply=lambda scenario, _: _acs(scenario, True),
    obstacle=_switched,
    number="same",
    size="twice over the uplinks",
    criticality="exposed",
    risk="none",
    hurts="every transfer inside a switch",
)
