"""Collectives by size and algorithm: latency with its interval, bandwidths as nccl-tests counts them, crossovers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pciesim.collectives.islands import equal_islands
from pciesim.collectives.select import ALGORITHMS, lower
from pciesim.collectives.task import Lowered, Task
from pciesim.errors import Infeasible
from pciesim.evaluate.bounds import cut_bound, endpoint_bound, latency_bound
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.profile import UNMEASURED, Interval
from pciesim.schedule import CollectiveKind
from pciesim.uncertainty import combine, propagate, shifts_of
from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = [
    "DEFAULT_ALGORITHMS", "Crossover", "Refused", "Sweep", "SweepRow", "bus_factor", "known", "sweep",
    "uneven_loads",
]  # fmt: skip

DEFAULT_ALGORITHMS: Final = {
    CollectiveKind.ALL_REDUCE: ("nccl", "oneshot-push", "oneshot-pull", "twoshot-push", "hierarchical", "oneshot-host"),
    CollectiveKind.ALL_GATHER: ("nccl", "oneshot-push", "oneshot-pull", "oneshot-host"),
    CollectiveKind.REDUCE_SCATTER: ("nccl", "oneshot-push", "oneshot-pull", "oneshot-host"),
    CollectiveKind.ALL_TO_ALL: ("nccl", "oneshot-push", "staged-permutation", "oneshot-host"),
    CollectiveKind.BROADCAST: ("nccl", "oneshot-push", "oneshot-pull", "oneshot-host"),
    CollectiveKind.SEND_RECV: ("nccl", "oneshot-push", "oneshot-pull", "oneshot-host"),
}


_KERNELS: Final = ("oneshot.", "kernel.", "copy.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One algorithm at one size.

    ``nbytes`` is each rank's input; ``counted`` the size that bandwidths are taken from, as nccl-tests does
    (all-gather: the gathered tensor). ``algorithm`` is the name asked for, ``ran`` what it came to. ``fastest`` marks
    the best of its size.
    """

    nbytes: int
    counted: Bytes
    algorithm: str
    ran: str
    protocol: str
    transport: str
    channels: int
    latency: Interval
    algorithm_bandwidth: BytesPerSecond
    bus_bandwidth: BytesPerSecond
    traversals: int
    fastest: bool
    reason: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Between two sizes the fastest algorithm changes; ``nbytes`` is where their straight lines (in logs) meet."""

    nbytes: Bytes
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An algorithm that cannot run here, and why."""

    algorithm: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The answer of ``pciesim collective``. ``floors`` are what no algorithm on GPUs alone can beat, by size."""

    kind: CollectiveKind
    topology: str
    gpus: tuple[str, ...]
    profile: str
    evaluator: str
    rows: tuple[SweepRow, ...]
    floors: tuple[tuple[int, Seconds], ...]
    crossovers: tuple[Crossover, ...]
    refused: tuple[Refused, ...]
    skew: float = 1.0


def bus_factor(kind: CollectiveKind, n: int) -> float:
    """What nccl-tests multiplies the algorithm bandwidth with, so that it compares to a link's."""
    if n < 2:
        return 1.0
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2 * (n - 1) / n
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_TO_ALL:
            return (n - 1) / n
        case _:
            return 1.0


def uneven_loads(n: int, skew: float) -> tuple[tuple[float, ...], ...]:
    """Shares of an all-to-all in which rank 0 is sent ``skew`` times the mean and the others divide the rest evenly.

    Empty for 1 (even loads). Raises Infeasible where one rank would get more than everything.
    """
    if skew == 1.0 or n < 2:
        return ()
    if not 0 <= skew <= n:
        raise Infeasible(f"a rank of {n} can be sent from 0 to {n} times the mean, not {skew:g}")
    hot = skew / n
    return tuple((hot, *([(1 - hot) / (n - 1)] * (n - 1))) for _ in range(n))


