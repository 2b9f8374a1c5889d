"""The table of algorithms: a name a user can type, and the lowering it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from pciesim.collectives.nccl import lower_nccl
from pciesim.collectives.nccl_model import Algorithm, Protocol
from pciesim.collectives.oneshot import lower_pull, lower_push
from pciesim.collectives.task import Lowered, Task
from pciesim.errors import Infeasible, UnknownName
from pciesim.schedule import CollectiveKind

__all__ = ["ALGORITHMS", "AlgorithmEntry", "lower"]

_RINGS: Final = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER})
_REDUCE: Final = frozenset({CollectiveKind.ALL_REDUCE})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmEntry:
    """A lowering, the collectives it serves, whether it needs peer-to-peer, one sentence and its source."""

    lower: Callable[[Task], Lowered]
    kinds: frozenset[CollectiveKind]
    needs_p2p: bool
    about: str


def _nccl(algorithm: Algorithm, protocol: Protocol) -> Callable[[Task], Lowered]:
    return partial(lower_nccl, algorithm=algorithm, protocol=protocol)


ALGORITHMS: Final[Mapping[str, AlgorithmEntry]] = MappingProxyType({
    "nccl": AlgorithmEntry(lower=lower_nccl, kinds=_RINGS, needs_p2p=False,
                           about="NCCL as it would choose itself"),
    "nccl-ring-ll": AlgorithmEntry(lower=_nccl(Algorithm.RING, Protocol.LL), kinds=_RINGS, needs_p2p=False,
                                   about="NCCL ring, LL protocol (NCCL_ALGO=Ring NCCL_PROTO=LL)"),
    "nccl-ring-simple": AlgorithmEntry(lower=_nccl(Algorithm.RING, Protocol.SIMPLE), kinds=_RINGS, needs_p2p=False,
                                       about="NCCL ring, Simple protocol"),
    "nccl-tree-ll": AlgorithmEntry(lower=_nccl(Algorithm.TREE, Protocol.LL), kinds=_REDUCE, needs_p2p=False,
                                   about="NCCL tree (a chain on one node), LL protocol"),
    "nccl-tree-simple": AlgorithmEntry(lower=_nccl(Algorithm.TREE, Protocol.SIMPLE), kinds=_REDUCE, needs_p2p=False,
                                       about="NCCL tree (a chain on one node), Simple protocol"),
    "oneshot-push": AlgorithmEntry(lower=lower_push, kinds=_REDUCE, needs_p2p=True,
                                   about="sentinel one-shot push (TensorRT-LLM, FlashInfer PCIe-IPC unstaged)"),
    "oneshot-pull": AlgorithmEntry(lower=lower_pull, kinds=_REDUCE, needs_p2p=True,
                                   about="one-shot pull behind a flag barrier, double-buffered (b12x, SGLang forks)"),
    "vllm-1stage": AlgorithmEntry(lower=partial(lower_pull, end_barrier=True), kinds=_REDUCE, needs_p2p=True,
                                  about="vLLM's custom one-stage all-reduce: pull between two flag barriers"),
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
    if entry.needs_p2p and not task.fabric.nccl.p2p:
        raise Infeasible(f"'{name}' needs peer-to-peer, which is off on '{task.fabric.name}'")
    return entry.lower(task)
