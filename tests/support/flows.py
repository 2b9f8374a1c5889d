"""Flows in few words, on machines wired by hand with round figures (copy share 0.9, see support.profiles)."""

from __future__ import annotations

from pciesim.contention import Rules
from pciesim.fabric import Fabric
from pciesim.flows import FlowSpec, FlowsResult, run_flows
from pciesim.physics import RouteCosts
from tests.support.profiles import round_profile

COSTS = RouteCosts.of(round_profile())
IDEAL = Rules.ideal()
ONE_WAY_LOSS = Rules(head_of_line=False, collapse=False)  # what is sent back, and nothing else


def flow(source: int, target: int, cap: float = float("inf")) -> FlowSpec:
    return FlowSpec(source=f"GPU{source}", target=f"GPU{target}", cap=cap)


def flows(*pairs: tuple[int, int]) -> list[FlowSpec]:
    return [flow(*pair) for pair in pairs]


def run(fabric: Fabric, specs: list[FlowSpec] | tuple[FlowSpec, ...], **options: object) -> FlowsResult:
    return run_flows(fabric, COSTS, specs, **options)  # type: ignore[arg-type]
