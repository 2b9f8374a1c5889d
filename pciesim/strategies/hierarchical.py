"""All-reduce by islands: reduce inside a switch or a socket, cross once, spread inside."""

from __future__ import annotations

from typing import Final

from pciesim.strategies.allreduce import chooses, needs_peers
from pciesim.strategies.oneshot import ONESHOT_PUSH
from pciesim.strategies.strategy import Strategy

__all__ = ["HIERARCHICAL"]

HIERARCHICAL: Final = Strategy(
    axis="allreduce",
    name="hierarchical",
    sentence="reduce-scatter inside each island of GPUs, exchange between islands, all-gather inside",
    source="FlashInfer PCIe-IPC topo_rsag8; vllm-project/vllm pull request 50941; b12x island_rs",
    apply=chooses("hierarchical"),
    obstacle=needs_peers,
    turn_on=ONESHOT_PUSH.turn_on,
    number="3 traversals a call by stores, 6 to 9 by loads",
    size="only S / k a GPU crosses between islands of k GPUs",
    criticality="exposed",
    risk="experimental; the islands must be equal and named right",
    hurts="small messages: two phases more than one-shot",
)
