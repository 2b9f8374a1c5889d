"""An all-reduce of one's own, known by its measured latencies alone: a curve, and a program that takes as long.

What such a kernel sends where is not known, so its program holds no link and counts no traversals. Its messages are
there for their meaning: what is timed is proved like any other algorithm.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from pciesim.collectives.program import Buffer, Transfer
from pciesim.collectives.steps import Steps, Waits
from pciesim.collectives.task import Lowered, Task
from pciesim.errors import InputError
from pciesim.scenario import OwnKernel
from pciesim.units import Bytes, Seconds, format_bytes

__all__ = ["BEYOND", "Curve", "lower_own"]

BEYOND: Final = 2
"""How far a curve is believed outside the sizes that were measured, as a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Latency by size, sizes rising. Between them log-log interpolation; below the first its latency holds.

    Above the last the bytes take as long each as between the last two (a single size: as that one on average). Both
    reach as far as a factor of two: a protocol may change there.
    """

    name: str
    points: tuple[tuple[int, Seconds], ...]

    @property
    def title(self) -> str:
        """As outputs name the algorithm."""
        return f"own kernel ({self.name})"

    def latency(self, nbytes: Bytes) -> Seconds:
        """The latency of a message. Raises InputError beyond twice the range that was measured."""
        sizes = [size for size, _ in self.points]
        if not sizes[0] / BEYOND <= nbytes <= sizes[-1] * BEYOND:
            raise InputError(
                f"the curve '{self.name}' goes from {format_bytes(sizes[0])} to {format_bytes(sizes[-1])} and is "
                f"believed as far as a factor of {BEYOND} beyond; measure an all-reduce of {format_bytes(nbytes)} too"
            )
        if nbytes <= sizes[0]:
            return self.points[0][1]
        at = bisect_left(sizes, nbytes)
        if at == len(sizes):
            size, time = self.points[-1]
            before = self.points[-2] if len(self.points) > 1 else (0, 0.0)
            slope = max((time - before[1]) / (size - before[0]), 0.0)
            return time + slope * (nbytes - size)
        (small, fast), (large, slow) = self.points[at - 1], self.points[at]
        share = math.log(nbytes / small) / math.log(large / small)
        return float(fast * (slow / fast) ** share)


def lower_own(kernel: OwnKernel, task: Task) -> Lowered:
    """A sum that takes what the curve says: every rank hears from every other after that time, and adds.

    Raises InputError for a size that the curve does not reach.
    """
    steps, duration = Steps(task), kernel.latency(task.nbytes)
    heard: Waits = [() for _ in steps.ranks]
    for source in steps.ranks:
        for target in steps.ranks:
            if target == source:
                continue
            heard[target] = (*heard[target], len(steps.steps))
            steps.steps.append(
                Transfer(source=source, target=target, nbytes=0.0, latency=duration, uses=(), after=(), traversals=0,
                         read=("data", 0), write=("slot", source))
            )  # fmt: skip
    for rank in steps.ranks:
        slots: list[Buffer] = [("slot", other) for other in steps.ranks if other != rank]
        steps.local(rank, after=heard[rank], reads=[("data", 0), *slots], write=("data", 0))
    reason = "its latency is the curve's; its bytes and traversals are not known and not counted"
    return steps.lowered(kernel.title, "measured", chunks=1, epochs=2, reason=reason, transport="own")
