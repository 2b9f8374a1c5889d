"""Posted-write collapse: on some boxes several GPUs of one switch that send to two or more root ports at once fall.

The rule is the fabric's (``write_collapse``; see :mod:`pciesim.contention`), applied to the phases of a program: where
a phase sends data of that many GPUs of a switch up to two or more root ports, the switch's uplink has only what a
collapse leaves. Loads are counted like stores: kernels that load from peers collapse too. p2pmark's one-shot kernel on
eight GPUs of the Broadcom box takes 30.6 us for 4 KiB and 504 us for 64 KiB; the rule gives 29 and 359.
"""

from __future__ import annotations

from dataclasses import replace

from pciesim.collectives.program import Program, Step, Transfer
from pciesim.collectives.task import Lowered, Task
from pciesim.contention import COLLAPSED
from pciesim.fabric import DeviceKind, Fabric

__all__ = ["with_collapse"]


def with_collapse(task: Task, lowered: Lowered) -> Lowered:
    """The same program with collapsed uplinks, named in its reason; unchanged where nothing collapses."""
    fabric = task.fabric
    if fabric.write_collapse is None:
        return lowered
    uplinks = {
        position: link.source
        for position, link in enumerate(fabric.links)
        if fabric.device(link.source).kind is DeviceKind.SWITCH
        and fabric.device(link.target).kind is DeviceKind.ROOT_PORT
    }
    fallen: set[str] = set()
    steps = list(lowered.program.steps)
    for phase in lowered.program.phases:
        for uplink, positions in _by_uplink(lowered.program, phase, frozenset(uplinks)).items():
            moving = [step for position in positions if isinstance(step := steps[position], Transfer)]
            sources = {step.source for step in moving}
            ports = {_port(fabric, task.gpus[step.target]) for step in moving}
            if len(sources) < fabric.write_collapse or len(ports) < 2:
                continue
            fallen.add(uplinks[uplink])
            for position in positions:
                steps[position] = _slowed(steps[position], uplink, fabric.links[uplink].bandwidth / _left(fabric))
    if not fallen:
        return lowered
    note = f"posted writes through {', '.join(sorted(fallen))} collapse: an order of magnitude, not a figure"
    program = replace(lowered.program, steps=tuple(steps))
    return replace(lowered, program=program, reason=f"{lowered.reason}; {note}", notes=(*lowered.notes, note))


def _by_uplink(program: Program, phase: tuple[int, ...], uplinks: frozenset[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for position in phase:
        step = program.steps[position]
        if isinstance(step, Transfer) and step.nbytes:
            for constraint, _ in step.uses:
                if constraint in uplinks:
                    found.setdefault(constraint, []).append(position)
    return found


def _port(fabric: Fabric, gpu: str) -> str:
    """The root port above a GPU, or the GPU itself where none is."""
    memory = fabric.memory_of(gpu).name
    route = fabric.route(gpu, memory, nvlink=False)
    return next(
        (
            fabric.links[position].target
            for position in route.links
            if fabric.device(fabric.links[position].target).kind is DeviceKind.ROOT_PORT
        ),
        gpu,
    )


def _left(fabric: Fabric) -> float:
    return fabric.concurrency.collapsed or COLLAPSED


def _slowed(step: Step, uplink: int, factor: float) -> Step:
    if not isinstance(step, Transfer):
        return step
    return replace(step, uses=tuple((link, used * factor if link == uplink else used) for link, used in step.uses))
