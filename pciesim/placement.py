"""Which GPUs a replica uses when it needs fewer than the box has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Final

from pciesim.errors import InputError
from pciesim.fabric import Fabric
from pciesim.physics import RouteCosts

__all__ = ["choose_gpus", "farthest", "farthest_replica"]

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


def farthest_replica(
    fabric: Fabric, first: tuple[str, ...], count: int, costs: RouteCosts
) -> tuple[tuple[str, ...], str]:
    """Of ``count`` replicas as wide as ``first``, placed one after the other, the one whose GPUs are farthest apart."""
    groups = [first]
    for _ in range(count - 1):
        taken = {name for group in groups for name in group}
        left = replace(
            fabric,
            devices=tuple(each for each in fabric.devices if each.name not in taken),
            links=tuple(link for link in fabric.links if not taken & {link.source, link.target}),
            matrix=(),
            nic_matrix=(),
            constraints=(),
            peer_access=(),
        )
        groups.append(choose_gpus(left, len(first), costs)[0])
    return farthest(fabric, groups, costs), f"of {count} replicas the one whose GPUs are farthest apart"


def farthest(fabric: Fabric, groups: Sequence[tuple[str, ...]], costs: RouteCosts) -> tuple[str, ...]:
    """The group with the farthest pair: the slowest replica."""

    def spread(group: tuple[str, ...]) -> float:
        return max((costs.store(fabric.route(a, b)) for a, b in combinations(group, 2)), default=0.0)

    return max(groups, key=spread)
