"""A serving engine as data: which kernels it issues around the GEMMs, and which all-reduce it picks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["AllReduceRule", "EngineSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceRule:
    """One line of an engine's dispatch: the first rule whose conditions hold serves the all-reduce.

    ``worlds`` empty is any size; ``max_bytes`` 0 is no limit. ``why`` is what the engine's source says, for the user.
    """

    algorithm: str
    worlds: tuple[int, ...] = ()
    max_bytes: int = 0
    needs_p2p: bool = False
    needs_nvlink: bool = False
    why: str = ""

    def applies(self, *, world: int, nbytes: int, p2p: bool, nvlink: bool) -> bool:
        """Whether this rule serves an all-reduce of ``nbytes`` over ``world`` ranks."""
        return (
            (not self.worlds or world in self.worlds)
            and (not self.max_bytes or nbytes <= self.max_bytes)
            and (p2p or not self.needs_p2p)
            and (nvlink or not self.needs_nvlink)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """An engine and version.

    ``small_kernels`` maps a place in the layer to the small kernels issued there, in order. ``expert_backends`` maps a
    precision of the routed experts to the kernel backend that serves it. ``side_stream`` says that shared experts and
    small projections run beside the main stream inside a CUDA graph. ``host_parameter`` names the profile's figure for
    the host's time between steps.
    """

    name: str
    title: str
    version: str
    all_reduce: tuple[AllReduceRule, ...]
    small_kernels: Mapping[str, tuple[str, ...]]
    expert_backends: Mapping[str, str]
    attention_backend: str
    side_stream: bool
    host_parameter: str
    source: str

    def rule(self, *, world: int, nbytes: int, p2p: bool, nvlink: bool) -> AllReduceRule:
        """The rule that serves an all-reduce; the last rule of an engine has no conditions."""
        return next(
            rule for rule in self.all_reduce if rule.applies(world=world, nbytes=nbytes, p2p=p2p, nvlink=nvlink)
        )
