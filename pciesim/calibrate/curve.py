"""A measured curve of latency by size, and what another one would have to be to matter."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from pciesim.units import Bytes, Seconds

__all__ = ["Curve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Latency by size, sizes rising. Between them log-log interpolation; below the first its latency holds.

    Above the last the bytes take as long each as between the last two (at least as long as the last on average).
    """

    name: str
    points: tuple[tuple[int, Seconds], ...]

    def latency(self, nbytes: Bytes) -> Seconds:
        """The latency of a message."""
        sizes = [size for size, _ in self.points]
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
