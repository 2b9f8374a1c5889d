"""Which GPUs a replica uses when it needs fewer than the box has."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Final

from pciesim.errors import InputError
from pciesim.fabric import Fabric
from pciesim.physics import RouteCosts

__all__ = ["choose_gpus"]

_MAX_SUBSETS: Final = 20_000  # 16 GPUs choose 8 is 12,870: all are looked at; beyond that, runs of neighbours only


def choose_gpus(fabric: Fabric, count: int, costs: RouteCosts) -> tuple[tuple[str, ...], str]:
    """The ``count`` GPUs whose farthest pair is nearest, and how they were chosen, in words.

    Ties go to the smaller sum over pairs, then to the lower numbers. Raises InputError when there are fewer.
    """
    names = [gpu.name for gpu in fabric.gpus]
    if count > len(names):
        raise InputError(f"{count} GPUs are needed, '{fabric.name}' has {len(names)}")
    if count == len(names):
        return tuple(names), "all GPUs of the topology"
    distance = {(a, b): costs.store(fabric.route(names[a], names[b])) for a, b in combinations(range(len(names)), 2)}
    subsets = (
        combinations(range(len(names)), count)
        if comb(len(names), count) <= _MAX_SUBSETS
        else (tuple(range(first, first + count)) for first in range(len(names) - count + 1))
    )

    def spread(subset: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
        pairs = [distance[pair] for pair in combinations(subset, 2)]
        return max(pairs, default=0.0), sum(pairs), subset

    best = min(subsets, key=spread)
    return tuple(names[index] for index in best), "the GPUs with the shortest farthest pair"
