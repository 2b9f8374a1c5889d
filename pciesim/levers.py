"""The largest costs of a step that could be removed, and by what. Each saving is computed, not quoted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pciesim.errors import PciesimError
from pciesim.evaluate.collective import CollectiveTimer, Timed
from pciesim.kernels import KernelTime
from pciesim.prediction import Lever
from pciesim.profile import Interval
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, CollectiveKind, Compute, Kernel, Schedule

__all__ = ["find_levers"]

_ALTERNATIVES: Final = ("oneshot-push", "oneshot-pull", "nccl")


def find_levers(
    scenario: Scenario,
    timer: CollectiveTimer,
    timed: Mapping[Collective, Timed],
    counts: Mapping[Collective, int],
    kernels: Mapping[Kernel, KernelTime],
    schedule: Schedule,
) -> tuple[Lever, ...]:
    """The three that save most, largest first."""
    found = [
        *_other_all_reduce(timer, timed, counts),
        *_mended_nccl(scenario, timer, timed, counts),
        *_expert_kernel(kernels, schedule),
        *_host(scenario),
    ]
    return tuple(sorted(found, key=lambda lever: -lever.saves.value)[:3])


def _calls(timed: Mapping[Collective, Timed], counts: Mapping[Collective, int]) -> list[tuple[Collective, float, int]]:
    return [
        (op, each.latency, counts[op])
        for op, each in timed.items()
        if op.kind is CollectiveKind.ALL_REDUCE
    ]


def _other_all_reduce(
    timer: CollectiveTimer, timed: Mapping[Collective, Timed], counts: Mapping[Collective, int]
) -> Iterable[Lever]:
    calls = _calls(timed, counts)
    options = []
    for name in _ALTERNATIVES:
        try:
            saved = sum((latency - timer.time(name, op.kind, op.nbytes).latency) * n for op, latency, n in calls)
        except PciesimError:
            continue  # cannot run on this box
        options.append((saved, name))
    if options and (best := max(options))[0] > 0:
        saved, name = best
        op = calls[0][0]
        before, after = timed[op].lowered.program, timer.time(name, op.kind, op.nbytes).lowered.program
        yield Lever(
            what=f"all-reduce: {before.traversals} -> {after.traversals} traversals a call",
            how=f"--allreduce {name}",
            saves=Interval.exact(saved),
            caveat="a kernel that the stock engine refuses on this box; needs a patched engine and peer-to-peer",
        )


def _mended_nccl(
    scenario: Scenario, timer: CollectiveTimer, timed: Mapping[Collective, Timed], counts: Mapping[Collective, int]
) -> Iterable[Lever]:
    """NCCL with peer-to-peer everywhere and a ring that its search did not find."""
    nccl = scenario.fabric.nccl
    uses_nccl = any(each.lowered.algorithm.startswith("NCCL") for each in timed.values())
    if not nccl.p2p or not uses_nccl or (nccl.graph_file and nccl.p2p_level == "SYS"):
        return
    mended = replace(scenario.fabric, nccl=replace(nccl, p2p_level="SYS", graph_file=True))
    other = replace(timer, fabric=mended)
    saved = sum(
        (latency - other.time("nccl", op.kind, op.nbytes).latency) * n for op, latency, n in _calls(timed, counts)
    )
    if saved > 0:
        yield Lever(
            what="NCCL's transport and ring",
            how="--nccl NCCL_P2P_LEVEL=SYS and an NCCL_GRAPH_FILE with the ring it did not find",
            saves=Interval.exact(saved),
            caveat="check peer-to-peer for right data first: some boxes say it works and hang or corrupt",
        )


def _expert_kernel(kernels: Mapping[Kernel, KernelTime], schedule: Schedule) -> Iterable[Lever]:
    total = floor = 0.0
    for op in schedule.ops:
        if isinstance(op, Compute) and op.category is Category.EXPERTS:
            total += kernels[op.kernel].value
            floor += kernels[op.kernel].floor
    if total > 2 * floor:
        yield Lever(
            what="routed-expert kernels",
            how="another MoE backend; at most down to their bytes at memory bandwidth",
            saves=Interval(value=total - floor, low=0.0, high=total - floor),
            caveat="an upper bound: no measured kernel reaches it at this batch",
        )


def _host(scenario: Scenario) -> Iterable[Lever]:
    host = scenario.profile.parameter(scenario.engine.host_parameter)
    yield Lever(
        what="host time between steps",
        how="overlap scheduling, a faster CPU core, performance governor",
        saves=Interval(value=host.value, low=0.0, high=host.high),
        caveat="an upper bound, and the least certain figure of the profile",
    )
