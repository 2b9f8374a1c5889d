"""Weighted max-min fair sharing of capacities among flows, with its certificate. Pure mathematics.

A flow f has a weight w_f > 0, a private cap c_f, and uses constraint l with coefficient a_fl >= 0. Rates x_f solve

    sum over f of a_fl * x_f <= C_l        for every constraint l
    x_f <= c_f                             for every flow f

and are max-min fair: no x_f / w_f can grow without shrinking one that is as small or smaller. The solution is unique.

**Progressive filling.** Raise the level t of all unfixed flows together (x_f = w_f * t) until a constraint or a cap
binds, fix the flows it binds, subtract what they use, go on. At most (flows) rounds.

**Certificate.** Rates are optimal if and only if each flow is at its cap, or crosses a saturated constraint on which
no flow has a larger x / w (Bertsekas and Gallager, Data Networks, section 6.5.2). :func:`violations` checks it without
solving anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Flow", "components", "max_min", "violations"]

_TOLERANCE: Final = 1e-12  # relative; two levels closer than this bind together


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """``uses`` holds (constraint index, coefficient > 0); a flow without uses needs a finite cap."""

    uses: tuple[tuple[int, float], ...]
    weight: float = 1.0
    cap: float = math.inf


def max_min(capacity: Sequence[float], flows: Sequence[Flow]) -> list[float]:
    """Rates of the flows, in their order.

    Raises ValueError when a flow is bounded by nothing.
    """
    residual = list(capacity)
    demand = [0.0] * len(capacity)  # what the unfixed flows use of each constraint per unit of level
    crossing: list[list[int]] = [[] for _ in capacity]
    for position, flow in enumerate(flows):
        if not flow.uses and math.isinf(flow.cap):
            raise ValueError(f"flow {position} is bounded by no constraint and no cap")
        for constraint, coefficient in flow.uses:
            demand[constraint] += coefficient * flow.weight
            crossing[constraint].append(position)
    rates = [-1.0] * len(flows)
    unfixed = len(flows)
    active = [constraint for constraint, users in enumerate(crossing) if users]
    while unfixed:
        level = min(
            (residual[constraint] / demand[constraint] for constraint in active),
            default=math.inf,
        )
        level = min(
            level, min((f.cap / f.weight for f, x in zip(flows, rates, strict=True) if x < 0), default=math.inf)
        )
        threshold = level * (1 + _TOLERANCE)
        bound = {
            position
            for constraint in active
            if residual[constraint] <= threshold * demand[constraint]
            for position in crossing[constraint]
            if rates[position] < 0
        }
        bound.update(p for p, flow in enumerate(flows) if rates[p] < 0 and flow.cap <= threshold * flow.weight)
        for position in bound:
            flow = flows[position]
            rates[position] = min(flow.weight * level, flow.cap)
            for constraint, coefficient in flow.uses:
                residual[constraint] -= coefficient * rates[position]
                demand[constraint] -= coefficient * flow.weight
        unfixed -= len(bound)
        # Subtraction leaves dust where a constraint has no unfixed flow left: recognise it by its users, not its sum.
        active = [c for c in active if any(rates[position] < 0 for position in crossing[c])]
        for constraint in active:
            residual[constraint] = max(residual[constraint], 0.0)
    return rates


def components(flows: Sequence[Flow]) -> list[list[int]]:
    """Groups of flows that share no constraint with each other, each in the flows' order.

    Rates of one group do not depend on the others: when a flow starts or ends, only its group has to be solved again.
    """
    group_of: dict[int, int] = {}  # constraint -> a group that uses it
    parent: list[int] = []

    def root(group: int) -> int:
        while parent[group] != group:
            parent[group] = parent[parent[group]]
            group = parent[group]
        return group

    for position, flow in enumerate(flows):
        parent.append(position)
        for constraint, _ in flow.uses:
            other = group_of.setdefault(constraint, position)
            parent[root(position)] = root(other)
    members: dict[int, list[int]] = {}
    for position in range(len(flows)):
        members.setdefault(root(position), []).append(position)
    return list(members.values())


def violations(
    capacity: Sequence[float], flows: Sequence[Flow], rates: Sequence[float], *, tolerance: float = 1e-9
) -> list[str]:
    """What is wrong with a set of rates, in words; empty when they are the max-min fair ones."""
    wrong: list[str] = []
    load = [0.0] * len(capacity)
    largest = [0.0] * len(capacity)
    for flow, rate in zip(flows, rates, strict=True):
        for constraint, coefficient in flow.uses:
            load[constraint] += coefficient * rate
            largest[constraint] = max(largest[constraint], rate / flow.weight)
    for constraint, (used, limit) in enumerate(zip(load, capacity, strict=True)):
        if used > limit * (1 + tolerance):
            wrong.append(f"constraint {constraint} carries {used} of {limit}")
    for position, (flow, rate) in enumerate(zip(flows, rates, strict=True)):
        if rate > flow.cap * (1 + tolerance):
            wrong.append(f"flow {position} runs at {rate} above its cap {flow.cap}")
        capped = rate >= flow.cap * (1 - tolerance)
        bottleneck = any(
            load[constraint] >= capacity[constraint] * (1 - tolerance)
            and rate / flow.weight >= largest[constraint] * (1 - tolerance)
            for constraint, _ in flow.uses
        )
        if not capped and not bottleneck:
            wrong.append(f"flow {position} at {rate} has no bottleneck")
    return wrong
