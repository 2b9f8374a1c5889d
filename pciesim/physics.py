"""What a route costs: latencies by what it crosses, and how much of a wire each transfer engine fills.

**Two latencies.** ``store`` is the time from a store to its being seen by a poll of the target's own memory (one
traversal); ``load`` is the round trip of a load (two). Along a PCIe route of given switches and sockets::

    store = poll + 2 endpoint + switches * switch + [a root complex is crossed] * root_complex + hops * socket
    load  = 2 * (store - poll)

Solved from flag ping-pong and load chains on one board, ``poll`` comes out alike for a switch (0.31 us) and a root
complex (0.36 us), which is why two terms suffice (rtx6kpro, WRX90 with PM50100; see the profile's sources).

**Three engines.** A copy engine sends large TLPs, multiprocessor stores and loads 64-byte ones; each reaches its own
share of the line rate. A flow of payload rate x uses x / share of every PCIe link it crosses.

**Loads that the driver does not force.** On boxes whose GPUs meet in a root complex, some drivers need a registry
option (ForceP2P, BAR1) before loads from a peer reach it directly. Without it such loads arrive at
:data:`UNFORCED_LOADS`, all of a GPU's together. Stores and flags, latencies, copy engines, host memory, NVLink and
peers below one switch are taken as they are with it: nothing else is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pciesim.fabric import DeviceKind, Fabric, LinkKind, Route
from pciesim.profile import Evidence, Parameter, Profile
from pciesim.units import NS, Seconds

__all__ = ["UNFORCED", "UNFORCED_LOADS", "Engine", "RouteCosts"]

UNFORCED: Final = "latency.unforced_per_byte"  # no profile states it yet
UNFORCED_LOADS: Final = Parameter(
    # Seconds a byte. Four GPUs on root ports, one-shot pull of 114,688 bytes: 242 us without the option. With it the
    # same kernel takes 6.4 us for 8 KiB, hardly any of that for bytes. Every GPU loads from three peers:
    # (242 - 6.4) us / (3 x 114,688 bytes) = 0.685 ns a byte, 1.46 GB/s. One point cannot tell whether a GPU reaches
    # that in all, or a third of it from every peer. The latter would be 0.49 GB/s for two GPUs and 3.4 GB/s for eight:
    # the range.
    value=0.685 * NS,
    low=0.293 * NS,
    high=2.054 * NS,
    evidence=Evidence.PUBLISHED,
    source="local-inference-lab/rtx6kpro optimization/pcie-oneshot-allreduce.md (114 KB: 242 us without ForceP2P)",
)


class Engine(StrEnum):
    """What moves the bytes."""

    COPY = "ce"
    STORE = "sm_store"
    LOAD = "sm_load"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteCosts:
    """The route parameters of a profile as plain floats (seconds; shares of the line rate; seconds a byte)."""

    poll: Seconds
    endpoint: Seconds
    switch: Seconds
    root_complex: Seconds
    socket: Seconds
    nvlink_store: Seconds
    nvlink_load: Seconds
    host_store: Seconds
    host_load: Seconds
    share_copy: float
    share_store: float
    share_load: float
    share_nvlink: float
    unforced: float = UNFORCED_LOADS.value

    @classmethod
    def of(cls, profile: Profile) -> RouteCosts:
        """Reads ``latency.*`` and ``share.*``. Raises CalibrationError when one is missing."""
        return cls(
            poll=profile.value("latency.poll"),
            endpoint=profile.value("latency.endpoint"),
            switch=profile.value("latency.switch"),
            root_complex=profile.value("latency.root_complex"),
            socket=profile.value("latency.socket"),
            nvlink_store=profile.value("latency.nvlink_store"),
            nvlink_load=profile.value("latency.nvlink_load"),
            host_store=profile.value("latency.host_store"),
            host_load=profile.value("latency.host_load"),
            share_copy=profile.value("share.copy"),
            share_store=profile.value("share.store"),
            share_load=profile.value("share.load"),
            share_nvlink=profile.value("share.nvlink"),
            unforced=(profile.parameter(UNFORCED) if UNFORCED in profile else UNFORCED_LOADS).value,
        )

    def store(self, route: Route) -> Seconds:
        """Store to visible at a poll of the target's own memory: one traversal."""
        if route.nvlink:
            return self.nvlink_store
        return self.poll + self._wire(route)

    def load(self, route: Route) -> Seconds:
        """A dependent load of remote memory: two traversals."""
        if route.nvlink:
            return self.nvlink_load
        return 2 * self._wire(route)

    def through_host(self, to_memory: Route, from_memory: Route) -> Seconds:
        """A store to host memory seen by a poll of that memory from another GPU: three traversals.

        ``host_store`` and ``host_load`` hold for memory of the GPU's own socket; each socket hop adds the wire's term,
        twice for the load.
        """
        hops = to_memory.socket_hops + 2 * from_memory.socket_hops
        return self.host_store + self.host_load + hops * self.socket

    def uses(
        self, fabric: Fabric, route: Route, engine: Engine, *, of_isolated: float = 1.0
    ) -> tuple[tuple[int, float], ...]:
        """(constraint index, capacity used per byte/s of payload) of a flow along a route.

        Indices below ``len(fabric.links)`` are links, the others the fabric's constraints in order. ``of_isolated`` is
        the share of an isolated flow's rate that a GPU reaches with several at once: it holds at its own port, and a
        shared uplink passes them at its full rate.
        """
        share = {Engine.COPY: self.share_copy, Engine.STORE: self.share_store, Engine.LOAD: self.share_load}[engine]
        found: list[tuple[int, float]] = []
        for position in route.links:
            kind = fabric.links[position].kind
            if kind is LinkKind.PCIE:
                found.append((position, 1 / share))
            elif kind is LinkKind.NVLINK:
                found.append((position, 1 / self.share_nvlink))
            else:
                found.append((position, 1.0))
        found += [(len(fabric.links) + position, 1.0) for position in route.constraints]
        if of_isolated != 1.0:
            port = len(route.links) - 1 if engine is Engine.LOAD else 0
            constraint, used = found[port]
            found[port] = constraint, used / of_isolated
        if engine is Engine.LOAD and _is_unforced(fabric, route):
            # All such loads of a GPU pass the link into it: as if they filled it at the rate that they reach together.
            last = len(route.links) - 1
            position, used = found[last]
            found[last] = position, max(used, fabric.links[position].bandwidth * self.unforced)
        return tuple(found)

    def _wire(self, route: Route) -> Seconds:
        crossing = self.root_complex if route.root_complexes or route.socket_hops else 0.0
        return 2 * self.endpoint + route.switches * self.switch + crossing + route.socket_hops * self.socket


def _is_unforced(fabric: Fabric, route: Route) -> bool:
    """Whether one GPU loads from another through a root complex and the driver was not told to let it."""
    ends = (fabric.device(route.source).kind, fabric.device(route.target).kind)
    return (
        not fabric.registry_override
        and not route.nvlink
        and route.root_complexes > 0
        and all(kind is DeviceKind.GPU for kind in ends)
    )
