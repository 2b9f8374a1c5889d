"""What NCCL decides on a box, why, and what would mend a bad decision.

An NCCL_GRAPH_FILE gives it a ring that its own search did not find; other variables change transport and channels. Each
remedy is timed by the same evaluator as everything else, so what it promises is computed, not quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pciesim.collectives.nccl import NcclPlan, lower_nccl, plan
from pciesim.collectives.nccl_model import Algorithm, Cost, Protocol, nccl_path_type
from pciesim.collectives.task import Task
from pciesim.errors import Infeasible, InputError
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.fabric import NcclEnvironment
from pciesim.schedule import CollectiveKind
from pciesim.units import BytesPerSecond, Seconds

__all__ = ["Explanation", "GraphFile", "Remedy", "SizeChoice", "check_graph", "explain", "graph_file", "mend", "named"]

# Path types from near to far; a graph file names the farthest of its ring.
_TYPES: Final = ("NVL", "PIX", "PXB", "PHB", "SYS")
_ROUNDING: Final = 1e-12  # relative
_WORTH: Final = 0.02  # a variable that saves less than this share is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChoice:
    """NCCL's choice at one size: its own estimates, cheapest first, and what each costs by this program's evaluator.

    ``times`` are predicted seconds in the order of ``table``; ``chosen`` and ``best`` are positions in it.
    """

    nbytes: int
    table: tuple[Cost, ...]
    times: tuple[Seconds, ...]
    chosen: int
    best: int
    channels: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """NCCL's decisions for a group. ``paths`` is its path type and ``transports`` its transport for every pair."""

    kind: CollectiveKind
    topology: str
    gpus: tuple[str, ...]
    version: str
    paths: dict[tuple[int, int], str]
    plan: NcclPlan
    p2p_level: str
    sizes: tuple[SizeChoice, ...]


def explain(timer: CollectiveTimer, kind: CollectiveKind, sizes: Sequence[int]) -> Explanation:
    """NCCL's transport, ring, channels, and its choice at every size.

    Raises Infeasible for a collective that NCCL makes of sends and receives (it has nothing to choose there).
    """
    if kind in (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV):
        raise Infeasible(f"NCCL makes {kind} of sends and receives: LL up to 16 KiB a message, Simple beyond")
    if len(timer.gpus) < 2:
        raise InputError("NCCL has nothing to choose for one GPU")
    fabric = timer.fabric
    first = plan(_task(timer, kind, sizes[0]))
    return Explanation(
        kind=kind,
        topology=fabric.name,
        gpus=timer.gpus,
        version=fabric.nccl.version,
        paths={
            (a, b): nccl_path_type(fabric.route(timer.gpus[a], timer.gpus[b], nvlink=fabric.nccl.p2p))
            for a, b in first.pairs
        },
        plan=first,
        p2p_level=fabric.nccl.p2p_level or "",
        sizes=tuple(_choice(timer, kind, size) for size in sizes),
    )


def _choice(timer: CollectiveTimer, kind: CollectiveKind, size: int) -> SizeChoice:
    task = _task(timer, kind, size)
    chosen = plan(task)
    times = tuple(
        timer.run(lower_nccl(task, algorithm=cost.algorithm, protocol=cost.protocol).program) for cost in chosen.table
    )
    pairs = [(cost.algorithm, cost.protocol) for cost in chosen.table]
    return SizeChoice(
        nbytes=size,
        table=chosen.table,
        times=times,
        chosen=pairs.index((chosen.algorithm, chosen.protocol)),
        best=min(range(len(times)), key=lambda each: times[each]),
        channels=chosen.channels,
        reason=chosen.reason,
    )


def _task(timer: CollectiveTimer, kind: CollectiveKind, size: int) -> Task:
    return Task(kind=kind, nbytes=size, fabric=timer.fabric, gpus=timer.gpus, costs=timer.costs,
                compute_capability=timer.compute_capability)  # fmt: skip


# -- graph files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFile:
    """What an NCCL_GRAPH_FILE says of one group: the ring as GPU numbers, channels, speed of each, farthest path."""

    ring: tuple[int, ...]
    channels: int
    speed: BytesPerSecond
    type_intra: str


def graph_file(timer: CollectiveTimer) -> GraphFile:
    """The ring that the search should have found: by socket and switch, at the speed of the PCIe links.

    The ring's speed decides where NCCL's cost model goes from LL to Simple; that of the links puts the switch where the
    two curves really cross.
    """
    mended = timer.on(replace(timer.fabric, nccl=replace(timer.fabric.nccl, graph_file=True)))
    ring = plan(_task(mended, CollectiveKind.ALL_REDUCE, 1)).ring
    gpus = [timer.fabric.device(name) for name in timer.gpus]
    edges = [(ring.order[p], ring.order[(p + 1) % len(ring.order)]) for p in range(len(ring.order))]
    kinds = [nccl_path_type(timer.fabric.route(timer.gpus[a], timer.gpus[b])) for a, b in edges]
    return GraphFile(
        ring=tuple(gpus[rank].index or 0 for rank in ring.order),
        channels=ring.graph_channels,
        speed=ring.speed,
        type_intra=max(kinds, key=lambda kind: _TYPES.index(kind) if kind in _TYPES else len(_TYPES)),
    )


