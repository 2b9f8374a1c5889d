"""Staged permutations: in every round each rank sends to one peer and receives from one.

One stream out and one in per port at any time, where all-at-once exchanges make a switch's posted writes collapse. With
a power of two of ranks round d pairs r with r XOR d, which keeps crossings between islands balanced; otherwise r sends
to r + d. A round ends with a fenced flag: the next one starts when the peer's data is in.
"""

from __future__ import annotations

from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost
from pciesim.collectives.program import Buffer
from pciesim.collectives.steps import Steps
from pciesim.collectives.task import Lowered, Task
from pciesim.schedule import CollectiveKind

__all__ = ["STAGED", "lower_staged", "peer_in_round"]

_NAME: Final = "staged-permutation"


def peer_in_round(rank: int, number: int, n: int) -> int:
    """The rank that ``rank`` sends to in round ``number`` (1 to n - 1)."""
    return rank ^ number if n & (n - 1) == 0 else (rank + number) % n


def lower_staged(task: Task, *, name: str = _NAME) -> Lowered:
    """n - 1 rounds for an all-to-all, all-gather or reduce-scatter; twice as many for an all-reduce."""
    steps, n, kind = Steps(task), len(task.gpus), task.kind
    done = [wait[0] for wait in steps.launch(task.costs.push.base)]
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER):
        done = _reduce_scatter(steps, done)
    if kind is not CollectiveKind.REDUCE_SCATTER:
        shard = task.nbytes if kind is CollectiveKind.ALL_GATHER else task.nbytes / n
        for number in range(1, n):
            got = list(done)
            for rank in steps.ranks:
                peer = peer_in_round(rank, number, n)
                move: tuple[Buffer, Buffer] = (("data", rank), ("data", rank))
                nbytes = shard
                if kind is CollectiveKind.ALL_TO_ALL:
                    move, nbytes = (("data", peer), ("out", rank)), task.block(rank, peer)
                got[peer] = steps.store(rank, peer, nbytes, after=(done[rank],), fenced=True, moves=[move])
            done = [steps.local(rank, after=(done[rank], got[rank])) for rank in steps.ranks]
    return steps.lowered(name, "fenced flags", chunks=n, epochs=2)


def _reduce_scatter(steps: Steps, done: list[int]) -> list[int]:
    task, n = steps.task, len(steps.task.gpus)
    launched = list(done)
    arrived: list[list[int]] = [[each] for each in done]
    for number in range(1, n):
        got = list(done)
        for rank in steps.ranks:
            peer = peer_in_round(rank, number, n)
            got[peer] = steps.store(rank, peer, task.nbytes / n, after=(launched[rank], done[rank]), fenced=True,
                                    landing=False, moves=[(("data", peer), ("slot", rank))])  # fmt: skip
        for rank in steps.ranks:
            arrived[rank].append(got[rank])
        done = [steps.local(rank, after=(done[rank], got[rank])) for rank in steps.ranks]
    return [
        steps.local(rank, after=(done[rank], *arrived[rank]), write=("data", rank), duration=task.costs.phase,
                    reads=[("data", rank), *(("slot", other) for other in steps.ranks if other != rank)])
        for rank in steps.ranks
    ]  # fmt: skip


STAGED: Final = AlgorithmEntry(
    lower=lower_staged,
    costs={
        CollectiveKind.ALL_REDUCE: Cost(traversals="4*(n-1)", messages="2*(n-1)", nbytes="2*(n-1)/n*S"),
        CollectiveKind.REDUCE_SCATTER: Cost(traversals="2*(n-1)", messages="n-1", nbytes="(n-1)/n*S"),
        CollectiveKind.ALL_GATHER: Cost(traversals="2*(n-1)", messages="n-1", nbytes="(n-1)*S"),
        CollectiveKind.ALL_TO_ALL: Cost(traversals="2*(n-1)", messages="n-1", nbytes="(n-1)/n*S"),
    },
    about="rounds in which every port has one stream out and one in; immune to the collapse of posted writes",
    source="flashinfer-ai/flashinfer PR 4393 (STAGED_RING)",
)
