"""Symbolic execution: does a program do what its collective promises, in every order the waits allow?

Each rank's buffers hold sets of (rank, chunk) contributions instead of numbers. A merge must join disjoint sets, so a
contribution counted twice is caught where it happens; at the end every rank must hold what the collective promises.
Steps may run in any order their waits allow, so a missing wait shows as a wrong set under some order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeAlias

from pciesim.collectives.program import Buffer, Local, Program, Transfer
from pciesim.schedule import CollectiveKind

__all__ = ["ProofError", "prove"]

Contributions: TypeAlias = frozenset[tuple[int, int]]


class ProofError(AssertionError):
    """The program breaks its promise; says at which step and how."""


def prove(program: Program, kind: CollectiveKind, *, orders: int = 4, seed: int = 0) -> None:
    """Runs a program symbolically under its own order and ``orders - 1`` random ones.

    Raises ProofError when a contribution is lost, counted twice, or read before it is there.
    """
    generator = random.Random(seed)
    for attempt in range(orders):
        _check_result(program, kind, _run(program, kind, _order(program, generator if attempt else None)))


def _order(program: Program, generator: random.Random | None) -> Iterable[int]:
    if generator is None:
        return range(len(program.steps))
    waiting = [len(_waits(step)) for step in program.steps]
    followers: list[list[int]] = [[] for _ in program.steps]
    for position, step in enumerate(program.steps):
        for other in _waits(step):
            followers[other].append(position)
    ready = [position for position, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        position = ready.pop(generator.randrange(len(ready)))
        order.append(position)
        for follower in followers[position]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    if len(order) != len(program.steps):
        raise ProofError(f"'{program.name}' deadlocks after {len(order)} of {len(program.steps)} steps")
    return order


def _waits(step: Transfer | Local) -> tuple[int, ...]:
    if isinstance(step, Transfer) and step.behind is not None:
        return (*step.after, step.behind)
    return step.after


def _initial(program: Program, kind: CollectiveKind, rank: int) -> dict[Buffer, Contributions]:
    if kind is CollectiveKind.ALL_GATHER:
        return {("data", rank): frozenset({(rank, rank)})}
    return {("data", chunk): frozenset({(rank, chunk)}) for chunk in range(program.chunks)}


def _run(program: Program, kind: CollectiveKind, order: Iterable[int]) -> list[dict[Buffer, Contributions]]:
    memory = [_initial(program, kind, rank) for rank in range(program.ranks)]
    for position in order:
        step = program.steps[position]
        if isinstance(step, Local):
            if step.write is not None:
                own = memory[step.rank].get(step.write, frozenset())
                for buffer in step.reads:
                    own = _joined(program, position, own, _held(program, position, memory[step.rank], buffer))
                memory[step.rank][step.write] = own
        elif step.read is not None and step.write is not None:
            moved = _held(program, position, memory[step.source], step.read)
            if step.merge:
                moved = _joined(program, position, memory[step.target].get(step.write, frozenset()), moved)
            memory[step.target][step.write] = moved
    return memory


def _held(program: Program, position: int, memory: dict[Buffer, Contributions], buffer: Buffer) -> Contributions:
    try:
        return memory[buffer]
    except KeyError:
        raise ProofError(f"'{program.name}' step {position} reads {buffer} before anything is there") from None


def _joined(program: Program, position: int, one: Contributions, other: Contributions) -> Contributions:
    if twice := one & other:
        raise ProofError(f"'{program.name}' step {position} counts {sorted(twice)} twice")
    return one | other


def _check_result(program: Program, kind: CollectiveKind, memory: list[dict[Buffer, Contributions]]) -> None:
    everyone = range(program.ranks)
    for rank in everyone:
        if kind is CollectiveKind.ALL_GATHER:
            wanted = {("data", other): frozenset({(other, other)}) for other in everyone}
        elif kind is CollectiveKind.REDUCE_SCATTER:
            wanted = {("data", rank): frozenset((other, rank) for other in everyone)}
        else:
            wanted = {
                ("data", chunk): frozenset((other, chunk) for other in everyone) for chunk in range(program.chunks)
            }
        for buffer, contributions in wanted.items():
            held = memory[rank].get(buffer, frozenset())
            if held != contributions:
                lost = sorted(contributions - held)
                raise ProofError(f"'{program.name}' leaves rank {rank} without {lost} in {buffer}")