def check_graph(graph: GraphFile, timer: CollectiveTimer) -> tuple[str, ...]:
    """What is wrong with a graph file on this box, in words; empty when nothing is.

    Every GPU once; and no link asked for more than its line rate in either direction.
    """
    wrong: list[str] = []
    fabric = timer.fabric
    names = {fabric.device(name).index: name for name in timer.gpus}
    if sorted(graph.ring) != sorted(index or 0 for index in names):
        wrong.append(f"the ring {list(graph.ring)} is not each of the GPUs {sorted(i or 0 for i in names)} once")
        return tuple(wrong)
    carried: dict[int, BytesPerSecond] = {}
    for place, dev in enumerate(graph.ring):
        route = fabric.route(names[dev], names[graph.ring[(place + 1) % len(graph.ring)]])
        for position in route.links:
            carried[position] = carried.get(position, 0.0) + graph.channels * graph.speed
    for position, rate in carried.items():
        link = fabric.links[position]
        if rate > link.bandwidth * (1 + _ROUNDING):
            times = rate / (graph.channels * graph.speed)
            wrong.append(
                f"{link.source} -> {link.target} would carry {times:g} of the ring's edges: keep GPUs of one switch or "
                "socket together"
            )
    return tuple(wrong)


# -- remedies -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """An environment and what it does: seconds at each size, before and after. ``variables`` are NCCL's own."""

    variables: tuple[tuple[str, str], ...]
    sizes: tuple[int, ...]
    before: tuple[Seconds, ...]
    after: tuple[Seconds, ...]
    caveats: tuple[str, ...]


def mend(timer: CollectiveTimer, sizes: Sequence[int], *, path: str) -> Remedy:
    """The environment with the lowest geometric mean over the sizes, without variables that do not earn their keep.

    ``path`` is where the graph file will stand. All-reduces only: they are what decode waits for.
    """
    base = timer.fabric.nccl
    plain = replace(base, graph_file=False)
    before = _times(timer, plain, sizes)
    options: list[tuple[tuple[tuple[str, str], ...], NcclEnvironment]] = []
    for level in dict.fromkeys((base.p2p_level, "SYS") if base.p2p else (base.p2p_level,)):
        for graph in (False, True):
            for channels in (base.min_channels, 8, 16):
                variables: list[tuple[str, str]] = []
                if level and level != base.p2p_level:
                    variables.append(("NCCL_P2P_LEVEL", level))
                if graph:
                    variables.append(("NCCL_GRAPH_FILE", path))
                if channels and channels != base.min_channels:
                    variables.append(("NCCL_MIN_NCHANNELS", str(channels)))
                options.append(
                    (tuple(variables), replace(base, p2p_level=level, graph_file=graph, min_channels=channels))
                )
    # Fewer variables first: one more must save its share.
    options.sort(key=lambda option: len(option[0]))
    best: tuple[float, tuple[tuple[str, str], ...], list[Seconds]] = (_score(before, before), (), before)
    for variables_of, environment in options:
        times = _times(timer, environment, sizes)
        score = _score(times, before)
        if score < best[0] * (1 - _WORTH):
            best = (score, variables_of, times)
    names = {name for name, _ in best[1]}
    caveats = []
    if "NCCL_P2P_LEVEL" in names:
        caveats.append("check peer-to-peer for right data first: some boxes say it works and hang or corrupt")
    if "NCCL_GRAPH_FILE" in names:
        caveats.append(
            "the file holds for this group and order of GPUs; NCCL must see all of them (no CUDA_VISIBLE_DEVICES)"
        )
    if "NCCL_MIN_NCHANNELS" in names:
        caveats.append("each channel occupies a multiprocessor while it runs")
    return Remedy(
        variables=best[1], sizes=tuple(sizes), before=tuple(before), after=tuple(best[2]), caveats=tuple(caveats)
    )


def _times(timer: CollectiveTimer, environment: NcclEnvironment, sizes: Sequence[int]) -> list[Seconds]:
    other = timer.on(replace(timer.fabric, nccl=environment))
    return [other.time("nccl", CollectiveKind.ALL_REDUCE, size).latency for size in sizes]


def _score(times: Sequence[Seconds], before: Sequence[Seconds]) -> float:
    product = 1.0
    for time, old in zip(times, before, strict=True):
        product *= time / old
    return float(product ** (1 / len(times)))


def named(algorithm: Algorithm, protocol: Protocol) -> str:
    """``Ring LL``."""
    return f"{algorithm} {protocol}"
