"""The ordered ops of one forward pass, per rank, as a serving engine issues them.

Two kinds of op. :class:`Compute` names a kernel by what it is and its shape, not by its time; :class:`Collective` names
an operation over a group of ranks and the bytes each rank passes in, not how it runs. Every rank of a tensor-parallel
group issues the same list, so one list stands for all; under pipeline parallelism the list is the path of one
micro-batch through all stages, and ``stage`` says where an op runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pciesim.model import Precision
from pciesim.units import Bytes, Flop

__all__ = [
    "Category", "Collective", "CollectiveKind", "Compute", "DecodeAttention", "DeltaRule", "Elementwise", "Gemm",
    "Host", "Kernel", "Op", "RoutedExperts", "Rule", "Schedule", "SparseIndex",
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
    STATE_SPACE = "state_space"
    SPARSE_INDEX = "sparse_index"
    GEMM_OTHER = "gemm_residual_mixing_and_drafts"
    SMALL = "small_kernels_and_launch_gaps"
    ALL_REDUCE = "all_reduce"
    TOKEN_EXCHANGE = "token_exchange"  # gathers and scatters of rows around mixers and MLPs
    CONTEXT_EXCHANGE = "context_exchange"  # queries and partial outputs of attention over a spread KV cache
    PIPELINE = "pipeline_transfers"
    LOGITS_GATHER = "logits_gather"
    SAMPLING = "sampling_broadcasts"
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

    ``intermediate`` is the whole expert's width; ``tp`` cuts it, ``ep`` spreads the experts over ranks. ``gated``
    experts have three matrices, others two (Nemotron). ``alike`` is the share of a token's experts that it has in
    common with the token before it in its own sequence (drafts under verification), ``group`` the tokens a sequence.
    """

    tokens: int
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    tp: int
    ep: int
    precision: Precision
    gated: bool = True
    group: int = 1
    alike: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention:
    """Attention of ``batch`` sequences, each ``new_tokens`` queries over ``context`` keys; head counts of one rank.

    ``value_dim`` 0 is ``head_dim``. ``latent``: values are a part of the keys, so the cache holds (and the kernel
    reads) keys only (MLA at decode, DeepSeek-V4). Prompt tokens attend to each other: ``context`` is then the mean
    number of keys a query sees.
    """

    batch: int
    new_tokens: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    kv_precision: Precision
    value_dim: int = 0
    latent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseIndex:
    """Scores of ``batch`` x ``new_tokens`` queries against ``context`` index keys, and the ``top_k`` best of them."""

    batch: int
    new_tokens: int
    context: int
    heads: int
    head_dim: int
    top_k: int


class Rule(StrEnum):
    """Recurrences that share the shape of a state [heads, key dim, value dim] and a short convolution."""

    GATED_DELTA = "gated_delta"
    KIMI_DELTA = "kimi_delta"
    MAMBA2 = "mamba2"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRule:
    """Convolution update and recurrence of one rank's heads, for ``batch`` sequences."""

    batch: int
    new_tokens: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    hidden: int
    rule: Rule = Rule.GATED_DELTA
    state_precision: Precision = Precision.FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """A small memory-bound kernel (norm, activation, add, rope, top-k, ...). ``kind`` selects its floor.

    ``width`` is the length of an output row in elements (0: not known). Norm kernels take longer for wide rows.
    """

    kind: str
    nbytes: Bytes
    width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Time in which the GPUs wait for the host: between two steps of an engine, or around a pass of its draft head."""

    engine: str
    place: str = "step"


Kernel: TypeAlias = Gemm | RoutedExperts | DecodeAttention | SparseIndex | DeltaRule | Elementwise | Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A kernel on a stream. ``nbytes`` is what it must move through device memory, ``flop`` what it must compute."""

    name: str
    category: Category
    kernel: Kernel
    nbytes: Bytes
    flop: Flop
    stream: int = 0
    stage: int = 0


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
    """``nbytes`` is the tensor each rank passes in (all-gather: its shard). ``ranks`` is the group's size.

    ``group`` and ``stage`` say which ranks: see :mod:`pciesim.schedule.groups`. ``precision`` is the elements': custom
    all-reduce kernels serve bf16 only. ``graph`` False: launched eagerly, outside the CUDA graph.
    """

    name: str
    category: Category
    kind: CollectiveKind
    nbytes: int
    ranks: int
    stream: int = 0
    stage: int = 0
    group: str = "tp"
    precision: Precision = Precision.BF16
    graph: bool = True


Op: TypeAlias = Compute | Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The ops of one pass in issue order. ``after[i]`` lists the ops that op i waits for (indices below i).

    An op also waits for the previous op of its own stream; ``after`` holds the waits across streams. Stage s of a
    pipeline has the streams 2 s (main) and 2 s + 1 (beside it).
    """

    ops: tuple[Op, ...]
    after: tuple[tuple[int, ...], ...]

    @classmethod
    def joined(cls, schedules: Sequence[Schedule], *, overlapping: bool = False) -> Schedule:
        """Several passes one after the other. ``overlapping`` ones wait only where they share a stream.

        Chunks of a prompt follow each other through a pipeline; a verification waits for its drafts.
        """
        if len(schedules) == 1:
            return schedules[0]
        ops: list[Op] = []
        after: list[tuple[int, ...]] = []
        for schedule in schedules:
            first = len(ops)
            ops += schedule.ops
            after += [tuple(first + other for other in waits) for waits in schedule.after]
            if first and not overlapping and ops[first].stream != ops[first - 1].stream:
                after[first] = (first - 1, *after[first])
        return cls(ops=tuple(ops), after=tuple(after))
