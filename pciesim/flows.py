"""What concurrent copies on a box would measure: rates, completion times, and the figures of real tools.

A tool's figure is more than a rate. One pair alone, equal volumes run to completion, and a host program's loop answer
differently for the same wiring: the instantaneous rates of eight GPUs behind two switches sum to 429 GB/s where equal
volumes run to completion give 197 (before any loss). :class:`Metric` names what is emulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from pciesim.contention import Contention, Leg, Rules, Shares, Stream
from pciesim.errors import InputError
from pciesim.fabric import DeviceKind, Fabric
from pciesim.physics import Engine, RouteCosts
from pciesim.units import MB, Bytes, BytesPerSecond, Seconds

__all__ = [
    "HOST", "VOLUME", "EngineWord", "FlowRate", "FlowSpec", "FlowsResult", "Metric", "Operation", "all_to_all",
    "run_flows", "stagger",
]  # fmt: skip

HOST: Final = "host"  # the memory nearest to the GPU at the other end
VOLUME: Final[Bytes] = 256 * MB
LOOP_ROUNDS: Final = 10
_LEFT: Final = 2**-30  # relative; less than this of a volume is rounding


class Operation(StrEnum):
    """Who moves the data of a flow: its source writes them or its target reads them."""

    WRITE = "write"
    READ = "read"


class EngineWord(StrEnum):
    """What moves them: a copy engine, or loads and stores of a kernel on the multiprocessors."""

    CE = "ce"
    SM = "sm"


class Metric(StrEnum):
    """What is timed, and what is divided by what.

    ``rate``: all flows run for ever; rates, and their sum. ``completion``: every flow moves the same volume, all start
    at once; all bytes over the time of the last. ``p2p_test`` (p2pBandwidthLatencyTest): as ``rate``, one pair or both
    ways. ``p2pmark`` all-to-all: as ``completion``. ``p2pmark_mean`` (its staggered rings): each flow's volume over its
    own time, averaged over the flows. ``copy_loop`` (a PyTorch loop of ``dst.copy_(src)``, one stream a flow): ten
    rounds; a GPU does one copy at a time, copies into one GPU wait for each other in program order (PyTorch makes the
    target's current stream wait); all bytes over the time of the last.
    """

    RATE = "rate"
    COMPLETION = "completion"
    P2P_TEST = "p2p_test"
    P2PMARK = "p2pmark"
    P2PMARK_MEAN = "p2pmark_mean"
    COPY_LOOP = "copy_loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSpec:
    """A flow of data between two devices by name; ``host`` is the memory nearest to the other end.

    ``cap`` bounds its rate: what a background flow of somebody else offers.
    """

    source: str
    target: str
    cap: BytesPerSecond = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRate:
    """One flow's result. ``limited_by`` is what held it longest, ``completion`` None where the metric runs for ever."""

    source: str
    target: str
    rate: BytesPerSecond
    limited_by: str
    completion: Seconds | None = None
    background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsResult:
    """Flows in their order, then the background; ``figure`` is what the tool would print (bytes/s).

    ``collapsed`` names the switches whose posted writes collapse at some time. ``volume`` is that of one copy.
    """

    topology: str
    operation: Operation
    engine: EngineWord
    volume: Bytes
    metric: Metric
    figure: BytesPerSecond
    flows: tuple[FlowRate, ...]
    collapsed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def all_to_all(devices: Sequence[str]) -> tuple[FlowSpec, ...]:
    """Every ordered pair."""
    return tuple(FlowSpec(source=one, target=other) for one in devices for other in devices if one != other)


def stagger(devices: Sequence[str], distance: int) -> tuple[FlowSpec, ...]:
    """Device i to device i + distance, all at once, around the ring. Raises InputError where that is itself."""
    if distance % len(devices) == 0:
        raise InputError(f"stagger:{distance} of {len(devices)} GPUs sends every GPU to itself")
    return tuple(
        FlowSpec(source=device, target=devices[(position + distance) % len(devices)])
        for position, device in enumerate(devices)
    )


def run_flows(
    fabric: Fabric,
    costs: RouteCosts,
    flows: Sequence[FlowSpec],
    *,
    operation: Operation = Operation.WRITE,
    engine: EngineWord = EngineWord.CE,
    metric: Metric = Metric.RATE,
    volume: Bytes = VOLUME,
    background: Sequence[FlowSpec] = (),
    peer_to_peer: bool = True,
    rules: Rules | None = None,
) -> FlowsResult:
    """What the flows measure on this fabric.

    A GPU pair that may not peer (or ``peer_to_peer`` False) goes through host memory: a write to it and a read from it
    at one rate. Raises InputError for a flow without a way.
    """
    if not flows:
        raise InputError("no flows given")
    if not volume > 0:
        raise InputError("the volume of a flow must be positive")
    if any(math.isinf(flow.cap) for flow in background):
        raise InputError("background traffic needs a rate, as in 0:4@10GB/s")
    flows = [_resolved(fabric, flow) for flow in flows]
    background = [_resolved(fabric, flow) for flow in background]
    network = Contention(fabric, costs, rules)

    def stream_of(flow: FlowSpec) -> Stream:
        return network.stream(*_legs(fabric, flow, operation, engine, peer_to_peer), cap=flow.cap)

    streams = [stream_of(flow) for flow in flows]
    others = [stream_of(flow) for flow in background]
    rates: tuple[BytesPerSecond, ...]
    limits: Sequence[str]
    ends: Sequence[Seconds | None]
    if metric in (Metric.RATE, Metric.P2P_TEST):
        shares = network.share([*streams, *others])
        rates, limits, ends = shares.rates[: len(flows)], shares.limits[: len(flows)], [None] * len(flows)
        aside, collapsed = list(zip(shares.rates, shares.limits, strict=True))[len(flows) :], shares.collapsed
        figure = sum(rates)
    else:
        tasks = _loop(fabric, flows) if metric is Metric.COPY_LOOP else [_Task(flow=n) for n in range(len(flows))]
        run = _run(network, streams, others, tasks, volume)
        ends = run.ends
        moved = volume * len(tasks) / len(flows)
        rates = tuple(moved / end for end in run.ends)
        limits, aside, collapsed = run.limits, run.aside, run.collapsed
        figure = sum(rates) / len(rates) if metric is Metric.P2PMARK_MEAN else moved * len(flows) / max(run.ends)
    found = [
        FlowRate(source=flow.source, target=flow.target, rate=rate, limited_by=limit, completion=end)
        for flow, rate, limit, end in zip(flows, rates, limits, ends, strict=True)
    ]
    found += [
        FlowRate(source=flow.source, target=flow.target, rate=rate, limited_by=limit, background=True)
        for flow, (rate, limit) in zip(background, aside, strict=True)
    ]
    return FlowsResult(
        topology=fabric.name,
        operation=operation,
        engine=engine,
        volume=volume,
        metric=metric,
        figure=figure,
        flows=tuple(found),
        collapsed=collapsed,
        notes=_notes(fabric, flows, peer_to_peer),
    )


def _resolved(fabric: Fabric, flow: FlowSpec) -> FlowSpec:
    """The flow with ``host`` replaced by a memory's name."""
    if not flow.cap > 0:
        raise InputError(f"the rate of {flow.source}>{flow.target} must be positive")
    if flow.source == flow.target:
        raise InputError(f"a flow from {flow.source} to itself crosses nothing")
    if flow.source == HOST:
        return replace(flow, source=fabric.memory_of(flow.target).name)
    return replace(flow, target=fabric.memory_of(flow.source).name) if flow.target == HOST else flow


def _legs(
    fabric: Fabric, flow: FlowSpec, operation: Operation, engine: EngineWord, peer_to_peer: bool
) -> tuple[Leg, ...]:
    source, target = flow.source, flow.target
    load = Engine.COPY if engine is EngineWord.CE else Engine.LOAD
    store = Engine.COPY if engine is EngineWord.CE else Engine.STORE
    kinds = fabric.device(source).kind, fabric.device(target).kind
    if kinds == (DeviceKind.GPU, DeviceKind.GPU) and not (peer_to_peer and fabric.can_peer(source, target)):
        middle = fabric.memory_of(source).name
        return (
            Leg(route=fabric.route(source, middle), engine=store),
            Leg(route=fabric.route(middle, target), engine=load, read=True),
        )
    # Host memory issues nothing: what leaves it is read by the GPU, what goes there is written.
    reads = {DeviceKind.MEMORY: True}.get(kinds[0], operation is Operation.READ and kinds[1] is not DeviceKind.MEMORY)
    return (Leg(route=fabric.route(source, target), engine=load if reads else store, read=reads),)


def _notes(fabric: Fabric, flows: Sequence[FlowSpec], peer_to_peer: bool) -> tuple[str, ...]:
    gpus = {gpu.name for gpu in fabric.gpus}
    pairs = [(flow.source, flow.target) for flow in flows if {flow.source, flow.target} <= gpus]
    staged = [f"{one}>{other}" for one, other in pairs if not (peer_to_peer and fabric.can_peer(one, other))]
    return (f"without peer-to-peer, through host memory: {', '.join(staged)}",) if staged else ()


# -- equal volumes to completion ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One copy of a flow. ``after`` are tasks that must have ended, ``lanes`` what does one task at a time."""

    flow: int
    after: tuple[int, ...] = ()
    lanes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Run:
    """Per flow the end of its last copy and what limited it longest; mean rate and limit of the background."""

    ends: list[Seconds]
    limits: list[str] = field(default_factory=list)
    aside: list[tuple[BytesPerSecond, str]] = field(default_factory=list)
    collapsed: tuple[str, ...] = ()


def _loop(fabric: Fabric, flows: Sequence[FlowSpec]) -> list[_Task]:
    """The copies of a PyTorch loop: rounds over the flows in their order."""
    gpus = {gpu.name for gpu in fabric.gpus}
    tasks: list[_Task] = []
    last_of_flow: dict[int, int] = {}
    last_into: dict[str, int] = {}
    for _ in range(LOOP_ROUNDS):
        for number, flow in enumerate(flows):
            waits = [last_of_flow.get(number), last_into.get(flow.target)]
            engine = flow.source if flow.source in gpus else flow.target
            after = tuple(sorted({each for each in waits if each is not None}))
            last_of_flow[number] = len(tasks)
            if flow.target in gpus:
                last_into[flow.target] = len(tasks)
            tasks.append(_Task(flow=number, after=after, lanes=(engine,)))
    return tasks


def _run(
    network: Contention, streams: Sequence[Stream], others: Sequence[Stream], tasks: Sequence[_Task], volume: Bytes
) -> _Run:
    """Runs the tasks, each of one volume, as early as their order lets them; rates change when one starts or ends."""
    memo: dict[tuple[int, ...], Shares] = {}
    waiting, done = list(range(len(tasks))), [False] * len(tasks)
    left: dict[int, Bytes] = {}
    run = _Run(ends=[0.0] * len(streams))
    held: list[dict[str, Seconds]] = [{} for _ in (*streams, *others)]
    aside = [0.0] * len(others)
    fallen: set[str] = set()
    now = 0.0
    while waiting or left:
        _start(tasks, waiting, done, left, volume)
        running = tuple(sorted(left, key=lambda task: tasks[task].flow))
        active = tuple(tasks[task].flow for task in running)
        if active not in memo:
            memo[active] = network.share([*(streams[flow] for flow in active), *others])
        shares = memo[active]
        fallen.update(shares.collapsed)
        step = min(left[task] / rate for task, rate in zip(running, shares.rates, strict=False))
        now += step
        for number, limit in zip([*active, *range(len(streams), len(held))], shares.limits, strict=True):
            held[number][limit] = held[number].get(limit, 0.0) + step
        for number, rate in enumerate(shares.rates[len(active) :]):
            aside[number] += rate * step
        for task, rate in zip(running, shares.rates, strict=False):
            left[task] -= rate * step
            if left[task] <= _LEFT * volume:
                del left[task]
                done[task] = True
                run.ends[tasks[task].flow] = now
    longest: Callable[[dict[str, Seconds]], str] = lambda spans: max(spans, key=lambda name: spans[name])  # noqa: E731
    run.limits = [longest(spans) for spans in held[: len(streams)]]
    run.aside = [(moved / now, longest(spans)) for moved, spans in zip(aside, held[len(streams) :], strict=True)]
    run.collapsed = tuple(sorted(fallen))
    return run


def _start(
    tasks: Sequence[_Task], waiting: list[int], done: Sequence[bool], left: dict[int, Bytes], volume: Bytes
) -> None:
    """Starts what may start, in the order of the program."""
    busy = set(_lanes(tasks[task] for task in left))
    for task in list(waiting):
        each = tasks[task]
        if all(done[before] for before in each.after) and busy.isdisjoint(each.lanes):
            left[task] = volume
            waiting.remove(task)
            busy.update(each.lanes)


def _lanes(tasks: Iterable[_Task]) -> Iterable[str]:
    return (lane for task in tasks for lane in task.lanes)
