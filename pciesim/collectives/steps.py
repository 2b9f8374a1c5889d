"""Writing a lowering down: stores, loads, flags and local work between the ranks of a task, with their route costs.

Phases are lists by rank of the steps that the rank waits for before it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from pciesim.collectives.program import Buffer, Local, Program, Step, Transfer
from pciesim.collectives.task import Lowered, Task
from pciesim.physics import Engine
from pciesim.units import Bytes, Seconds

__all__ = ["Steps", "Waits"]

Waits: TypeAlias = list[tuple[int, ...]]
"""By rank: the steps to wait for."""


class Steps:
    """Collects the steps of one program. ``wire`` scales every message (a compressed format)."""

    __slots__ = ("_uses", "steps", "task", "wire")

    def __init__(self, task: Task, *, wire: float = 1.0) -> None:
        self.task = task
        self.wire = wire
        self.steps: list[Step] = []
        self._uses: dict[tuple[int, int, Engine, float], tuple[tuple[int, float], ...]] = {}

    @property
    def ranks(self) -> range:
        """Every rank."""
        return range(len(self.task.gpus))

    def launch(self, duration: Seconds, *, stage: Iterable[tuple[Buffer, Buffer]] = ()) -> Waits:
        """The kernel's fixed cost on every rank; ``stage`` are (user buffer, copy) pairs of every rank."""
        waits: Waits = [(self.local(rank, duration=duration),) for rank in self.ranks]
        for rank in self.ranks:
            for read, write in stage:
                waits[rank] = (*waits[rank], self.local(rank, after=waits[rank][:1], reads=(read,), write=write))
        return waits

    def local(
        self,
        rank: int,
        *,
        after: Sequence[int] = (),
        reads: Sequence[Buffer] = (),
        write: Buffer | None = None,
        duration: Seconds = 0.0,
    ) -> int:
        """Work of one rank: the sum of ``reads`` goes to ``write``."""
        return self._add(Local(rank=rank, duration=duration, after=tuple(after), reads=tuple(reads), write=write))

    def store(
        self,
        source: int,
        target: int,
        nbytes: Bytes,
        *,
        after: Sequence[int],
        moves: Sequence[tuple[Buffer, Buffer]],
        merge: bool = False,
        landing: bool = True,
        share: float = 1.0,
        engine: Engine = Engine.STORE,
        fenced: bool = False,
    ) -> int:
        """A message written into the target's memory, which polls it there; ``share`` of an isolated flow's rate.

        ``fenced`` adds the drain and the flag of a protocol whose data does not carry its own flag.
        """
        routes = self.task.costs.routes
        route = self.task.fabric.route(self.task.gpus[source], self.task.gpus[target])
        latency = routes.store(route) + (self.task.costs.fence(route) if fenced else 0.0)
        return self._add(
            Transfer(
                source=source,
                target=target,
                nbytes=nbytes * self.wire,
                latency=latency,
                uses=self.uses(source, target, engine, share),
                after=tuple(after),
                traversals=2 if fenced else 1,
                read=moves[0][0],
                write=moves[0][1],
                also=tuple(moves[1:]),
                merge=merge,
                landing=landing,
            )
        )

    def load(
        self,
        target: int,
        source: int,
        nbytes: Bytes,
        *,
        after: Sequence[int],
        moves: Sequence[tuple[Buffer, Buffer]],
        share: float = 1.0,
    ) -> int:
        """The target's loads from the source's memory: two traversals."""
        route = self.task.fabric.route(self.task.gpus[source], self.task.gpus[target])
        return self._add(
            Transfer(
                source=source,
                target=target,
                nbytes=nbytes * self.wire,
                latency=self.task.costs.routes.load(route),
                uses=self.uses(source, target, Engine.LOAD, share),
                after=tuple(after),
                traversals=2,
                read=moves[0][0],
                write=moves[0][1],
                also=tuple(moves[1:]),
                pull=True,
            )
        )

    def flag(self, source: int, target: int, *, after: Sequence[int], atomic: bool = False) -> int:
        """A word written into the target's memory, which polls it there; ``atomic`` by a compare-and-swap."""
        route = self.task.fabric.route(self.task.gpus[source], self.task.gpus[target])
        routes = self.task.costs.routes
        return self._add(
            Transfer(
                source=source,
                target=target,
                nbytes=0.0,
                latency=routes.load(route) if atomic else routes.store(route),
                uses=(),
                after=tuple(after),
                traversals=2 if atomic else 1,
            )
        )

    def barrier(self, after: Waits, groups: Iterable[Sequence[int]] | None = None, *, atomic: bool = False) -> Waits:
        """Every rank flags every other of its group; returns what each then waits for: its own steps and the flags."""
        waits = [list(own) for own in after]
        for group in [list(self.ranks)] if groups is None else groups:
            for place, source in enumerate(group):
                for distance in range(1, len(group)):
                    target = group[(place + distance) % len(group)]
                    waits[target].append(self.flag(source, target, after=after[source], atomic=atomic))
        return [tuple(each) for each in waits]

    def uses(self, source: int, target: int, engine: Engine, share: float) -> tuple[tuple[int, float], ...]:
        """What a flow between two ranks takes of each link, ``share`` being the rate it reaches of an isolated one."""
        key = (source, target, engine, share)
        if key not in self._uses:
            fabric, gpus = self.task.fabric, self.task.gpus
            route = fabric.route(gpus[source], gpus[target])
            self._uses[key] = self.task.costs.routes.uses(fabric, route, engine, of_isolated=share)
        return self._uses[key]

    def program(self, name: str, *, chunks: int, epochs: int) -> Program:
        """What has been written down."""
        return Program(
            name=name,
            ranks=len(self.task.gpus),
            steps=tuple(self.steps),
            capacity=self.task.capacity,
            chunks=chunks,
            epochs=epochs,
        )

    def lowered(
        self, name: str, protocol: str, *, chunks: int, epochs: int, reason: str = "", transport: str = ""
    ) -> Lowered:
        """The program and how it came to be."""
        gpus, fabric = self.task.gpus, self.task.fabric
        nvlink = all(fabric.route(gpus[0], other).nvlink for other in gpus[1:])
        return Lowered(
            program=self.program(name, chunks=chunks, epochs=epochs),
            algorithm=name,
            protocol=protocol,
            transport=transport or ("NVLink" if nvlink else "P2P"),
            channels=1,
            reason=reason or "chosen by name or by the engine",
        )

    def _add(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1
