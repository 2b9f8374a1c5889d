"""The table of algorithms: a name a user can type, and the catalogue line it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pciesim.collectives import (
    compressed,
    copy_engine,
    doubling,
    hierarchical,
    host,
    nccl_entries,
    oneshot,
    packets,
    pcie_ipc,
    permutation,
    refused,
    twoshot,
)
from pciesim.collectives.collapse import with_collapse
from pciesim.collectives.entry import AlgorithmEntry
from pciesim.collectives.nccl_model import Protocol
from pciesim.collectives.program import Program
from pciesim.collectives.task import Lowered, Task
from pciesim.errors import Infeasible, UnknownName

__all__ = ["ALGORITHMS", "AlgorithmEntry", "lower"]

ALGORITHMS: Final[Mapping[str, AlgorithmEntry]] = MappingProxyType({
    "nccl": nccl_entries.CHOICE,
    "nccl-ring-ll": nccl_entries.ring(Protocol.LL),
    "nccl-ring-ll128": nccl_entries.ring(Protocol.LL128),
    "nccl-ring-simple": nccl_entries.ring(Protocol.SIMPLE),
    "nccl-tree-ll": nccl_entries.tree(Protocol.LL),
    "nccl-tree-ll128": nccl_entries.tree(Protocol.LL128),
    "nccl-tree-simple": nccl_entries.tree(Protocol.SIMPLE),
    "nccl-shm-memcpy": nccl_entries.MEMCPY,
    "oneshot-push": oneshot.PUSH,
    "oneshot-pull": oneshot.PULL,
    "oneshot-host": host.HOST,
    "twoshot-push": twoshot.PUSH,
    "twoshot-pull": twoshot.PULL,
    "twoshot-push-fp8": compressed.twoshot_push("fp8"),
    "twoshot-push-int8": compressed.twoshot_push("int8"),
    "twoshot-push-nvfp4": compressed.twoshot_push("nvfp4"),
    "hierarchical": hierarchical.PUSH,
    "hierarchical-pull": hierarchical.PULL,
    "hierarchical-oneshot-pull": hierarchical.ONESHOT_PULL,
    "hierarchical-leader": hierarchical.LEADER,
    "recursive-doubling": doubling.RECURSIVE,
    "halving-doubling": doubling.HALVING,
    "staged-permutation": permutation.STAGED,
    "mscclpp": packets.MSCCLPP,
    "mscclpp-allpairs": packets.ALL_PAIRS,
    "mscclpp-2phase": packets.TWO_PHASE,
    "pcie-ipc": pcie_ipc.PCIE_IPC,
    "vllm-1stage": oneshot.VLLM_1STAGE,
    "vllm-2stage": twoshot.VLLM_2STAGE,
    "trtllm-twoshot": twoshot.TRTLLM,
    "ce-ring": copy_engine.CE_RING,
    "ce-ring-fp8": compressed.ce_ring("fp8"),
    "ce-ring-int8": compressed.ce_ring("int8"),
    "ce-ring-nvfp4": compressed.ce_ring("nvfp4"),
    "symm-mem": refused.SYMM_MEM,
    "multimem": refused.MULTIMEM,
    "nccl-nvls": refused.NVLS,
    "nccl-symmetric": refused.NCCL_SYMMETRIC,
})  # fmt: skip


def lower(name: str, task: Task) -> Lowered:
    """Lowers a collective by the algorithm of that name.

    Raises UnknownName for a name not in the table, Infeasible where the algorithm cannot run on this fabric or does
    not serve this collective.
    """
    try:
        entry = ALGORITHMS[name]
    except KeyError:
        raise UnknownName("all-reduce algorithm", name, ALGORITHMS) from None
    if task.kind not in entry.kinds:
        raise Infeasible(f"'{name}' does not serve {task.kind}")
    if len(task.gpus) == 1:
        program = Program(name=name, ranks=1, steps=(), capacity=task.capacity, chunks=1)
        return Lowered(program=program, algorithm=name, protocol="", transport="", channels=0, reason="one rank")
    entry.needs.check(name, task)
    return with_collapse(task, entry.lower(task))
