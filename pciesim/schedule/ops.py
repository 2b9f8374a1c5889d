"""The ordered ops of one forward pass, per rank, as a serving engine issues them.

Two kinds of op. :class:`Compute` names a kernel by what it is and its shape, not by its time; :class:`Collective` names
an operation over a group of ranks and the bytes each rank passes in, not how it runs. Every rank of a tensor-parallel
group issues the same list, so one list stands for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pciesim.model import Precision
from pciesim.units import Bytes, Flop

__all__ = [
    "Category", "Collective", "CollectiveKind", "Compute", "DecodeAttention", "DeltaRule", "Elementwise", "Gemm", "Host",
    "Kernel", "Op", "RoutedExperts", "Schedule",
]  # fmt: skip


class Category(StrEnum):
    """The rows of the breakdown a user reads."""

    GEMM_MIXER = "gemm_attention_projections"
    GEMM_MLP = "gemm_dense_and_shared_experts"
    GEMM_ROUTER = "gemm_router"
    GEMM_HEAD = "gemm_lm_head"
    EXPERTS = "routed_experts"
    ATTENTION = "attention"
    DELTA_RULE = "gated_delta_rule"
    SMALL = "small_kernels_and_launch_gaps"
    ALL_REDUCE = "all_reduce"
    LOGITS_GATHER = "logits_gather"
    HOST = "host_between_steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """[m, k] x [k, n]; ``precision`` is that of the weights."""

    m: int
    n: int
    k: int
    precision: Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedExperts:
    """All routed experts of one layer on one rank: quantise, permute, two grouped GEMMs, finalise.

    ``intermediate`` is the whole expert's width; ``tp`` cuts it, ``ep`` spreads the experts over ranks.
    """

    tokens: int
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    tp: int
    ep: int
    precision: Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention:
    """Attention of ``batch`` sequences, each ``new_tokens`` queries over ``context`` keys; head counts of one rank."""

    batch: int
    new_tokens: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    kv_precision: Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRule:
    """Convolution update and gated delta rule of one rank's heads, for ``batch`` sequences."""

    batch: int
    new_tokens: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """A small memory-bound kernel (norm, activation, add, rope, top-k, ...). ``kind`` selects its floor."""

    kind: str
    nbytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Time in which the GPUs wait for the host between two steps of an engine."""

    engine: str


Kernel: TypeAlias = Gemm | RoutedExperts | DecodeAttention | DeltaRule | Elementwise | Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A kernel on a stream. ``nbytes`` is what it must move through device memory, ``flop`` what it must compute."""

    name: str
    category: Category
    kernel: Kernel
    nbytes: Bytes
    flop: Flop
    stream: int = 0


class CollectiveKind(StrEnum):
    """The operations of a communication library."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """``nbytes`` is the tensor each rank passes in (all-gather: its shard). ``ranks`` is the group's size."""

    name: str
    category: Category
    kind: CollectiveKind
    nbytes: int
    ranks: int
    stream: int = 0


Op: TypeAlias = Compute | Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The ops of one pass in issue order. ``after[i]`` lists the ops that op i waits for (indices below i).

    An op also waits for the previous op of its own stream; ``after`` holds the waits across streams.
    """

    ops: tuple[Op, ...]
    after: tuple[tuple[int, ...], ...]