def sweep(
    timer: CollectiveTimer,
    kind: CollectiveKind,
    sizes: Sequence[int],
    algorithms: Sequence[str],
    *,
    skew: float = 1.0,
) -> Sweep:
    """Every algorithm at every size on the timer's group.

    Intervals are those of the profile's parameters, propagated through the closed form. Raises UnknownName for a name
    that is not in the table, Infeasible when none of the algorithms can run here.
    """
    loads = uneven_loads(len(timer.gpus), skew) if kind is CollectiveKind.ALL_TO_ALL else ()
    reference, shifts = shifts_of(timer)
    refused: list[Refused] = []
    found: dict[int, list[SweepRow]] = {size: [] for size in sizes}
    for name in dict.fromkeys(algorithms):
        moving = [shift for shift in shifts if shift.name.startswith(_parameters_of(name))]
        try:
            for size in sizes:
                task = _task(timer, kind, size, loads)
                lowered = lower(name, task)
                latency = timer.run(lowered.program)

                def answer(other: CollectiveTimer, name: str = name, size: int = size) -> Seconds:
                    return other.run(lower(name, _task(other, kind, size, loads)).program)

                interval = combine(latency, propagate(reference, moving, answer))
                found[size].append(_row(task, name, lowered, interval))
        except Infeasible as no:
            refused.append(Refused(algorithm=name, reason=str(no)))
            for same in found.values():
                same[:] = [row for row in same if row.algorithm != name]
    if not any(found.values()):
        raise Infeasible("; ".join(each.reason for each in refused))
    rows = tuple(
        replace(row, fastest=row.latency.value == min(other.latency.value for other in same))
        for same in found.values()
        for row in same
    )
    return Sweep(
        kind=kind,
        topology=timer.fabric.name,
        gpus=timer.gpus,
        profile=timer.profile.name,
        evaluator=timer.evaluator,
        rows=rows,
        floors=tuple((size, _floor(_task(timer, kind, size, loads))) for size in sizes),
        crossovers=tuple(_crossovers(found)),
        refused=tuple(refused),
        skew=skew,
    )


def _parameters_of(name: str) -> tuple[str, ...]:
    """Beginnings of the parameters an algorithm can depend on: NCCL's and other kernels' do not mix."""
    own = ("nccl.", "oneshot.push.share", "oneshot.pull.share") if name.startswith("nccl") else _KERNELS
    return ("latency.", "share.", UNMEASURED, *own)


def _task(timer: CollectiveTimer, kind: CollectiveKind, size: int, loads: tuple[tuple[float, ...], ...]) -> Task:
    return Task(
        kind=kind,
        nbytes=size,
        fabric=timer.fabric,
        gpus=timer.gpus,
        compute_capability=timer.compute_capability,
        costs=timer.costs,
        loads=loads,
    )


def _row(task: Task, name: str, lowered: Lowered, latency: Interval) -> SweepRow:
    n, kind, size = len(task.gpus), task.kind, int(task.nbytes)
    counted = float(size * n if kind is CollectiveKind.ALL_GATHER else size)
    rate = counted / latency.value if latency.value > 0 else 0.0
    return SweepRow(
        nbytes=size,
        counted=counted,
        algorithm=name,
        ran=lowered.algorithm,
        protocol=lowered.protocol,
        transport=lowered.transport,
        channels=lowered.channels,
        latency=latency,
        algorithm_bandwidth=rate,
        bus_bandwidth=rate * bus_factor(kind, n),
        traversals=lowered.program.traversals,
        fastest=False,
        reason=lowered.reason,
        notes=lowered.notes,
    )


def _floor(task: Task) -> Seconds:
    n = len(task.gpus)
    if n < 2:
        return 0.0
    cuts = [frozenset(island) for island in equal_islands(task) or ()]
    return max(latency_bound(task), endpoint_bound(task), *(cut_bound(task, cut) for cut in cuts), 0.0)


def _crossovers(found: dict[int, list[SweepRow]]) -> list[Crossover]:
    crossings: list[Crossover] = []
    sizes = sorted(found)
    for one, other in pairwise(sizes):
        before = min(found[one], key=lambda row: row.latency.value)
        after = min(found[other], key=lambda row: row.latency.value)
        if before.algorithm == after.algorithm:
            continue
        at = {(size, row.algorithm): row.latency.value for size in (one, other) for row in found[size]}
        lead = math.log(at[one, after.algorithm] / at[one, before.algorithm])
        lag = math.log(at[other, before.algorithm] / at[other, after.algorithm])
        share = lead / (lead + lag) if lead + lag > 0 else 0.5
        crossings.append(
            Crossover(
                nbytes=(max(one, 1)) ** (1 - share) * other**share, before=before.algorithm, after=after.algorithm
            )
        )
    return crossings


def known(algorithms: Sequence[str], kind: CollectiveKind) -> tuple[str, ...]:
    """The names, ``all`` replaced by every algorithm that serves the collective."""
    return tuple(
        name
        for word in algorithms
        for name in ([n for n, entry in ALGORITHMS.items() if kind in entry.kinds] if word == "all" else [word])
    )
