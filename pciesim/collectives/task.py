"""What a lowering is given and what it gives back; the parameters of communication backends."""

from __future__ import annotations

from dataclasses import dataclass

from pciesim.collectives.program import Program
from pciesim.fabric import Fabric
from pciesim.physics import RouteCosts
from pciesim.profile import Profile
from pciesim.schedule import CollectiveKind
from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = ["BackendCosts", "Lowered", "NcclCosts", "OneShotCosts", "Task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCosts:
    """NCCL on one transport. A ring hop costs the route's latency plus ``step``; a call costs ``base`` once.

    ``simple_extra`` is what the Simple protocol adds to ``base``; ``fence`` is a fence's drain time as a multiple of
    the route's load round trip; ``ll_channel`` the payload rate one LL channel sustains.
    """

    base: Seconds
    step: Seconds
    simple_extra: Seconds
    fence: float
    ll_channel: BytesPerSecond

    @classmethod
    def of(cls, profile: Profile, transport: str) -> NcclCosts:
        """Reads ``nccl.<transport>.*``. Raises CalibrationError when one is missing."""
        return cls(
            base=profile.value(f"nccl.{transport}.base"),
            step=profile.value(f"nccl.{transport}.step"),
            simple_extra=profile.value("nccl.simple.extra"),
            fence=profile.value("latency.fence_per_load"),
            ll_channel=profile.value(f"nccl.{transport}.ll_channel"),
        )


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
    """Every communication parameter of a profile, read once."""

    routes: RouteCosts
    nccl_nvl: NcclCosts
    nccl_p2p: NcclCosts
    nccl_shm: NcclCosts
    push: OneShotCosts
    pull: OneShotCosts

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
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One collective on one group: ``gpus`` are device names in rank order, ``nbytes`` each rank's input."""

    kind: CollectiveKind
    nbytes: Bytes
    fabric: Fabric
    gpus: tuple[str, ...]
    compute_capability: int
    costs: BackendCosts

    @property
    def capacity(self) -> tuple[BytesPerSecond, ...]:
        """The fabric's links, then its constraints: what ``uses`` indexes."""
        fabric = self.fabric
        return tuple(link.bandwidth for link in fabric.links) + tuple(each.capacity for each in fabric.constraints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A program and how it came to be: what a library chose, and why."""

    program: Program
    algorithm: str
    protocol: str
    transport: str
    channels: int
    reason: str
