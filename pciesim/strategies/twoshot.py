"""Two-shot all-reduce: reduce-scatter, then all-gather, each with direct stores or loads."""

from __future__ import annotations

from typing import Final

from pciesim.strategies.allreduce import chooses, needs_peers
from pciesim.strategies.oneshot import ONESHOT_PUSH
from pciesim.strategies.strategy import Strategy

__all__ = ["TWOSHOT_PULL", "TWOSHOT_PUSH"]

TWOSHOT_PUSH: Final = Strategy(
    axis="allreduce",
    name="twoshot-push",
    sentence="ranks store shares to their owners, which add them and store the sums to all",
    source="FlashInfer PCIe-IPC two-shot sentinel",
    apply=chooses("twoshot-push"),
    obstacle=needs_peers,
    turn_on=ONESHOT_PUSH.turn_on,
    number="2 traversals a call",
    size="2 (n - 1) / n S through each port",
    criticality="exposed",
    risk="experimental; peer-to-peer must be checked for right data first",
    hurts="the smallest messages: one traversal and one phase more than one-shot",
)

TWOSHOT_PULL: Final = Strategy(
    axis="allreduce",
    name="twoshot-pull",
    sentence="each rank loads its share from all peers and adds, then loads the sums of the others",
    source="vllm-project/vllm cross_device_reduce_2stage",
    apply=chooses("twoshot-pull"),
    obstacle=needs_peers,
    number="two barriers and two loads a call",
    size="2 (n - 1) / n S through each port",
    criticality="exposed",
    risk="stock engines refuse it on more than two GPUs without full NVLink",
    hurts="small messages: twice the traversals of one-shot pull",
)
