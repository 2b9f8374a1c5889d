"""Islands: GPUs that reach each other without the link that all islands share. Found in the fabric, by rank."""

from __future__ import annotations

from collections import defaultdict

from pciesim.collectives.task import Task
from pciesim.fabric import DeviceKind

__all__ = ["equal_islands"]


def equal_islands(task: Task) -> tuple[tuple[int, ...], ...] | None:
    """The coarsest partition of the ranks into two or more islands of one size of at least two, or None.

    Sockets before switch chips before single switches (or partitions of a chip). Ranks of an island are in rank order,
    islands by their lowest rank.
    """
    for keys in (_sockets(task), _switches(task, chips=True), _switches(task, chips=False)):
        groups: dict[object, list[int]] = defaultdict(list)
        for rank, key in enumerate(keys):
            groups[key].append(rank)
        sizes = {len(members) for members in groups.values()}
        if len(groups) > 1 and len(sizes) == 1 and sizes.pop() > 1:
            return tuple(tuple(members) for members in groups.values())
    return None


def _sockets(task: Task) -> list[object]:
    """The root complexes' socket: NUMA nodes of one socket are one island only where no socket link lies between."""
    fabric = task.fabric
    keys: list[object] = []
    for gpu in task.gpus:
        near = next(
            (
                place
                for place, other in enumerate(task.gpus)
                if other == gpu or not fabric.route(gpu, other, nvlink=False).socket_hops
            )
        )
        keys.append(near)
    return keys


def _switches(task: Task, *, chips: bool) -> list[object]:
    fabric = task.fabric
    above = {
        link.source: link.target for link in fabric.links if fabric.device(link.target).kind is DeviceKind.SWITCH
        and fabric.device(link.source).kind is DeviceKind.GPU
    }  # fmt: skip
    keys: list[object] = []
    for gpu in task.gpus:
        switch = above.get(gpu)
        chip = fabric.device(switch).chip if switch else ""
        keys.append(chip if chips and chip else switch or gpu)
    return keys
