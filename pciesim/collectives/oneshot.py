"""One-shot all-reduce: every rank gets every other rank's tensor at once and adds locally.

Push with sentinels ("Lamport"; TensorRT-LLM, FlashInfer PCIe-IPC unstaged): each rank stores its tensor into a slot of
every peer and polls its own slots; one traversal, no barrier, two or three rotating slot sets.
Pull with a flag barrier and double buffers (b12x, the PCIe one-shot of SGLang forks): stage locally, flag the peers,
load from them; three traversals. vLLM's one-stage kernel ends with a second barrier instead: four.
"""

from __future__ import annotations

from typing import Final

from pciesim.collectives.program import Buffer, Local, Program, Step, Transfer
from pciesim.collectives.task import Lowered, Task
from pciesim.physics import Engine
from pciesim.units import Seconds

__all__ = ["lower_pull", "lower_push"]

_STAGED: Final[Buffer] = ("staged", 0)  # what peers get: registers in a push, a shared buffer in a double-buffered pull


def lower_push(task: Task) -> Lowered:
    """Sentinel one-shot push."""
    costs, fabric, n = task.costs.push, task.fabric, len(task.gpus)
    steps: list[Step] = _launch(n, costs.base, staged=True)
    arrivals: list[list[int]] = [[] for _ in range(n)]
    for source in range(n):
        for distance in range(1, n):
            target = (source + distance) % n
            route = fabric.route(task.gpus[source], task.gpus[target])
            uses = task.costs.routes.uses(fabric, route, Engine.STORE)
            steps.append(
                Transfer(
                    source=source,
                    target=target,
                    nbytes=task.nbytes,
                    latency=task.costs.routes.store(route),
                    uses=tuple((constraint, used / costs.share) for constraint, used in uses),
                    after=(source,),
                    traversals=1,
                    read=_STAGED,
                    write=("slot", source),
                )
            )
            arrivals[target].append(len(steps) - 1)
    _reduce(steps, arrivals, n)
    program = Program(name="oneshot-push", ranks=n, steps=tuple(steps), capacity=task.capacity, chunks=1)
    return _lowered(task, program, "sentinel")


def lower_pull(task: Task, *, end_barrier: bool = False) -> Lowered:
    """One-shot pull behind a flag barrier; ``end_barrier`` adds vLLM's closing one."""
    costs, fabric, n = task.costs.pull, task.fabric, len(task.gpus)
    steps: list[Step] = _launch(n, costs.base, staged=not end_barrier)
    source_buffer = ("data", 0) if end_barrier else _STAGED
    ready = _barrier(task, steps, [(rank,) for rank in range(n)])
    loads: list[list[int]] = [[] for _ in range(n)]
    for target in range(n):
        for distance in range(1, n):
            source = (target + distance) % n
            route = fabric.route(task.gpus[source], task.gpus[target])
            uses = task.costs.routes.uses(fabric, route, Engine.LOAD)
            steps.append(
                Transfer(
                    source=source,
                    target=target,
                    nbytes=task.nbytes,
                    latency=task.costs.routes.load(route),
                    uses=tuple((constraint, used / costs.share) for constraint, used in uses),
                    after=ready[target],
                    traversals=2,
                    read=source_buffer,
                    write=("slot", source),
                )
            )
            loads[target].append(len(steps) - 1)
    if end_barrier:
        # Loads must be done before anyone overwrites its input; the result is written after the barrier.
        closed = _barrier(task, steps, [tuple(each) for each in loads])
        loads = [[*own, *flags] for own, flags in zip(loads, closed, strict=True)]
    _reduce(steps, loads, n)
    name = "vllm-1stage" if end_barrier else "oneshot-pull"
    program = Program(name=name, ranks=n, steps=tuple(steps), capacity=task.capacity, chunks=1)
    return _lowered(task, program, "flags")


def _launch(n: int, base: Seconds, *, staged: bool) -> list[Step]:
    """The kernel's fixed cost on every rank; ``staged`` takes a copy of the input that the result cannot overwrite."""
    reads: tuple[Buffer, ...] = (("data", 0),) if staged else ()
    write = _STAGED if staged else None
    return [Local(rank=rank, duration=base, reads=reads, write=write) for rank in range(n)]


def _barrier(task: Task, steps: list[Step], after: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Every rank flags every other; returns what each rank then waits for (its own steps and all flags to it)."""
    n = len(task.gpus)
    waits: list[list[int]] = [list(own) for own in after]
    for source in range(n):
        for distance in range(1, n):
            target = (source + distance) % n
            route = task.fabric.route(task.gpus[source], task.gpus[target])
            steps.append(
                Transfer(
                    source=source,
                    target=target,
                    nbytes=0.0,
                    latency=task.costs.routes.store(route),
                    uses=(),
                    after=after[source],
                    traversals=1,
                )
            )
            waits[target].append(len(steps) - 1)
    return [tuple(each) for each in waits]


def _reduce(steps: list[Step], arrivals: list[list[int]], n: int) -> None:
    for rank in range(n):
        slots = tuple(("slot", other) for other in range(n) if other != rank)
        steps.append(
            Local(rank=rank, duration=0.0, after=(rank, *arrivals[rank]), reads=slots, write=("data", 0)),
        )


def _lowered(task: Task, program: Program, protocol: str) -> Lowered:
    routes = [task.fabric.route(task.gpus[0], other) for other in task.gpus[1:]]
    return Lowered(
        program=program,
        algorithm=program.name,
        protocol=protocol,
        transport="NVLink" if all(route.nvlink for route in routes) else "P2P",
        channels=1,
        reason="peer-to-peer kernel chosen by name or by the engine",
    )
