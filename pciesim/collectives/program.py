"""The second intermediate form: a collective lowered to transfers and local steps on one fabric.

A :class:`Program` is a directed acyclic graph. Both evaluators read it (``evaluate.simulate``, ``evaluate.estimate``)
and the symbolic proof runs it (``collectives.proof``), so what is timed is what is proved.

A :class:`Transfer` moves bytes between two ranks and carries its meaning: it reads a buffer of its source and writes
(or merges into) a buffer of its target. Its ``latency`` is paid first, without holding a link; then ``nbytes`` flow,
sharing the links. ``lanes`` identical channels are one transfer of that weight: in a fluid model they are the same
thing, exactly. ``behind`` keeps the pieces of one message in order on the wire: a piece flows once the one before it
has passed, while their latencies overlap. A :class:`Local` is work of one rank: the launch of its kernel, a reduction
of slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = ["Buffer", "Local", "Program", "Step", "Transfer"]

Buffer: TypeAlias = tuple[str, int]
"""A named piece of a rank's memory: ``("data", chunk)``, ``("slot", source rank)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes from rank ``source`` to rank ``target``, started once all steps in ``after`` are complete.

    ``uses`` are (constraint, coefficient) pairs of the fabric (see ``physics.RouteCosts.uses``); ``cap`` bounds the
    payload rate of all lanes together; ``behind`` is an earlier transfer on the same wire that passes first. ``read`` None is a flag without data. ``merge`` adds to what the target buffer
    holds, otherwise it is overwritten. ``traversals`` counts sequential one-way crossings.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Work of one rank for ``duration``: merges the buffers in ``reads`` into ``write``."""

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
    tensor ``("data", 0..chunks-1)`` stand for.
    """

    name: str
    ranks: int
    steps: tuple[Step, ...]
    capacity: tuple[BytesPerSecond, ...]
    chunks: int

    def __post_init__(self) -> None:
        for position, step in enumerate(self.steps):
            behind = step.behind if isinstance(step, Transfer) and step.behind is not None else -1
            if any(other >= position for other in (*step.after, behind)):
                raise ValueError(f"program '{self.name}': step {position} waits for a later step")

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
