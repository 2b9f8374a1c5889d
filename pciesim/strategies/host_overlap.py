"""Overlap scheduling: the host prepares the next pass while the GPUs run this one. Hides host time only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pciesim.scenario import Scenario
from pciesim.schedule import Compute, Host, Op, Schedule
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["HOST_OVERLAP", "HostBeside"]

_HOST_STREAM: Final = 9  # any number that no engine uses for kernels


@dataclass(frozen=True, slots=True)
class HostBeside:
    """Runs the host's work beside the GPU streams: a step lasts as long as the longer of both."""

    def __call__(self, schedule: Schedule) -> Schedule:
        """The schedule with its host ops on a stream of their own that waits for nothing."""
        hosts = [_is_host(op) for op in schedule.ops]
        return Schedule(
            ops=tuple(
                replace(op, stream=_HOST_STREAM) if host else op for op, host in zip(schedule.ops, hosts, strict=True)
            ),
            after=tuple(
                () if host else tuple(other for other in waits if not hosts[other])
                for waits, host in zip(schedule.after, hosts, strict=True)
            ),
        )


def _is_host(op: Op) -> bool:
    # What an engine loses around each draft pass is not known to be the host's: it stays.
    return isinstance(op, Compute) and isinstance(op.kernel, Host) and op.kernel.place == "step"


def _obstacle(scenario: Scenario, _argument: str) -> str:
    if scenario.speculation is not None:
        return ""
    return (
        f"{scenario.engine.title} overlaps plain decode by default: the profile's {scenario.engine.host_parameter} was "
        "fitted with that on and is what it leaves"
    )


HOST_OVERLAP: Final = Strategy(
    axis="host",
    name="overlap",
    sentence="batch preparation, result processing and planning run beside the GPU work (SGLang's spec v2)",
    source="SGLang managers/scheduler.py event_loop_overlap; speculative/eagle_worker_v2.py",
    apply=lambda scenario, _: replace(scenario, transforms=(*scenario.transforms, HostBeside())),
    obstacle=_obstacle,
    turn_on=lambda _: (
        Switch(engine="sglang", since="0.5.9", until="0.5.22", environment=(("SGLANG_ENABLE_SPEC_V2", "1"),)),
        Switch(engine="sglang", since="0.5.23", note="nothing to set: 0.5.23 has spec v2 only"),
    ),
    number="same",
    size="same",
    criticality="same: drafts, verify and their all-reduces stay serial on one stream; only the host is hidden",
    risk="experimental in 0.5.9",
    hurts="never, but it hides no collective",
)
