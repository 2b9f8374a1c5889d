"""Scenarios for what-if questions, on shipped and hand-wired boxes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from pciesim.api import load_scenario
from pciesim.profile import Evidence, Parameter, Profile
from pciesim.scenario import Scenario
from pciesim.units import GB


@cache
def scenario(topo: str = "rtx6000x8", model: str = "qwen35_397b", *, tp: int | None = None, batch: int = 1,
             engine: str = "sglang") -> Scenario:  # fmt: skip
    found, _ = load_scenario(
        topo=topo, model=model, tp=tp, batch=batch, context=1024, gpus=None, engine=engine, allreduce="auto",
        profile=None, overlay=None, nccl=None,
    )  # fmt: skip
    return found


def at_no_cost(given: Scenario) -> Scenario:
    """The same with every communication parameter zero and wires without end: only compute and launches remain."""
    free = {name: 0.0 for name, _ in given.profile.parameters if not name.startswith(("host.", "draft."))}
    free |= {name: 1.0 for name in free if name.startswith("share.") or name.endswith(".share")}
    free |= {name: math.inf for name in free if name.endswith("_channel")}
    free |= {"nccl.smooth": math.inf, "nccl.tree.thread_share": 1.0, "overlap.nvl": 1.0, "overlap.pcie": 1.0}
    parameters = tuple(
        (name, Parameter(value=free[name], low=free[name], high=free[name], evidence=Evidence.ASSUMED, source="free"))
        if name in free
        else (name, parameter)
        for name, parameter in given.profile.parameters
    )
    fabric = replace(
        given.fabric,
        links=tuple(replace(link, bandwidth=1e9 * GB * GB) for link in given.fabric.links),
        constraints=(),
    )
    profile = Profile(name="free", gpu=given.profile.gpu, description="no communication costs", parameters=parameters)
    return replace(given, fabric=fabric, profile=profile)
