"""Pairwise rounds over powers of two, pushed with sentinels.

Recursive doubling: in round d every rank swaps its whole partial sum with the rank 2^d away: log2 n traversals and
tensors. Halving-doubling (Rabenseifner): the reduce-scatter halves what is exchanged each round, the all-gather doubles
it again: 2 log2 n traversals, 2 (n-1)/n of a tensor. Near partners (within a switch) come first in the first half, so
the large halves stay near. Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", 2005; NVRAR, arXiv 2511.09557.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost, Needs
from pciesim.collectives.program import Buffer
from pciesim.collectives.steps import Steps
from pciesim.collectives.task import Lowered, Task
from pciesim.schedule import CollectiveKind
from pciesim.units import Seconds

__all__ = ["HALVING", "RECURSIVE", "lower_halving", "lower_recursive"]


def lower_recursive(task: Task) -> Lowered:
    """All-reduce by swapping partial sums; all-gather by swapping what has been gathered."""
    steps, n = Steps(task), len(task.gpus)
    done = [wait[0] for wait in steps.launch(task.costs.push.base)]
    rounds = n.bit_length() - 1
    if task.kind is CollectiveKind.ALL_GATHER:
        for number in range(rounds):
            done = _swap(steps, done, number, partial(_block, number), merge=False)
        return steps.lowered("recursive-doubling", "sentinel", chunks=n, epochs=2)
    for number in range(rounds):
        held: Buffer = ("partial", number) if number else ("data", 0)
        got = [
            steps.store(rank ^ (1 << number), rank, task.nbytes, after=(done[rank ^ (1 << number)],), landing=False,
                        moves=[(held, ("slot", number))])
            for rank in steps.ranks
        ]  # fmt: skip
        write: Buffer = ("partial", number + 1) if number < rounds - 1 else ("data", 0)
        done = [
            steps.local(rank, after=(done[rank], got[rank]), reads=[held, ("slot", number)], write=write,
                        duration=_pause(task, number, rounds))
            for rank in steps.ranks
        ]  # fmt: skip
    return steps.lowered("recursive-doubling", "sentinel", chunks=1, epochs=2)


def lower_halving(task: Task) -> Lowered:
    """Recursive halving, then recursive doubling; reduce-scatter and all-gather are its halves."""
    steps, n = Steps(task), len(task.gpus)
    rounds = n.bit_length() - 1
    done = [wait[0] for wait in steps.launch(task.costs.push.base)]
    if task.kind is not CollectiveKind.ALL_GATHER:
        for number in range(rounds):
            done = _swap(steps, done, number, partial(_other_side, n, number),
                         merge=True)  # fmt: skip
    if task.kind is not CollectiveKind.REDUCE_SCATTER:
        for number in reversed(range(rounds)):
            done = _swap(steps, done, number, partial(_side, n, number), merge=False)
    return steps.lowered("halving-doubling", "sentinel", chunks=n, epochs=2)


def _swap(steps: Steps, done: list[int], number: int, chunks: Callable[[int], list[int]], *, merge: bool) -> list[int]:
    """One round: every rank sends ``chunks(rank)`` to the rank 2^number away."""
    task, n = steps.task, len(steps.task.gpus)
    unit = task.nbytes if task.kind is CollectiveKind.ALL_GATHER else task.nbytes / n
    found = []
    for rank in steps.ranks:
        source = rank ^ (1 << number)
        carried = chunks(source)
        found.append(
            steps.store(source, rank, unit * len(carried), after=(done[source],), merge=merge,
                        moves=[(("data", chunk), ("data", chunk)) for chunk in carried])
        )  # fmt: skip
    return [steps.local(rank, after=(done[rank], found[rank]), duration=steps.task.costs.phase) for rank in steps.ranks]


def _other_side(n: int, number: int, rank: int) -> list[int]:
    """What a rank sends in round ``number`` of the halving: its partner's side of the chunks that it still sums."""
    return _side(n, number, rank ^ (1 << number))


def _side(n: int, number: int, rank: int) -> list[int]:
    """Chunks that agree with the rank in bits 0..number."""
    mask = (2 << number) - 1
    return [chunk for chunk in range(n) if (chunk ^ rank) & mask == 0]


def _block(number: int, rank: int) -> list[int]:
    """What a rank has gathered before round ``number``: the shards of ranks that agree with it above that bit."""
    first = rank >> number << number
    return list(range(first, first + (1 << number)))


def _pause(task: Task, number: int, rounds: int) -> Seconds:
    return task.costs.phase if number < rounds - 1 else 0.0


_POWER: Final = Needs(power_of_two=True)
_SOURCE: Final = "Thakur, Rabenseifner, Gropp 2005; NVRAR arXiv 2511.09557"

RECURSIVE: Final = AlgorithmEntry(
    lower=lower_recursive,
    costs={
        CollectiveKind.ALL_REDUCE: Cost(traversals="log2(n)", messages="log2(n)", nbytes="log2(n)*S"),
        CollectiveKind.ALL_GATHER: Cost(traversals="log2(n)", messages="log2(n)", nbytes="(n-1)*S"),
    },
    about="log2 n swaps of the whole partial sum, near partners first",
    source=_SOURCE,
    needs=_POWER,
)
HALVING: Final = AlgorithmEntry(
    lower=lower_halving,
    costs={
        CollectiveKind.ALL_REDUCE: Cost(traversals="2*log2(n)", messages="2*log2(n)", nbytes="2*(n-1)/n*S"),
        CollectiveKind.REDUCE_SCATTER: Cost(traversals="log2(n)", messages="log2(n)", nbytes="(n-1)/n*S"),
        CollectiveKind.ALL_GATHER: Cost(traversals="log2(n)", messages="log2(n)", nbytes="(n-1)*S"),
    },
    about="recursive halving, then doubling: as few bytes as a ring in 2 log2 n steps",
    source=_SOURCE,
    needs=_POWER,
)
