"""One-shot all-reduce through host memory, for boxes whose GPUs cannot reach each other."""

from __future__ import annotations

from typing import Final

from pciesim.strategies.allreduce import chooses
from pciesim.strategies.strategy import Strategy

__all__ = ["ONESHOT_HOST"]

ONESHOT_HOST: Final = Strategy(
    axis="allreduce",
    name="oneshot-host",
    sentence="each rank stores its tensor once into host memory and loads every other rank's from there",
    source="own inference from measured host-memory latencies (2x H200); no engine has it",
    apply=chooses("oneshot-host"),
    number="3 traversals a hop x 2 (n - 1) hops -> 3 traversals a call",
    size="S up and (n - 1) S down each rank's link",
    criticality="exposed",
    risk="hypothetical kernel: its fixed cost is assumed",
    hurts="large messages: every rank reads n - 1 tensors through one memory controller",
)
