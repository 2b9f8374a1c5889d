"""MSCCL++ packets: each has its flag beside the data, so data needs no barrier and no fence, and twice the bytes.

All-pairs with 8-byte packets (4 data, 4 flag) up to 16 KiB; beyond, a reduce-scatter and an all-gather with 16-byte
packets (8 data, 8 flag).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pciesim.collectives import twoshot
from pciesim.collectives.entry import AlgorithmEntry, Cost
from pciesim.collectives.steps import Steps
from pciesim.collectives.task import Lowered, Task
from pciesim.schedule import CollectiveKind
from pciesim.units import KIB

__all__ = ["ALL_PAIRS", "MSCCLPP", "TWO_PHASE", "lower_all_pairs", "lower_mscclpp"]

_FLAGS: Final = 2.0  # bytes on the wire per byte of data
_ALL_PAIRS_LIMIT: Final = 16 * KIB


def lower_all_pairs(task: Task) -> Lowered:
    """Every rank pushes its tensor in packets to every peer."""
    costs, steps, n = task.costs.push, Steps(task), len(task.gpus)
    waits = steps.launch(costs.base)
    launched = list(waits)
    for distance in range(1, n):
        for source in steps.ranks:
            target = (source + distance) % n
            position = steps.store(source, target, task.nbytes, after=launched[source], landing=False,
                                   share=costs.share / _FLAGS, moves=[(("data", 0), ("slot", source))])  # fmt: skip
            waits[target] = (*waits[target], position)
    for rank in steps.ranks:
        slots = [("slot", other) for other in steps.ranks if other != rank]
        steps.local(rank, after=waits[rank], reads=[("data", 0), *slots], write=("data", 0))
    return steps.lowered("mscclpp-allpairs", "LL8 packets", chunks=1, epochs=2)


_lower_two_phase: Final = partial(
    twoshot.lower_push, expansion=_FLAGS, name="mscclpp-2phase", protocol="LL16 packets"
)  # fmt: skip


def lower_mscclpp(task: Task) -> Lowered:
    """The library's choice by size."""
    return lower_all_pairs(task) if task.nbytes <= _ALL_PAIRS_LIMIT else _lower_two_phase(task)


_ALL_REDUCE: Final = CollectiveKind.ALL_REDUCE
_PAIRS: Final = {_ALL_REDUCE: Cost(traversals="1", messages="n-1", nbytes="(n-1)*S")}
_PHASES: Final = {_ALL_REDUCE: Cost(traversals="2", messages="2*(n-1)", nbytes="2*(n-1)/n*S")}
_SOURCE: Final = "microsoft/mscclpp allreduce_packet, allpair and 2-phase (1f5f065d)"

ALL_PAIRS: Final = AlgorithmEntry(
    lower=lower_all_pairs, costs=_PAIRS, source=_SOURCE,
    about="all pairs in 8-byte packets, half of them flags: one traversal, twice the bytes",
)  # fmt: skip
TWO_PHASE: Final = AlgorithmEntry(
    lower=_lower_two_phase, costs=_PHASES, source=_SOURCE,
    about="reduce-scatter and all-gather in 16-byte packets, half of them flags",
)  # fmt: skip
MSCCLPP: Final = AlgorithmEntry(
    lower=lower_mscclpp,
    costs={
        _ALL_REDUCE: Cost(
            traversals="1 if S <= 16384 else 2",
            messages="n-1 if S <= 16384 else 2*(n-1)",
            nbytes="(n-1)*S if S <= 16384 else 2*(n-1)/n*S",
        )
    },
    about="mscclpp-allpairs up to 16 KiB, mscclpp-2phase beyond",
    source=_SOURCE,
)
