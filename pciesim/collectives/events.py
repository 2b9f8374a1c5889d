"""A program, called several times in a row, as events whose order can be reasoned about.

Each step becomes what its ranks do and see::

    local                 work(r)
    store, source -> target    issue(source) -> arrive(target) [-> take(target), where it lands in a slot]
    load, target <- source     issue(target) -> arrive(target)

``a before b`` holds where b waits for a, where a kernel does both in that order (it takes and adds after what it has
sent, taken and added before; it sends as soon as what a message waits for is there), where a first-in-first-out has no
free slot until a has been taken, and along chains of these. Kernels of one rank run one after the other; those of
different ranks do not: a rank may be a whole call ahead of another, which is why communication memory comes in
``epochs`` sets. Between two calls the user of rank r reads the result and writes the next input: one event.

A rank may wait only for what it can see: its own work and what arrived in its own memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from pciesim.collectives.program import Buffer, Local, Program, Transfer
from pciesim.errors import PciesimError

__all__ = ["Access", "Event", "EventGraph", "ProofError", "event_graph"]

USER_BUFFERS = frozenset({"data", "out"})


class ProofError(AssertionError):
    """The program breaks its promise; says at which step and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """``kind`` is ``enter``, ``work``, ``issue``, ``arrive``, ``take``, ``exit`` or ``use``; ``rank`` does it."""

    kind: str
    call: int
    rank: int
    step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A buffer of ``rank`` touched some time from event ``begin`` to event ``end`` (numbers)."""

    rank: int
    buffer: tuple[Buffer, int]
    begin: int
    end: int
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventGraph:
    """Events in an order that respects ``before`` (numbers of direct predecessors), and what they touch."""

    program: Program
    events: tuple[Event, ...]
    before: tuple[tuple[int, ...], ...]
    accesses: tuple[Access, ...]
    slot_of: tuple[tuple[Buffer, int], ...]  # landing slot and its set, by event number of a take (else empty)

    def ancestors(self) -> list[int]:
        """For each event the set of those that come before it (and itself), as a bit mask."""
        found: list[int] = []
        for number, direct in enumerate(self.before):
            mask = 1 << number
            for other in direct:
                mask |= found[other]
            found.append(mask)
        return found


class _Builder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.events: list[Event] = []
        self.before: list[list[int]] = []
        self.accesses: list[Access] = []
        self.slots: dict[int, tuple[Buffer, int]] = {}
        self.queues: dict[tuple[int, int], list[int]] = {}  # takes of each first-in-first-out so far

    def add(self, event: Event, before: list[int]) -> int:
        self.events.append(event)
        self.before.append(before)
        return len(self.events) - 1

    def place(self, buffer: Buffer, call: int) -> tuple[Buffer, int]:
        return (buffer, 0 if buffer[0] in USER_BUFFERS else call % self.program.epochs)

    def touch(self, rank: int, place: tuple[Buffer, int], begin: int, end: int, *, writes: bool) -> None:
        self.accesses.append(Access(rank=rank, buffer=place, begin=begin, end=end, writes=writes))

    def call(self, number: int, inputs: list[list[Buffer]], results: list[list[Buffer]], free: list[int]) -> list[int]:
        """One call; ``free`` are the events after which each rank may enter. Returns the same for the next call."""
        program = self.program
        enter = [
            self.add(Event(kind="enter", call=number, rank=rank), [free[rank]] if free else [])
            for rank in range(program.ranks)
        ]
        done: list[int] = []  # event at which each step is complete, to those who can see it
        acts: list[list[int]] = [[each] for each in enter]  # what must be over before a rank leaves
        issued: list[list[int]] = [[] for _ in enter]  # what each kernel has sent, taken and added so far
        for position, step in enumerate(program.steps):
            waits = [done[other] for other in step.after]
            self._check_sight(position, step)
            if isinstance(step, Local):
                event = self.add(Event(kind="work", call=number, rank=step.rank, step=position),
                                 [enter[step.rank], *waits, *issued[step.rank]])  # fmt: skip
                issued[step.rank].append(event)
                for buffer in step.reads:
                    self.touch(step.rank, self.place(buffer, number), event, event, writes=False)
                if step.write is not None:
                    self.touch(step.rank, self.place(step.write, number), event, event, writes=True)
                acts[step.rank].append(event)
                done.append(event)
                continue
            done.append(self._transfer((number, position), step, enter, waits, issued))
            acts[step.target].append(done[-1])
        leave = [
            self.add(Event(kind="exit", call=number, rank=rank), [*acts[rank], *issued[rank]])
            for rank in range(program.ranks)
        ]
        use = [self.add(Event(kind="use", call=number, rank=rank), [leave[rank]]) for rank in range(program.ranks)]
        for rank, event in enumerate(use):
            for buffer in inputs[rank]:
                self.touch(rank, (buffer, 0), event, event, writes=True)
            for buffer in results[rank]:
                self.touch(rank, (buffer, 0), event, event, writes=False)
        return use

    def _transfer(
        self, place: tuple[int, int], step: Transfer, enter: list[int], waits: list[int], issued: list[list[int]]
    ) -> int:
        call, position = place
        actor = step.actor
        queue = self.queues.setdefault((step.source, step.target), []) if step.landing and step.credits else []
        credit = [queue[-step.credits]] if len(queue) >= step.credits > 0 else []
        issue = self.add(Event(kind="issue", call=call, rank=actor, step=position), [enter[actor], *waits, *credit])
        issued[actor].append(issue)
        end = arrive = self.add(Event(kind="arrive", call=call, rank=step.target, step=position), [issue])
        if step.landing:
            # The target's kernel takes the message once it runs, in the order of its own program.
            end = self.add(
                Event(kind="take", call=call, rank=step.target, step=position),
                [arrive, enter[step.target], *issued[step.target], *queue[-1:]],
            )
            slot: tuple[Buffer, int] = (("landing", position), call % self.program.epochs)
            if step.credits:
                slot = ((f"fifo {step.source}", len(queue) % step.credits), 0)
                queue.append(end)
            issued[step.target].append(end)
            self.slots[end] = slot
            self.touch(step.target, slot, issue, arrive, writes=True)
            self.touch(step.target, slot, end, end, writes=False)
        for read, write in step.moves:
            self.touch(step.source, self.place(read, call), issue, arrive if step.pull else issue, writes=False)
            self.touch(step.target, self.place(write, call), end if step.landing else issue, end, writes=True)
        return end

    def _check_sight(self, position: int, step: Local | Transfer) -> None:
        observer = step.rank if isinstance(step, Local) else step.actor
        for other in step.after:
            cause = self.program.steps[other]
            seen_by = cause.rank if isinstance(cause, Local) else cause.target
            if seen_by != observer:
                raise ProofError(
                    f"'{self.program.name}' step {position}: rank {observer} waits for step {other}, which only rank "
                    f"{seen_by} can see"
                )


def event_graph(program: Program, *, calls: int, inputs: list[list[Buffer]], results: list[list[Buffer]]) -> EventGraph:
    """The events of ``calls`` calls in a row.

    ``inputs`` and ``results`` list the user buffers of each rank that the caller writes before and reads after a call.
    Raises ProofError where a rank waits for something that it cannot see.
    """
    if calls < 1:
        raise PciesimError(f"{calls} calls")
    builder = _Builder(program)
    free: list[int] = []
    for number in range(calls):
        free = builder.call(number, inputs, results, free)
    return EventGraph(
        program=program,
        events=tuple(builder.events),
        before=tuple(tuple(each) for each in builder.before),
        accesses=tuple(builder.accesses),
        slot_of=tuple(builder.slots.get(number, (("", 0), 0)) for number in range(len(builder.events))),
    )
