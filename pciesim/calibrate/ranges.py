"""What is physically possible of each parameter that a fit may move, and which measurement settles it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pciesim.calibrate.fit import Free
from pciesim.profile import Profile
from pciesim.units import GB, NS, US

__all__ = ["RANGES", "Range", "free_of", "settles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds in SI units, and the experiment of ``pciesim measure`` that tells the parameter."""

    least: float
    most: float
    settled_by: str


# Looked through from the top; a pattern stands for the parameters of every transport.
RANGES: Final[Mapping[str, Range]] = {
    "nccl.*.base": Range(least=0.5 * US, most=40 * US, settled_by="nccl_sizes: all-reduce and all-gather of 512 B"),
    "nccl.*.step": Range(least=20 * NS, most=8 * US,
                         settled_by="nccl_sizes with two and with four or more GPUs: the hops of a ring differ"),
    "nccl.*.ll_channel": Range(least=0.3 * GB, most=60 * GB, settled_by="nccl_channels: LL with 1, 2 and 4 channels"),
    "nccl.*.simple_channel": Range(least=1 * GB, most=120 * GB,
                                   settled_by="nccl_channels: Simple with 1, 2 and 4 channels"),
    "nccl.*.simple_extra": Range(least=50 * NS, most=40 * US, settled_by="nccl_forced: Ring Simple of 1 to 32 KiB"),
    "nccl.*.share": Range(least=0.2, most=1.0, settled_by="nccl_channels: Simple with 8 and 16 channels at 16 MiB"),
    "nccl.*.ll128_extra": Range(least=50 * NS, most=40 * US, settled_by="nccl_forced: Ring LL128 of 1 to 32 KiB"),
    "nccl.tree.ll128_share": Range(least=0.1, most=1.0, settled_by="nccl_forced: Tree LL128 and Ring LL128 at 1 MiB"),
    "nccl.tree.thread_share": Range(least=0.1, most=1.0, settled_by="nccl_forced: Tree LL and Ring LL at 1 MiB"),
    "nccl.receive": Range(least=0.05, most=1.0, settled_by="nccl_sizes: all-gather beside all-reduce above 4 MiB"),
    "nccl.cut_through": Range(least=0.01, most=1.0, settled_by="nccl_forced: Ring LL of 64 KiB to 1 MiB, four GPUs"),
    "nccl.smooth": Range(least=0.7, most=16.0, settled_by="nccl_channels: 1 to 16 channels at 1 to 16 MiB"),
    "nccl.copy_step": Range(least=1 * US, most=80 * US, settled_by="all-reduce with NCCL_SHM_USE_CUDA_MEMCPY=1"),
    "oneshot.*.base": Range(least=0.3 * US, most=20 * US, settled_by="oneshot_peer, oneshot_host: 1 to 8 KiB"),
    "oneshot.*.share": Range(least=0.1, most=1.0,
                             settled_by="oneshot_peer, oneshot_host: 256 KiB and more, four GPUs or more"),
    "kernel.phase": Range(least=50 * NS, most=10 * US, settled_by="a two-shot kernel beside a one-shot one"),
    "share.nvlink": Range(least=0.2, most=1.0, settled_by="sm_copies over NVLink"),
    "share.*": Range(least=0.1, most=1.0, settled_by="sm_copies, host_copies: one flow alone"),
    "latency.host_store": Range(least=50 * NS, most=3 * US, settled_by="latency_host: flags through host memory"),
    "latency.host_load": Range(least=0.3 * US, most=6 * US, settled_by="latency_host: load chain"),
    "latency.fence_per_load": Range(least=0.3, most=4.0, settled_by="latency_host, latency_peer: fences"),
    "latency.*": Range(least=10 * NS, most=3 * US, settled_by="latency_peer: load chains and flags between all pairs"),
}  # fmt: skip


def free_of(profile: Profile, names: tuple[str, ...], *, believed: bool = False) -> dict[str, Free]:
    """The named parameters as things to fit, from where the profile has them.

    ``believed``: its intervals say where they may be (it is of another box with this GPU); else all that is possible.
    """
    found: dict[str, Free] = {}
    for name in names:
        bounds = _range(name)
        if bounds is not None:
            known = profile.parameter(name)
            start = min(max(known.value, bounds.least), bounds.most)
            low, high = (known.low, known.high) if believed else (None, None)
            found[name] = Free(start=start, least=bounds.least, most=bounds.most, low=low, high=high)
    return found


def settles(name: str) -> str:
    """The measurement that would tell a parameter."""
    bounds = _range(name)
    return bounds.settled_by if bounds else "no measurement of pciesim's: see its source"


def _range(name: str) -> Range | None:
    return next((each for pattern, each in RANGES.items() if fnmatch.fnmatchcase(name, pattern)), None)
