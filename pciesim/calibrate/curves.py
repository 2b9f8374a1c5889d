"""Curves of latency by size: what does not lie on them, and where they switch protocol.

A curve is one dataset, group, algorithm and collective. Two rules, both on neighbours in size:

- an *outlier* grew faster than its bytes (by more than ``SUPERLINEAR``) and the next size is faster again: no protocol
  does that (71.2 us at 64 KB between 15.6 at 32 and 24.7 at 128);
- a *switch* is a size after which a larger message is faster: the library changed protocol later than it should have
  (512 KiB slower than 1 MiB on eight GPUs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pciesim.calibrate.points import Point
from pciesim.units import Bytes

__all__ = ["Oddity", "curves", "oddities", "without_outliers"]

SUPERLINEAR: Final = 1.5  # times the ratio of sizes
FASTER: Final = 0.97  # of the smaller message's latency

Key: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], tuple[int, ...], str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """A point off its curve, or the size after which a curve drops. ``outlier`` points are kept out of fits."""

    dataset: str
    kind: str
    gpus: int
    nbytes: Bytes
    outlier: bool
    text: str


def curves(points: Iterable[Point]) -> list[list[Point]]:
    """Points by curve, each sorted by size."""
    found: dict[Key, list[Point]] = {}
    for point in points:
        key = (point.dataset, point.topology, point.nccl, point.gpus, point.algorithm, str(point.kind))
        found.setdefault(key, []).append(point)
    return [sorted(curve, key=lambda point: point.nbytes) for curve in found.values()]


def oddities(points: Iterable[Point]) -> tuple[Oddity, ...]:
    """Outliers and switches of all curves."""
    return tuple(oddity for curve in curves(points) for oddity in _of_curve(curve))


def without_outliers(points: Sequence[Point]) -> tuple[tuple[Point, ...], tuple[Oddity, ...]]:
    """The points with the outliers kept out of fits, and what was found."""
    found = oddities(points)
    out = {(each.dataset, each.kind, each.gpus, each.nbytes) for each in found if each.outlier}
    kept = tuple(
        replace(point, fitted=False)
        if (point.dataset, str(point.kind), len(point.gpus), point.nbytes) in out
        else point
        for point in points
    )
    return kept, found


def _of_curve(curve: Sequence[Point]) -> list[Oddity]:
    found: list[Oddity] = []
    for before, here, after in zip(curve, curve[1:], curve[2:], strict=False):
        if after.latency >= FASTER * here.latency:
            continue
        growth = here.latency / before.latency
        outlier = growth > SUPERLINEAR * here.nbytes / before.nbytes
        text = (
            f"{here.latency / before.latency:.1f} times the latency of {here.nbytes / before.nbytes:g} times fewer "
            "bytes, and the next size is faster"
            if outlier
            else f"the next size is faster ({after.latency / here.latency - 1:+.0%}): a switch of protocol"
        )
        found.append(
            Oddity(dataset=here.dataset, kind=str(here.kind), gpus=len(here.gpus), nbytes=here.nbytes,
                   outlier=outlier, text=text)
        )  # fmt: skip
    return found
