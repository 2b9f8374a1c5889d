"""Routed experts whose weights stayed in L2 while a benchmark repeated them: the same rows as a step pays them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.kernels.roofline import achieved_bandwidth
from pciesim.kernels.tables import Curve, Donor
from pciesim.kernels.work import work
from pciesim.schedule import RoutedExperts
from pciesim.units import Bytes

__all__ = ["GONE", "KEPT", "as_cold"]

# Shares of L2: weights up to KEPT of it were all found there, of more than GONE none. FP8 rows of RTX PRO 6000 run at
# several times the memory's speed up to 113 of 134 MB and at the memory's from 151 MB on.
KEPT: Final = 0.85
GONE: Final = 1.25


def as_cold(curve: Curve, kernel: RoutedExperts, table: str, donor: Donor, rows: str) -> Curve:
    """A curve over tokens with the time that its weights need from device memory.

    ``table`` names its share of that time which the benchmark did not see (``experts_cold`` of the constants, 0 where
    none is stated); ``kernel`` is any kernel of the curve's shape.
    """
    share = donor.constants.experts_cold.get(table.removeprefix("moe/"), 0.0)
    if not share:
        return curve
    bandwidth = achieved_bandwidth(donor.gpu, donor.constants)

    def more(tokens: float) -> float:
        one = replace(kernel, tokens=max(1, round(tokens)), group=1, alike=0.0)
        weights = work(one, rows).weights
        return share * _kept(weights, donor.gpu.l2) * weights / bandwidth

    seconds = tuple(each + more(tokens) for tokens, each in zip(curve.points, curve.seconds, strict=True))
    return replace(curve, seconds=seconds)


def _kept(weights: Bytes, l2: Bytes) -> float:
    """The part of the weights that a repeated kernel finds in L2."""
    return min(1.0, max(0.0, (GONE - weights / l2) / (GONE - KEPT)))
