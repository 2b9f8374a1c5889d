"""Strategies: what could be changed, as pure functions from a scenario to a scenario. One table, one file an idea."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pciesim.strategies.context_parallel import CONTEXT_PARALLEL
from pciesim.strategies.forced_p2p import FORCED_P2P, UNFORCED_P2P
from pciesim.strategies.fused_norm import FUSED_NORM
from pciesim.strategies.hierarchical import HIERARCHICAL
from pciesim.strategies.host_memory import ONESHOT_HOST
from pciesim.strategies.host_overlap import HOST_OVERLAP
from pciesim.strategies.nccl_choice import NCCL, NCCL_FORCED
from pciesim.strategies.nccl_settings import CHANNELS, GRAPH_FILE, NO_GRAPH_FILE, P2P_LEVEL
from pciesim.strategies.oneshot import ONESHOT_PULL, ONESHOT_PUSH, VLLM_ONE_STAGE
from pciesim.strategies.packets import COPY_RING, MSCCLPP, PCIE_IPC, SYMMETRIC_MEMORY
from pciesim.strategies.parallel import ALL_TO_ALL, ATTENTION_DATA, EXPERT_PARALLEL, PIPELINE, REPLICAS
from pciesim.strategies.peer_access import ACS_OFF, ACS_ON, P2P_OFF, P2P_ON
from pciesim.strategies.sequence_parallel import SEQUENCE_PARALLEL
from pciesim.strategies.slots import ADD_SWITCH, LINK_WIDTH, MOVE_CARD, RANK_ORDER
from pciesim.strategies.small_gather import GATHER_CANDIDATES
from pciesim.strategies.speculation import DRAFT_CHAIN, DRAFT_TREE
from pciesim.strategies.strategy import Strategy, Switch
from pciesim.strategies.sync_skip import LADDER, SYNC_SKIP
from pciesim.strategies.tiled_gemm import TILED_GEMM
from pciesim.strategies.two_batch import TWO_BATCH
from pciesim.strategies.twoshot import TWOSHOT_PULL, TWOSHOT_PUSH
from pciesim.strategies.wire import QUANTISED_WIRE

__all__ = ["STRATEGIES", "Strategy", "Switch"]

# In the order in which they are applied: the machine, the split, the library, then the schedule.
_ALL: Final = (
    MOVE_CARD, ADD_SWITCH, LINK_WIDTH, P2P_ON, P2P_OFF, ACS_OFF, ACS_ON, FORCED_P2P, UNFORCED_P2P, RANK_ORDER,
    REPLICAS, PIPELINE, EXPERT_PARALLEL, ATTENTION_DATA, ALL_TO_ALL, CONTEXT_PARALLEL,
    P2P_LEVEL, GRAPH_FILE, NO_GRAPH_FILE, CHANNELS,
    NCCL, *NCCL_FORCED, ONESHOT_PUSH, ONESHOT_PULL, VLLM_ONE_STAGE, ONESHOT_HOST, TWOSHOT_PUSH, TWOSHOT_PULL,
    HIERARCHICAL, MSCCLPP, PCIE_IPC, COPY_RING, SYMMETRIC_MEMORY, QUANTISED_WIRE,
    DRAFT_CHAIN, DRAFT_TREE,
    FUSED_NORM, SEQUENCE_PARALLEL, SYNC_SKIP, LADDER, GATHER_CANDIDATES, TWO_BATCH, TILED_GEMM, HOST_OVERLAP,
)  # fmt: skip

STRATEGIES: Final[Mapping[tuple[str, str], Strategy]] = MappingProxyType({
    (each.axis, each.name): each for each in _ALL
})  # fmt: skip
"""Every strategy by (axis, name), in the order of application."""
