"""Symbolic execution: does a program do what its collective promises, however its ranks are skewed?

Each rank's buffers hold sets of (call, rank, chunk) contributions instead of numbers. A sum must join disjoint sets, so
a contribution counted twice is caught where it happens; after every call each rank must hold what the collective
promises. Four things are shown:

1. **Right results** over three calls in a row, in program order and in random orders with random skew of the ranks.
2. **No race**: two accesses of one buffer, at least one a write, are ordered in every execution (not only those tried).
   This covers the reuse of slots and double buffers: no slot is overwritten before its readers are done.
3. **Only visible waits**: a rank waits for its own work and for what arrives in its own memory.
4. **No deadlock**, also where no message can be stored underway (rendezvous): every rank then works off its sends and
   receives one by one in program order, and a message needs both sides at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from pciesim.collectives.events import EventGraph, ProofError, event_graph
from pciesim.collectives.program import Buffer, Local, Program
from pciesim.schedule import CollectiveKind

__all__ = ["ProofError", "prove", "prove_race_free", "prove_rendezvous"]

Contributions: TypeAlias = frozenset[tuple[int, int, int]]
Memory: TypeAlias = dict[tuple[Buffer, int], Contributions]


def prove(program: Program, kind: CollectiveKind, *, calls: int = 3, orders: int = 3, seed: int = 0) -> None:
    """Proves a program.

    Runs ``calls`` calls in a row under the program's own order and ``orders - 1`` random ones. Raises ProofError when a
    contribution is lost, counted twice, or read before it is there; when accesses race; when a rank waits for what it
    cannot see; when rendezvous deadlocks.
    """
    inputs = [list(_input(program, kind, rank)) for rank in range(program.ranks)]
    results = [list(_wanted(program, kind, rank)) for rank in range(program.ranks)]
    graph = event_graph(program, calls=calls, inputs=inputs, results=results)
    prove_race_free(graph)
    prove_rendezvous(program)
    generator = random.Random(seed)
    for attempt in range(orders):
        _run(graph, kind, range(len(graph.events)) if attempt == 0 else _skewed(graph, generator))


# -- what a collective promises -------------------------------------------------------------------------------------


def _input(program: Program, kind: CollectiveKind, rank: int) -> dict[Buffer, tuple[int, int]]:
    """The user buffers of a rank before a call: the (rank, chunk) each holds."""
    match kind:
        case CollectiveKind.ALL_GATHER:
            return {("data", rank): (rank, rank)}
        case CollectiveKind.BROADCAST:
            return {("data", chunk): (0, chunk) for chunk in range(program.chunks)} if rank == 0 else {}
        case CollectiveKind.ALL_TO_ALL:
            return {("data", other): (rank, other) for other in range(program.ranks)}
        case _:
            return {("data", chunk): (rank, chunk) for chunk in range(program.chunks)}


def _wanted(program: Program, kind: CollectiveKind, rank: int) -> dict[Buffer, frozenset[tuple[int, int]]]:
    """The user buffers of a rank after a call: the (rank, chunk) contributions each must hold."""
    everyone = range(program.ranks)
    match kind:
        case CollectiveKind.ALL_GATHER:
            return {("data", other): frozenset({(other, other)}) for other in everyone}
        case CollectiveKind.REDUCE_SCATTER:
            return {("data", rank): frozenset((other, rank) for other in everyone)}
        case CollectiveKind.ALL_TO_ALL:  # a rank's own block never leaves it
            return {("out", other): frozenset({(other, rank)}) for other in everyone if other != rank}
        case CollectiveKind.SEND_RECV:
            return {("out", 0): frozenset({((rank - 1) % program.ranks, 0)})} if program.ranks > 1 else {}
        case CollectiveKind.BROADCAST:
            return {("data", chunk): frozenset({(0, chunk)}) for chunk in range(program.chunks)}
        case CollectiveKind.ALL_REDUCE:
            return {("data", chunk): frozenset((other, chunk) for other in everyone) for chunk in range(program.chunks)}


# -- symbolic execution ---------------------------------------------------------------------------------------------


def _skewed(graph: EventGraph, generator: random.Random) -> Iterable[int]:
    """A random order that the events allow, in which some ranks run far ahead of others."""
    eager = [generator.random() for _ in range(graph.program.ranks)]
    waiting = [len(direct) for direct in graph.before]
    followers: list[list[int]] = [[] for _ in graph.before]
    for number, direct in enumerate(graph.before):
        for other in direct:
            followers[other].append(number)
    ready = [number for number, count in enumerate(waiting) if count == 0]
    while ready:
        # The likelier half of the time the most eager rank moves, else anything that can.
        if generator.random() < 0.5:
            place = max(range(len(ready)), key=lambda each: eager[graph.events[ready[each]].rank])
        else:
            place = generator.randrange(len(ready))
        number = ready.pop(place)
        yield number
        for follower in followers[number]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)


def _run(graph: EventGraph, kind: CollectiveKind, order: Iterable[int]) -> None:
    program = graph.program
    memory: list[Memory] = [{} for _ in range(program.ranks)]
    flying: dict[tuple[int, int], list[Contributions]] = {}  # what a message carries, by (call, step)
    for rank in range(program.ranks):
        _fill(program, kind, rank, memory[rank], call=0)
    for number in order:
        event = graph.events[number]
        if event.kind in ("enter", "exit"):
            continue
        if event.kind == "use":
            _check_result(program, kind, event.rank, memory[event.rank], event.call)
            _fill(program, kind, event.rank, memory[event.rank], call=event.call + 1)
            continue
        step = program.steps[event.step]
        call = event.call
        if isinstance(step, Local):
            if step.write is not None:
                total: Contributions = frozenset()
                for buffer in step.reads:
                    total = _joined(program, event.step, total, _held(program, event, memory[step.rank], buffer))
                memory[step.rank][_place(program, step.write, call)] = total
            continue
        if event.kind == ("arrive" if step.pull else "issue"):
            flying[call, event.step] = [_held(program, event, memory[step.source], read) for read, _ in step.moves]
        if event.kind == ("take" if step.landing else "arrive"):
            for (_, write), moved in zip(step.moves, flying.pop((call, event.step)), strict=True):
                place = _place(program, write, call)
                held = memory[step.target].get(place, frozenset()) if step.merge else frozenset()
                memory[step.target][place] = _joined(program, event.step, held, moved)


def _place(program: Program, buffer: Buffer, call: int) -> tuple[Buffer, int]:
    return (buffer, 0 if buffer[0] in ("data", "out") else call % program.epochs)


def _fill(program: Program, kind: CollectiveKind, rank: int, memory: Memory, *, call: int) -> None:
    for place in [place for place in memory if place[0][0] in ("data", "out")]:
        del memory[place]  # the user has taken the result and reuses the memory
    for buffer, (source, chunk) in _input(program, kind, rank).items():
        memory[buffer, 0] = frozenset({(call, source, chunk)})


def _held(program: Program, event: object, memory: Memory, buffer: Buffer) -> Contributions:
    call, step = event.call, event.step  # type: ignore[attr-defined]
    try:
        return memory[_place(program, buffer, call)]
    except KeyError:
        raise ProofError(f"'{program.name}' step {step} reads {buffer} before anything is there") from None


def _joined(program: Program, position: int, one: Contributions, other: Contributions) -> Contributions:
    if twice := one & other:
        raise ProofError(f"'{program.name}' step {position} counts {sorted(twice)} twice")
    return one | other


def _check_result(program: Program, kind: CollectiveKind, rank: int, memory: Memory, call: int) -> None:
    for buffer, contributions in _wanted(program, kind, rank).items():
        wanted = frozenset((call, source, chunk) for source, chunk in contributions)
        held = memory.get((buffer, 0), frozenset())
        if held != wanted:
            raise ProofError(
                f"'{program.name}' call {call} leaves rank {rank} without {sorted(wanted - held)} in {buffer}"
                + (f" but with {sorted(held - wanted)}" if held - wanted else "")
            )


# -- races and deadlock ---------------------------------------------------------------------------------------------


def prove_race_free(graph: EventGraph) -> None:
    """Shows that conflicting accesses of every buffer are ordered in every execution. Raises ProofError."""
    ancestors = graph.ancestors()
    by_place: dict[tuple[int, tuple[Buffer, int]], list[int]] = {}
    for number, access in enumerate(graph.accesses):
        by_place.setdefault((access.rank, access.buffer), []).append(number)
    for (rank, (buffer, _)), numbers in by_place.items():
        touching = [graph.accesses[number] for number in numbers]
        for position, one in enumerate(touching):
            for other in touching[position + 1 :]:
                if not (one.writes or other.writes) or (one.begin, one.end) == (other.begin, other.end):
                    continue
                if not (ancestors[other.begin] >> one.end & 1 or ancestors[one.begin] >> other.end & 1):
                    raise ProofError(_race(graph, rank, buffer, one.end, other.end))


def _race(graph: EventGraph, rank: int, buffer: Buffer, one: int, other: int) -> str:
    told = [
        f"{event.kind} of step {event.step} in call {event.call}" for event in (graph.events[one], graph.events[other])
    ]
    return f"'{graph.program.name}': {told[0]} and {told[1]} touch {buffer} of rank {rank} in no fixed order"


def prove_rendezvous(program: Program) -> None:
    """Shows that the program ends though no message is stored underway. Raises ProofError.

    Every rank works off its own steps one by one in program order; a transfer moves when both its ranks stand at it.
    """
    lists: list[list[int]] = [[] for _ in range(program.ranks)]
    for position, step in enumerate(program.steps):
        for rank in {step.rank} if isinstance(step, Local) else {step.source, step.target}:
            lists[rank].append(position)
    at = [0] * program.ranks
    done = [False] * len(program.steps)
    ready = list(range(program.ranks))
    while ready:
        rank = ready.pop()
        if at[rank] >= len(lists[rank]):
            continue
        position = lists[rank][at[rank]]
        step = program.steps[position]
        ranks = {step.rank} if isinstance(step, Local) else {step.source, step.target}
        here = all(at[each] < len(lists[each]) and lists[each][at[each]] == position for each in ranks)
        if here and all(done[other] for other in step.after):
            done[position] = True
            for each in ranks:
                at[each] += 1
            ready.extend(_woken(lists, at, ranks))
    if not all(done):
        stuck: Sequence[int] = [position for position, over in enumerate(done) if not over]
        raise ProofError(f"'{program.name}' deadlocks under rendezvous: {len(stuck)} steps left, first {stuck[0]}")


def _woken(lists: list[list[int]], at: list[int], ranks: set[int]) -> list[int]:
    """Ranks that may move now: those that have just moved; a partner looks again when its turn comes."""
    return [rank for rank in ranks if at[rank] < len(lists[rank])]
