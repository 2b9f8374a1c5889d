"""One question, whole: the machine, the model, the work, the engine and the calibration. Strategies map it to another.

Everything in it is frozen; a changed scenario is a new value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

from pciesim.fabric import Fabric
from pciesim.hardware import GpuType
from pciesim.kernels import KernelTime
from pciesim.model import ModelSpec
from pciesim.profile import Interval, Profile
from pciesim.schedule import EngineSpec, Kernel, Schedule, Speculation
from pciesim.units import Bytes, Seconds
from pciesim.workload import Parallelism, Workload

__all__ = ["KernelClock", "OwnKernel", "Scenario", "ScheduleTransform"]


class KernelClock(Protocol):
    """How long a kernel takes on one GPU type, by whatever tables there are."""

    def time(self, kernel: Kernel) -> KernelTime:
        """Value, interval and source of one kernel's time."""

    def gap(self) -> KernelTime:
        """What a kernel costs in a step beyond its stand-alone time."""


_ONE: Final = Interval.exact(1.0)


class ScheduleTransform(Protocol):
    """A change of the ops of a pass: a pure function, and a frozen value, so that scenarios stay memo keys."""

    def __call__(self, schedule: Schedule) -> Schedule:
        """The changed schedule."""


class OwnKernel(Protocol):
    """A measured all-reduce of one's own: a frozen value, so that scenarios stay memo keys."""

    @property
    def title(self) -> str:
        """As outputs name the algorithm, and ``Scenario.allreduce`` asks for it."""

    def latency(self, nbytes: Bytes) -> Seconds:
        """One call. Raises InputError for a size too far from those measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``gpus`` are the fabric's device names in rank order; ``allreduce`` is ``auto`` (the engine's rule), a name,
    or the title of ``own``.

    ``speculation`` drafts tokens in every decode iteration, which then ``yields`` each sequence that many tokens (a
    property of model and prompts, not of the box). ``transforms`` change the schedule the engine would issue,
    in order; strategies add them.
    """

    fabric: Fabric
    gpus: tuple[str, ...]
    gpu: GpuType
    model: ModelSpec
    workload: Workload
    parallelism: Parallelism
    engine: EngineSpec
    profile: Profile
    clock: KernelClock
    allreduce: str = "auto"
    own: OwnKernel | None = None
    speculation: Speculation | None = None
    yields: Interval = _ONE
    transforms: tuple[ScheduleTransform, ...] = ()

    @property
    def sequences(self) -> int:
        """Sequences that the whole box decodes in a step: of all replicas and of all interleaved batches."""
        batches: int = math.prod(getattr(transform, "batches", 1) for transform in self.transforms)
        return self.workload.batch * self.parallelism.dp * batches

    def transformed(self, schedule: Schedule) -> Schedule:
        """A schedule after all transforms."""
        for transform in self.transforms:
            schedule = transform(schedule)
        return schedule
