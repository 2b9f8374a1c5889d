"""What a run says: collectives to fit to, and figures that are parameters as they stand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pciesim.calibrate.points import Point

__all__ = ["Reading", "Run", "What"]


class What(StrEnum):
    """Kinds of direct readings. Seconds, except the rates (bytes/s of payload)."""

    HOST_LOAD = "host_load"  # dependent load of host memory
    PEER_LOAD = "peer_load"  # dependent load of a peer's memory
    HOST_FLAG = "host_flag"  # round trip of a flag in host memory
    PEER_FLAG = "peer_flag"  # round trip of flags, each in the memory of who polls it
    HOST_FENCE = "host_fence"  # a fence after stores to host memory, over the stores alone
    PEER_FENCE = "peer_fence"
    HOST_COPY = "host_copy"  # copy engine, one GPU and host memory
    PEER_COPY = "peer_copy"
    HOST_STORE = "host_store"  # kernel that stores
    PEER_STORE = "peer_store"
    HOST_LOADING = "host_loading"  # kernel that loads, bytes/s
    PEER_LOADING = "peer_loading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One figure of one GPU, or of a pair (the first acts). ``low`` and ``high`` are what repeats gave."""

    what: What
    gpus: tuple[int, ...]
    value: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything one folder or file says. ``hashes`` are (file name, sha256), sorted; ``notes`` what to know."""

    name: str
    points: tuple[Point, ...]
    readings: tuple[Reading, ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
