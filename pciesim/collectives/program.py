"""The second intermediate form: a collective lowered to transfers and local steps on one fabric.

A :class:`Program` is a directed acyclic graph. Both evaluators read it (``evaluate.simulate``, ``evaluate.estimate``)
and the symbolic proof runs it (``collectives.proof``), so what is timed is what is proved.

A :class:`Transfer` moves bytes between two ranks and carries its meaning: it reads a buffer of its source and writes
(or merges into) a buffer of its target. Its ``latency`` is paid first, without holding a link; then ``nbytes`` flow,
sharing the links. ``lanes`` identical channels are one transfer of that weight: in a fluid model they are the same
thing, exactly. ``behind`` keeps the pieces of one message in order on the wire: a piece flows once the one before it
has passed, while their latencies overlap. A :class:`Local` is work of one rank: the launch of its kernel, a reduction
of slots.

**Who acts.** A store is issued by its source and seen by its target; a load (``pull``) is issued and seen by its
target, and its source takes no part. A message with ``landing`` arrives in a slot of its own and is taken from there by
the target's kernel: a first-in-first-out of ``credits`` slots whose sender waits for credit (NCCL), or, without
credits, one of the ``epochs`` slot sets that calls use in turn (sentinels, flags in packets). The proof
(``collectives.events``) turns these words into events; the evaluators need none of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = ["Buffer", "Local", "Program", "Step", "Transfer"]

Buffer: TypeAlias = tuple[str, int]
"""A named piece of a rank's memory.

``("data", chunk)`` is the user's tensor and ``("out", rank)`` what arrives beside it; every other name
(``("slot", source rank)``) is communication memory, of which a program has ``epochs`` sets.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes from rank ``source`` to rank ``target``, started once all steps in ``after`` are complete.

    ``uses`` are (constraint, coefficient) pairs of the fabric (see ``physics.RouteCosts.uses``); ``cap`` bounds the
    payload rate of all lanes together; ``behind`` is an earlier transfer on the same wire that passes first. ``read``
    None is a flag without data. ``merge`` adds to what the target buffer holds, otherwise it is overwritten.
    ``traversals`` counts sequential one-way crossings.
    """

    source: int
    target: int
    nbytes: Bytes
    latency: Seconds
    uses: tuple[tuple[int, float], ...]
    after: tuple[int, ...]
    traversals: int
    read: Buffer | None = None
    write: Buffer | None = None
    merge: bool = False
    behind: int | None = None
    lanes: int = 1
    cap: BytesPerSecond = math.inf
    pull: bool = False
    landing: bool = False
    credits: int = 0
    also: tuple[tuple[Buffer, Buffer], ...] = ()

    @property
    def actor(self) -> int:
        """The rank whose kernel issues it."""
        return self.target if self.pull else self.source

    @property
    def moves(self) -> tuple[tuple[Buffer, Buffer], ...]:
        """Every (buffer read at the source, buffer written at the target)."""
        if self.read is None or self.write is None:
            return self.also
        return ((self.read, self.write), *self.also)


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Work of one rank for ``duration``: the sum of the buffers in ``reads`` replaces what is in ``write``."""

    rank: int
    duration: Seconds
    after: tuple[int, ...] = ()
    reads: tuple[Buffer, ...] = ()
    write: Buffer | None = None


Step: TypeAlias = Transfer | Local


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Steps in an order in which every step comes after those it waits for.

    ``capacity`` are the fabric's links and constraints, as ``uses`` counts them. ``chunks`` is how many pieces of the
    tensor ``("data", 0..chunks-1)`` stand for. ``epochs`` is the number of sets of communication memory that calls in a
    row take in turn. ``phases`` are the steps by their depth in the graph.
    """

    name: str
    ranks: int
    steps: tuple[Step, ...]
    capacity: tuple[BytesPerSecond, ...]
    chunks: int
    epochs: int = 1
    phases: tuple[tuple[int, ...], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        depth: list[int] = []
        phases: list[list[int]] = []
        for position, step in enumerate(self.steps):
            level = -1
            for other in step.after:
                if other >= position:
                    raise ValueError(f"program '{self.name}': step {position} waits for a later step")
                level = max(depth[other], level)
            if isinstance(step, Transfer) and step.behind is not None:
                if step.behind >= position:
                    raise ValueError(f"program '{self.name}': step {position} is behind a later step")
                level = max(depth[step.behind], level)
            level += 1
            depth.append(level)
            if level == len(phases):
                phases.append([])
            phases[level].append(position)
        object.__setattr__(self, "phases", tuple(map(tuple, phases)))

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The steps that cross wires."""
        return tuple(step for step in self.steps if isinstance(step, Transfer))

    @property
    def traversals(self) -> int:
        """Sequential one-way traversals on the longest chain of steps."""
        depth: list[int] = []
        for step in self.steps:
            own = step.traversals if isinstance(step, Transfer) else 0
            depth.append(own + max((depth[other] for other in step.after), default=0))
        return max(depth, default=0)

    def link_bytes(self) -> dict[int, Bytes]:
        """Capacity-seconds each constraint must carry: coefficient times payload, summed."""
        carried: dict[int, Bytes] = {}
        for transfer in self.transfers:
            for constraint, coefficient in transfer.uses:
                carried[constraint] = carried.get(constraint, 0.0) + coefficient * transfer.nbytes
        return carried
