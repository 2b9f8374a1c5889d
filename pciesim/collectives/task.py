"""What a lowering is given and what it gives back; the parameters of communication backends."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pciesim.collectives.program import Program
from pciesim.fabric import Fabric, Route
from pciesim.physics import RouteCosts
from pciesim.profile import UNMEASURED, Profile
from pciesim.schedule import CollectiveKind
from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = ["BackendCosts", "Lowered", "NcclCosts", "OneShotCosts", "Task", "smooth_minimum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCosts:
    """NCCL on one transport. A ring hop costs the route's latency plus ``step``; a call costs ``base`` once.

    ``simple_extra`` and ``ll128_extra`` are what these protocols add to ``base`` (an LL kernel is the leanest);
    ``fence`` is a fence's drain time as a multiple of the route's load round trip; ``share`` is what is left of one
    flow's rate while every rank sends and receives (both directions of a port, host memory).

    **Rate of a channel.** With LL each of 512 threads keeps one line of 8 bytes in flight per poll of the flag, so
    ``ll_channel`` = 512 x 8 B / poll; LL128 has 640 threads and 15 bytes a thread; ``simple_channel`` is what the
    threads of one channel copy while they send. The tree's channels reach ``tree_share`` (LL128: ``tree_ll128_share``)
    of these, since its threads are split between the way up and the way down. Several channels approach the link's rate
    gradually: their rates combine with it by a smooth minimum of power ``smooth`` (:meth:`rate`).

    **Cut-through.** A ring's rank passes LL lines on as they arrive, so that a hop's latency passes while the bytes of
    the hop before are still flowing: up to ``cut_through`` of it costs nothing. Boxes differ (one behind switches
    hides all, one whose root complexes queue posted writes none).
    """

    base: Seconds
    step: Seconds
    simple_extra: Seconds
    ll128_extra: Seconds
    fence: float
    ll_channel: BytesPerSecond
    simple_channel: BytesPerSecond
    share: float
    tree_share: float
    tree_ll128_share: float
    smooth: float
    cut_through: float
    receive: float
    copy_step: Seconds

    @classmethod
    def of(cls, profile: Profile, transport: str) -> NcclCosts:
        """Reads ``nccl.<transport>.*``. Raises CalibrationError when one is missing."""
        return cls(
            base=profile.value(f"nccl.{transport}.base"),
            step=profile.value(f"nccl.{transport}.step"),
            simple_extra=profile.value(f"nccl.{transport}.simple_extra"),
            ll128_extra=profile.value(f"nccl.{transport}.ll128_extra"),
            fence=profile.value("latency.fence_per_load"),
            ll_channel=profile.value(f"nccl.{transport}.ll_channel"),
            simple_channel=profile.value(f"nccl.{transport}.simple_channel"),
            share=profile.value(f"nccl.{transport}.share"),
            tree_share=profile.value("nccl.tree.thread_share"),
            tree_ll128_share=profile.value("nccl.tree.ll128_share"),
            smooth=profile.value("nccl.smooth"),
            cut_through=profile.value("nccl.cut_through"),
            receive=profile.value("nccl.receive"),
            copy_step=profile.value("nccl.copy_step"),
        )

    def fixed(self, protocol: str) -> Seconds:
        """The fixed cost of a call in a protocol (``LL``, ``LL128``, ``Simple``)."""
        return self.base + {"Simple": self.simple_extra, "LL128": self.ll128_extra}.get(protocol, 0.0)

    def rate(self, channels: int, channel: BytesPerSecond, link: BytesPerSecond) -> BytesPerSecond:
        """Payload rate that ``channels`` of a given rate reach together on a link of a given payload rate."""
        return smooth_minimum(channels * channel, link, self.smooth)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShotCosts:
    """A one-shot kernel: fixed cost, and the share of an isolated flow's rate that several peers at once reach."""

    base: Seconds
    share: float

    @classmethod
    def of(cls, profile: Profile, direction: str) -> OneShotCosts:
        """Reads ``oneshot.<push|pull>.*``. Raises CalibrationError when one is missing."""
        return cls(base=profile.value(f"oneshot.{direction}.base"), share=profile.value(f"oneshot.{direction}.share"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCosts:
    """Every communication parameter of a profile, read once.

    ``phase`` is what a kernel spends between two phases (reduce, synchronise its blocks, issue); ``host_base`` the
    fixed cost of a one-shot kernel through host memory; ``copy_step`` one copy-engine call with its stream wait;
    ``unmeasured`` the factor on every call's time of a box that nobody has measured.
    """

    routes: RouteCosts
    nccl_nvl: NcclCosts
    nccl_p2p: NcclCosts
    nccl_shm: NcclCosts
    push: OneShotCosts
    pull: OneShotCosts
    phase: Seconds
    host_base: Seconds
    copy_step: Seconds
    unmeasured: float = 1.0

    @classmethod
    def of(cls, profile: Profile) -> BackendCosts:
        """Raises CalibrationError when the profile lacks one of them."""
        return cls(
            routes=RouteCosts.of(profile),
            nccl_nvl=NcclCosts.of(profile, "nvl"),
            nccl_p2p=NcclCosts.of(profile, "p2p"),
            nccl_shm=NcclCosts.of(profile, "shm"),
            push=OneShotCosts.of(profile, "push"),
            pull=OneShotCosts.of(profile, "pull"),
            phase=profile.value("kernel.phase"),
            host_base=profile.value("oneshot.host.base"),
            copy_step=profile.value("copy.step"),
            unmeasured=profile.value(UNMEASURED) if UNMEASURED in profile else 1.0,
        )

    def fence(self, route: Route) -> Seconds:
        """The drain of a system fence after stores along a route."""
        return self.nccl_p2p.fence * self.routes.load(route)


def smooth_minimum(one: float, other: float, power: float) -> float:
    """(a^-p + b^-p)^(-1/p): below both, near the smaller where they differ much. Infinite p is the hard minimum."""
    low, high = min(one, other), max(one, other)
    if math.isinf(high) or math.isinf(power):
        return low
    return float(low * (1 + (low / high) ** power) ** (-1 / power))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One collective on one group: ``gpus`` are device names in rank order, ``nbytes`` each rank's input.

    All-gather: the shard. All-to-all: the whole of what a rank sends, its own block included; ``loads[s][t]`` is the
    share of it that rank s sends to t (empty: 1/n each). Broadcast: the root's tensor (rank 0). Send/recv: the message
    each rank sends to the next.
    """

    kind: CollectiveKind
    nbytes: Bytes
    fabric: Fabric
    gpus: tuple[str, ...]
    compute_capability: int
    costs: BackendCosts
    loads: tuple[tuple[float, ...], ...] = ()

    def block(self, source: int, target: int) -> Bytes:
        """Bytes that one rank sends another in an all-to-all."""
        return self.nbytes * self.loads[source][target] if self.loads else self.nbytes / len(self.gpus)

    @property
    def capacity(self) -> tuple[BytesPerSecond, ...]:
        """The fabric's links, then its constraints: what ``uses`` indexes."""
        fabric = self.fabric
        return tuple(link.bandwidth for link in fabric.links) + tuple(each.capacity for each in fabric.constraints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A program and how it came to be: what a library chose, and why. ``notes`` are what its reader must know."""

    program: Program
    algorithm: str
    protocol: str
    transport: str
    channels: int
    reason: str
    notes: tuple[str, ...] = ()
