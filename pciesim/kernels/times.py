"""The answer of a kernel lookup: a time, the range that holds it, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pciesim.units import Seconds

__all__ = ["KernelSource", "KernelTime", "Spread"]


class KernelSource(StrEnum):
    """How a kernel time was obtained, from strongest to weakest."""

    MEASURED = "measured"  # this GPU, backend, precision and shape
    INTERPOLATED = "interpolated"  # between measured shapes of this GPU, backend and precision
    BORROWED = "borrowed"  # another engine, backend, shape family or GPU; ``detail`` says how it was scaled
    ROOFLINE = "roofline"  # launch floor + bytes or FLOP at achieved rates
    ASSUMED = "assumed"  # no measurement of this kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Relative half-widths of a range: value x (1 - below) to value x (1 + above), for about 90 % of cases."""

    below: float
    above: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """Seconds one kernel occupies its stream inside a CUDA graph.

    ``floor`` is the time in which the datasheet's memory bandwidth could move the bytes that the kernel must move; no
    time is below it. ``detail`` is one line for a person: the rows used and what was done to them.
    """

    value: Seconds
    low: Seconds
    high: Seconds
    source: KernelSource
    detail: str
    floor: Seconds

    @classmethod
    def around(cls, value: Seconds, spread: Spread, *, source: KernelSource, detail: str, floor: Seconds) -> KernelTime:
        """A time with a relative range, all of it at or above the floor."""
        value = max(value, floor)
        return cls(
            value=value,
            low=max(value * (1 - spread.below), floor),
            high=value * (1 + spread.above),
            source=source,
            detail=detail,
            floor=floor,
        )
