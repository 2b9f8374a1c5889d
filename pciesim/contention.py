"""Rates of concurrent transfers: max-min sharing, and what real PCIe takes away from it.

Four effects that plain max-min over link capacities does not show, each with its own source, none fitted per row:

**Reverse traffic.** A TLP is paid for on the way back: data-link packets (Ack, flow-control update, 8 bytes each, at
most one of either per 168 bytes of wire where the payload is 256: PCI Express base specification, as in
pcie-bench/pcie-model; Neugebauer et al., SIGCOMM 2018, count 8 to 10 %) and, for loads, the read requests (24 bytes for
every 128 of a multiprocessor load, for every 512 of a copy engine). They go first: what a flow sends back is taken from
the capacity of the other direction, and never slows the flow itself. A port that sends and receives at once keeps
1 / (1 + 16/168) = 0.913 of its rate each way.

**Head-of-line blocking.** Switches and root complexes queue at their input ports. A packet for a busy output holds up
those behind it, so an input that feeds several contended outputs cannot use its whole rate (Karol, Hluchyj and Morgan,
1987: 0.586 of it for many ports and single packets). The heads of the queues are the customers of a closed network
whose servers are the outputs. Mean value analysis gives the time that a packet from input a is at the head for output
b, in packet times::

    R = h + (1 - h) / ((1 - g) (1 + rho_a)),    g = sum over inputs k of b of rho_k / (1 + rho_k)

where rho_k is the share of b that k's packets take; h is 1/2 for single packets (constant service, one after the other)
and 0 for endless trains of packets to one output (which takes turns among inputs). An input's time is then bounded: sum
over b of rho_ab R_ab <= 1. With h = 1/6 it meets a slotted simulation of the crossbar with trains of four or more
packets within 2 % (0.63 of the line for four ports without self-traffic, 0.55 for eight; single packets 0.69 and 0.63),
and without contention it is the link's own capacity. A socket's fabric queues by destination and is spared.

**Posted-write collapse.** On some boxes several GPUs of one switch that write to two or more root ports at once fall to
a small rate. The cause is not settled; the rule is explicit, switched on by the fabric and named in the result.

**Limits of the box** that its links do not show: peer traffic between sockets, DMA at a memory node
(:class:`pciesim.fabric.Concurrency`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from pciesim.fabric import DeviceKind, Fabric, LinkKind, Route
from pciesim.physics import Engine, RouteCosts
from pciesim.sharing import Flow, max_min
from pciesim.units import GB, BytesPerSecond

__all__ = ["Arbitration", "Contention", "Leg", "Rules", "Shares", "Stream"]

DATA_LINK: Final = 2 * 8 / 168  # bytes sent back per byte of wire: one Ack and one flow-control update
REQUEST: Final = {Engine.COPY: 24 / 512, Engine.LOAD: 24 / 128, Engine.STORE: 0.0}  # per byte of a load's payload
# DMA of copy engines at host memory, reads plus writes, of the memory's nominal rate: fitted on one box
# (b650d4u_switch_2gpu, 2 x 23.6 of 83.2 GB/s), checked on another (trx40_direct_2gpu_gen4).
DMA_SHARE: Final = 0.567
# What a collapse leaves of an uplink where the overlay does not say: the Broadcom box's figure.
COLLAPSED: Final[BytesPerSecond] = 2.7 * GB

# h of the formula above: copy engines that work for several peers alternate between trains of packets. Tests of four
# GPUs on three boxes chose between trains and single packets: 0.61, 0.59, 0.59 of the one-way rate (single: 0.65).
TRAIN: Final = 1 / 6
_ROUNDS: Final = 240
_SETTLED: Final = 2**-30  # relative: 1 in a billion
_FULL: Final = 2**-20  # relative, 1 in a million; a constraint this close to its capacity is what limits
_BUSIEST: Final = 0.999  # an output's load as the queue sees it while rates are still being found


class Arbitration(StrEnum):
    """What an output takes turns among: flows, or input ports (a local flow then gets as much as a whole uplink)."""

    FLOW = "flow"
    PORT = "port"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which effects are on. ``ideal`` is plain max-min over the links."""

    reverse: bool = True
    head_of_line: bool = True
    collapse: bool = True
    arbitration: Arbitration = Arbitration.FLOW

    @classmethod
    def ideal(cls) -> Rules:
        """Nothing but capacities."""
        return cls(reverse=False, head_of_line=False, collapse=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One transfer over a route. ``read``: the receiving end asks for the data, so requests travel against them."""

    route: Route
    engine: Engine = Engine.COPY
    read: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A flow as :class:`Contention` needs it; has the fields of :class:`pciesim.sharing.Flow` and two more.

    ``uses`` lists links in route order, then other constraints. ``requests`` are bytes sent back per byte of payload,
    ``posted`` says that it consists of writes.
    """

    uses: tuple[tuple[int, float], ...]
    weight: float = 1.0
    cap: float = math.inf
    requests: float = 0.0
    posted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Rates of streams in their order (bytes/s of payload), what limits each, and the switches that collapse."""

    rates: tuple[BytesPerSecond, ...]
    limits: tuple[str, ...]
    collapsed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Crossing:
    """A stream's way through a switch or root complex: in and out link, and wire bytes per byte of payload."""

    stream: int
    into: int
    out: int
    wire: float


class Contention:
    """The concurrency of one fabric: makes streams, and solves their rates.

    ``capacity`` has the fabric's links, its constraints and the limits of the box, in this order; a stream's ``uses``
    index it.
    """

    __slots__ = ("_costs", "_extra", "_fabric", "_names", "_reverse", "_rules", "capacity")

    def __init__(self, fabric: Fabric, costs: RouteCosts, rules: Rules | None = None) -> None:
        self._fabric = fabric
        self._rules = rules or Rules()
        stated = fabric.concurrency
        self._costs = replace(costs, share_copy=stated.copy_share or costs.share_copy)
        positions = {(link.source, link.target): position for position, link in enumerate(fabric.links)}
        self._reverse = [
            positions.get((link.target, link.source), -1) if link.kind is LinkKind.PCIE else -1 for link in fabric.links
        ]
        capacity = [link.bandwidth for link in fabric.links] + [limit.capacity for limit in fabric.constraints]
        names = [f"{link.source} -> {link.target}" for link in fabric.links]
        names += [limit.name for limit in fabric.constraints]
        self._extra: dict[tuple[str, ...], int] = {}
        for key, limit, name in self._limits():
            self._extra[key] = len(capacity)
            capacity.append(limit)
            names.append(name)
        self.capacity = tuple(capacity)
        self._names = tuple(names)

    def _limits(self) -> Iterable[tuple[tuple[str, ...], BytesPerSecond, str]]:
        """Limits of the box: key, capacity, name."""
        fabric, stated = self._fabric, self._fabric.concurrency
        for link in fabric.links:
            if link.kind is not LinkKind.SOCKET:
                continue
            one, other = link.source, link.target
            if stated.socket_peer is not None:
                yield ("peer", one, other), stated.socket_peer, f"peer traffic {one} -> {other}"
            if stated.socket_peer_both is not None and one < other:
                yield ("both", one, other), stated.socket_peer_both, f"peer traffic {one} <-> {other}"
        for device in fabric.devices:
            if device.kind is DeviceKind.ROOT_PORT and stated.port_socket_peer is not None:
                yield ("port", device.name), stated.port_socket_peer, f"peer traffic of {device.name} to another socket"
            if device.kind is DeviceKind.MEMORY:
                nominal = max((link.bandwidth for link in fabric.links if link.target == device.name), default=math.inf)
                yield ("dma", device.name), stated.host_dma or DMA_SHARE * nominal, f"DMA at {device.name}"
            if device.kind is DeviceKind.SWITCH:
                left = stated.collapsed or COLLAPSED
                yield ("collapse", device.name), left, f"posted-write collapse of {device.name}"

    # -- streams ------------------------------------------------------------------------------------------------

    def stream(self, *legs: Leg, cap: BytesPerSecond = math.inf) -> Stream:
        """The stream of a transfer: one leg, or a write to host memory and a read from it at the same rate."""
        links: list[tuple[int, float]] = []
        others: list[tuple[int, float]] = []
        requests, posted = 0.0, True
        for leg in legs:
            route = leg.route
            source, target = self._fabric.device(route.source), self._fabric.device(route.target)
            costs = self._costs
            from_host = source.kind is DeviceKind.MEMORY
            if from_host and leg.engine is Engine.COPY:
                costs = replace(costs, share_copy=self._fabric.concurrency.host_read_share or costs.share_copy)
            for index, wire in costs.uses(self._fabric, route, leg.engine):
                (links if index < len(self._fabric.links) else others).append((index, wire))
            if DeviceKind.MEMORY in (source.kind, target.kind):
                others.append((self._extra["dma", (source if from_host else target).name], 1.0))
            else:
                others += [(self._extra[key], 1.0) for key in self._peer_limits(route) if key in self._extra]
            if leg.read:
                requests, posted = REQUEST[leg.engine], False
        return Stream(uses=(*links, *others), cap=cap, requests=requests, posted=posted)

    def _peer_limits(self, route: Route) -> Iterable[tuple[str, ...]]:
        """Keys of the limits of the box that peer traffic along a route meets."""
        links = [self._fabric.links[position] for position in route.links]
        for link in links:
            if link.kind is LinkKind.SOCKET:
                yield "peer", link.source, link.target
                yield "both", min(link.source, link.target), max(link.source, link.target)
        if route.socket_hops:
            ports = (link.source for link in links if self._kind(link.source) is DeviceKind.ROOT_PORT)
            yield from (("port", port) for port in list(ports)[:1])

    def _kind(self, device: str) -> DeviceKind:
        return self._fabric.device(device).kind

    # -- rates --------------------------------------------------------------------------------------------------

    def solve(self, _capacity: Sequence[float], streams: Sequence[Stream]) -> list[float]:
        """As :func:`pciesim.sharing.max_min`, of which it can take the place; the capacities are its own."""
        return list(self.share(streams).rates)

    def share(self, streams: Sequence[Stream]) -> Shares:
        """Rates of streams that run at the same time, and what limits each.

        What a flow sends back and how long a packet waits at the head of a queue depend on the rates themselves: a
        fixed point, found by iteration. All of it is homogeneous: capacities times k give rates times k.
        """
        if not streams:
            return Shares(rates=(), limits=())
        crossings = [each for number, stream in enumerate(streams) for each in self._crossings(number, stream)]
        weights = self._weights(streams, crossings)
        fallen = self._collapses(streams) if self._rules.collapse else {}
        falls: dict[int, list[tuple[int, float]]] = {}
        for switch, (members, use) in fallen.items():
            for number in members:
                falls.setdefault(number, []).append((self._extra["collapse", switch], use))
        blocked = _inputs_that_block(crossings) if self._rules.head_of_line else {}
        ours = {into: len(self.capacity) + order for order, into in enumerate(blocked)}
        waits = {(each.into, each.out): 1.0 for each in crossings}
        held: list[list[_Crossing]] = [[] for _ in streams]
        for each in (each for members in blocked.values() for each in members):
            held[each.stream].append(each)
        capacity = list(self.capacity)
        rates = [0.0] * len(streams)
        flows: list[Flow] = []
        every: list[float] = []
        for turn in range(_ROUNDS):
            step = 0.5 ** (1 + turn // 120)  # smaller and smaller, where two sets of bottlenecks take turns
            flows = []
            for number, stream in enumerate(streams):
                uses = [*stream.uses, *falls.get(number, ())]
                for each in held[number]:
                    wait = waits[each.into, each.out] * capacity[each.into] / capacity[each.out]
                    uses.append((ours[each.into], each.wire * max(wait, 1.0)))
                flows.append(Flow(uses=tuple(uses), weight=weights[number], cap=stream.cap))
            every = capacity + [capacity[into] for into in ours]
            found = max_min(every, flows)
            moved = max(abs(new - old) for new, old in zip(found, rates, strict=True))
            rates = found
            if moved <= _SETTLED * max(found):
                break
            if self._rules.reverse:
                fresh_capacity = self._left(streams, rates)
                capacity = [old + step * 2 * (new - old) for old, new in zip(capacity, fresh_capacity, strict=True)]
            if ours:
                fresh = _waits(crossings, rates, capacity)
                waits = {key: old + step * (fresh[key] - old) for key, old in waits.items()}
        return Shares(
            rates=tuple(rates),
            limits=self._limiting(every, flows, rates, list(ours)),
            collapsed=tuple(sorted(fallen)),
        )

    def _limiting(
        self, capacity: Sequence[float], flows: Sequence[Flow], rates: Sequence[float], queues: Sequence[int]
    ) -> tuple[str, ...]:
        """For every flow a full constraint on which none runs faster: of several that of most flows, a limit of the box
        before a link. A queue whose own link is full is that link. ``queues`` are the inputs after ``capacity``."""
        load, fastest, users = [0.0] * len(capacity), [0.0] * len(capacity), [0] * len(capacity)
        for flow, rate in zip(flows, rates, strict=True):
            for index, wire in flow.uses:
                load[index] += wire * rate
                fastest[index] = max(fastest[index], rate / flow.weight)
                users[index] += 1
        full = [used >= limit * (1 - _FULL) for used, limit in zip(load, capacity, strict=True)]
        inputs = dict(enumerate(queues, start=len(self.capacity)))
        names: list[str] = []
        for flow, rate in zip(flows, rates, strict=True):
            tight = [
                index
                for index, _ in flow.uses
                if full[index]
                and rate / flow.weight >= fastest[index] * (1 - _FULL)
                and not (index in inputs and full[inputs[index]])
            ]
            if tight:
                chosen = max(tight, key=lambda index: (users[index], index >= len(self._reverse)))
                queue = inputs.get(chosen)
                names.append(self._names[chosen] if queue is None else f"head-of-line blocking at {self._names[queue]}")
            else:
                names.append("its own cap" if rate >= flow.cap * (1 - _FULL) else "nothing")
        return tuple(names)

    def _left(self, streams: Sequence[Stream], rates: Sequence[float]) -> list[float]:
        """Capacities less what flows of the other direction send back."""
        capacity = list(self.capacity)
        for stream, rate in zip(streams, rates, strict=True):
            for index, wire in stream.uses:
                if index < len(self._reverse) and (back := self._reverse[index]) >= 0:
                    capacity[back] -= rate * (wire * DATA_LINK + stream.requests)
        return [max(left, full / 2) for left, full in zip(capacity, self.capacity, strict=True)]

    def _crossings(self, number: int, stream: Stream) -> Iterable[_Crossing]:
        """Ways through switches and root complexes: successive links that are not inside a chip."""
        links = [
            (index, wire, self._fabric.links[index].kind) for index, wire in stream.uses if index < len(self._reverse)
        ]
        outside = [link for link in links if link[2] is not LinkKind.ON_CHIP]
        for (into, _, one), (out, wire, other) in pairwise(outside):
            if one is LinkKind.PCIE and other in (LinkKind.PCIE, LinkKind.SOCKET):
                yield _Crossing(number, into, out, wire)

    def _weights(self, streams: Sequence[Stream], crossings: Sequence[_Crossing]) -> list[float]:
        """Equal for every flow; under port arbitration those that share an input and an output share one turn."""
        weights = [stream.weight for stream in streams]
        if self._rules.arbitration is Arbitration.PORT:
            turns: dict[tuple[int, int], int] = {}
            for each in crossings:
                turns[each.into, each.out] = turns.get((each.into, each.out), 0) + 1
            for each in crossings:
                share = streams[each.stream].weight / turns[each.into, each.out]
                weights[each.stream] = min(weights[each.stream], share)
        return weights

    def _collapses(self, streams: Sequence[Stream]) -> dict[str, tuple[list[int], float]]:
        """Switches whose posted writes collapse: the streams that leave by their uplink, and what each uses of what is
        left (`collapsed`) per byte: less than 1 where the GPUs' own flows alternate between root ports, because the
        collapse lasts only while their current trains go to different ones."""
        fabric = self._fabric
        if fabric.write_collapse is None:
            return {}
        leaving: dict[str, list[tuple[int, str, str, BytesPerSecond]]] = {}
        for number, stream in enumerate(streams):
            links = [(fabric.links[index], wire) for index, wire in stream.uses if index < len(self._reverse)]
            ports = [link.source for link, _ in links if self._kind(link.source) is DeviceKind.ROOT_PORT]
            first = links[0][0]
            if stream.posted and len(ports) > 1 and self._kind(first.target) is DeviceKind.SWITCH:
                uplink = next(link.bandwidth / wire for link, wire in links if link.target == ports[0])
                leaving.setdefault(first.target, []).append((number, first.source, ports[-1], uplink))
        found: dict[str, tuple[list[int], float]] = {}
        for switch, members in leaving.items():
            sources = {source: [port for _, each, port, _ in members if each == source] for _, source, _, _ in members}
            ports_of_all = {port for _, _, port, _ in members}
            if len(sources) < fabric.write_collapse or len(ports_of_all) < 2:
                continue
            together = sum(
                math.prod(own.count(port) / len(own) for own in sources.values()) for port in ports_of_all
            )  # how often all send to one root port
            left = self.capacity[self._extra["collapse", switch]] / max(uplink for *_, uplink in members)
            found[switch] = [number for number, *_ in members], (1 - together) + together * left
        return found


def _inputs_that_block(crossings: Sequence[_Crossing]) -> dict[int, list[_Crossing]]:
    """Inputs that feed several outputs, by link; one that feeds a single output holds nobody else up."""
    found: dict[int, list[_Crossing]] = {}
    for each in crossings:
        found.setdefault(each.into, []).append(each)
    return {into: members for into, members in found.items() if len({each.out for each in members}) > 1}


def _waits(
    crossings: Sequence[_Crossing], rates: Sequence[float], capacity: Sequence[float]
) -> dict[tuple[int, int], float]:
    """Packet times from the head of an input's queue to having passed an output; see the module's text."""
    busy: dict[tuple[int, int], float] = {}
    for each in crossings:
        key = each.into, each.out
        busy[key] = busy.get(key, 0.0) + rates[each.stream] * each.wire / capacity[each.out]
    load: dict[int, float] = {}
    for (_, out), share in busy.items():
        load[out] = load.get(out, 0.0) + share / (1 + share)
    return {
        (into, out): TRAIN + (1 - TRAIN) / ((1 - min(load[out], _BUSIEST)) * (1 + share))
        for (into, out), share in busy.items()
    }
