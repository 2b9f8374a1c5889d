"""Token mixers that keep keys and values of past tokens, and the absent one. Each lists weights, caches and sums.

Every mixer answers the same six questions, for a residual stream of ``hidden`` columns:

- ``linears(hidden)``: its matrices, in the order of use;
- ``vectors(hidden)``: its small weights;
- ``sums(hidden)``: the all-reduces that tensor parallelism needs after it;
- ``kv_bytes_per_token(tp, kv_precision)``: cache bytes per token and rank, before any window (``window`` 0: none);
- ``state_bytes_per_sequence(tp)``: bytes per sequence and rank that do not grow with context;
- ``spread(tp, ways)``: consecutive ranks over which decode context parallelism of so many ways spreads the tokens of a
  sequence: ``ways`` where that many hold copies of one cache, else 1.

Mixers with a recurrent state are in :mod:`pciesim.model.recurrent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pciesim.model.weights import Linear, Module, Overrides, Precision, Split, Sum, Vector, at_precision

__all__ = ["Absent", "Attention", "CompressedAttention", "Indexer", "Mla", "QkNorm"]


class QkNorm(StrEnum):
    """Where queries and keys are normalised. Over the whole projection the norm spans ranks and costs a sum."""

    NONE = "none"
    HEAD = "head"
    PROJECTION = "projection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """No mixer, or no MLP: Nemotron's blocks are one or the other. No weights, no norm, no sum."""

    window: ClassVar[int] = 0

    def linears(self, hidden: int) -> tuple[Linear, ...]:  # noqa: ARG002
        """None."""
        return ()

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """None."""
        return ()

    def sums(self, hidden: int) -> tuple[Sum, ...]:  # noqa: ARG002
        """None."""
        return ()

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:  # noqa: ARG002
        """None."""
        return 0.0

    def state_bytes_per_sequence(self, tp: int) -> float:  # noqa: ARG002
        """None."""
        return 0.0

    def spread(self, tp: int, ways: int) -> int:  # noqa: ARG002
        """Nothing to spread."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Selects the past tokens that sparse attention reads. Replicated on every rank, so it needs no sum.

    ``weighted`` adds a projection that weighs the heads, and a LayerNorm with bias on keys (DeepSeek, GLM); without it,
    queries and keys have an RMSNorm each (MiniMax-M3). Queries come from the query latent where the mixer has one.
    """

    heads: int
    head_dim: int
    weighted: bool = True
    precision: Precision = Precision.BF16

    def linears(self, hidden: int, query_inputs: int) -> tuple[Linear, ...]:
        """Query, key and head-weight projections."""
        sizes = [
            ("index_q_proj", query_inputs, self.heads * self.head_dim),
            ("index_k_proj", hidden, self.head_dim),
        ]
        if self.weighted:
            sizes.append(("index_weights_proj", hidden, self.heads))
        return tuple(
            Linear(name=name, inputs=inputs, outputs=outputs, split=Split.REPLICATED, precision=self.precision,
                   fused=name, module=Module.INDEXER)
            for name, inputs, outputs in sizes
        )  # fmt: skip

    def vectors(self) -> tuple[Vector, ...]:
        """Norms of keys (weight and bias), or of queries and keys."""
        return (Vector(name="index_norm", parameters=2 * self.head_dim),)

    def kv_bytes_per_token(self) -> float:
        """One FP8 key and its fp32 scale, as SGLang and vLLM keep them."""
        return self.head_dim * Precision.FP8.bytes_per_parameter + Precision.FP32.bytes_per_parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query attention. ``window`` 0 is full attention, else only the last ``window`` tokens are kept.

    ``output_gate`` doubles the query projection (Qwen3.5); ``head_gate`` adds one gate per head (Step-3: a few columns,
    taken as bf16). ``value_dim`` 0 means ``head_dim``. ``shared_kv`` derives values from the key projection (Gemma 4's
    full layers); both are still cached. ``sinks`` adds one logit per head (gpt-oss). ``sparse_top_k`` (0: all) is how
    many past tokens a query reads, chosen by ``indexer``.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0
    output_gate: bool = False
    head_gate: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    qkv_bias: bool = False
    output_bias: bool = False
    shared_kv: bool = False
    sinks: bool = False
    window: int = 0
    sparse_top_k: int = 0
    indexer: Indexer | None = None
    precision: Precision = Precision.BF16
    overrides: Overrides = ()

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """The indexer's, then q, k, v in one GEMM, the head gate, o."""
        width, values = self.heads * self.head_dim, self.value_dim or self.head_dim
        linears = [
            Linear(name="q_proj", inputs=hidden, outputs=width * (2 if self.output_gate else 1), split=Split.COLUMN,
                   precision=self.precision, units=self.heads, fused="qkv_proj", bias=self.qkv_bias),
            Linear(name="k_proj", inputs=hidden, outputs=self.kv_heads * self.head_dim, split=Split.KV_HEADS,
                   precision=self.precision, units=self.kv_heads, fused="qkv_proj", bias=self.qkv_bias),
            Linear(name="v_proj", inputs=hidden, outputs=self.kv_heads * values, split=Split.KV_HEADS,
                   precision=self.precision, units=self.kv_heads, fused="qkv_proj", bias=self.qkv_bias),
            Linear(name="g_proj", inputs=hidden, outputs=self.heads, split=Split.COLUMN, precision=Precision.BF16,
                   units=self.heads, fused="g_proj"),
            Linear(name="o_proj", inputs=self.heads * values, outputs=hidden, split=Split.ROW,
                   precision=self.precision, units=self.heads, fused="o_proj", bias=self.output_bias),
        ]  # fmt: skip
        absent = {"v_proj": self.shared_kv, "g_proj": not self.head_gate}
        kept = tuple(linear for linear in linears if not absent.get(linear.name))
        index = self.indexer.linears(hidden, hidden) if self.indexer else ()
        return at_precision(index + kept, self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """Query and key norms, sinks."""
        vectors = list(self.indexer.vectors()) if self.indexer else []
        if self.qk_norm is QkNorm.HEAD:
            vectors.append(Vector(name="qk_norm", parameters=2 * self.head_dim))
        elif self.qk_norm is QkNorm.PROJECTION:
            width = (self.heads + self.kv_heads) * self.head_dim
            vectors.append(Vector(name="qk_norm", parameters=width, split=True))
        if self.sinks:
            vectors.append(Vector(name="sinks", parameters=self.heads, split=True))
        return tuple(vectors)

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """After o_proj; a norm over the whole projection first sums one fp32 for q and one for k."""
        out = Sum(after="o_proj", columns=hidden)
        if self.qk_norm is QkNorm.PROJECTION:
            return (Sum(after="qk_norm", columns=2, precision=Precision.FP32), out)
        return (out,)

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:
        """Keys and values of the rank's KV heads: at least one, replicated where TP exceeds them."""
        width = self.head_dim + (self.value_dim or self.head_dim)
        index = self.indexer.kv_bytes_per_token() if self.indexer else 0.0
        return max(1, self.kv_heads // tp) * width * kv_precision.bytes_per_parameter + index

    def state_bytes_per_sequence(self, tp: int) -> float:  # noqa: ARG002
        """None: everything grows with context (up to the window)."""
        return 0.0

    def spread(self, tp: int, ways: int) -> int:
        """Over ranks that would hold the same KV head: TP / KV heads of them in a row. A window is kept whole."""
        copies, rest = divmod(tp, self.kv_heads)
        return ways if copies and not rest and copies % ways == 0 and not self.window else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Multi-head latent attention (DeepSeek, Kimi, GLM-5): keys and values are cached as one latent per token.

    ``q_latent`` 0 projects queries directly. Down-projections and the cache are replicated on every rank; heads are
    split. ``output_gate`` multiplies the output by a projection of the input (Kimi-K3). ``sparse_top_k`` as in
    :class:`Attention`; a layer without ``indexer`` reuses the choice of an earlier one (GLM-5.2).
    """

    heads: int
    q_latent: int
    kv_latent: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    output_gate: bool = False
    sparse_top_k: int = 0
    indexer: Indexer | None = None
    precision: Precision = Precision.BF16
    overrides: Overrides = ()

    window: ClassVar[int] = 0

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """q_a and kv_a in one GEMM, the indexer's, q_b, kv_b (absorbed into two products at decode), gate, o."""
        queries, values = self.heads * (self.nope_dim + self.rope_dim), self.heads * self.value_dim
        cache = self.kv_latent + self.rope_dim
        replicated, column = Split.REPLICATED, Split.COLUMN
        sizes = [
            ("q_a_proj", hidden, self.q_latent, replicated, "qkv_a_proj"),
            ("kv_a_proj", hidden, cache, replicated, "qkv_a_proj" if self.q_latent else "kv_a_proj"),
            ("q_b_proj", self.q_latent, queries, column, "q_b_proj"),
            ("q_proj", hidden, queries, column, "q_proj"),
            ("kv_b_proj", self.kv_latent, self.heads * (self.nope_dim + self.value_dim), column, "kv_b_proj"),
            ("g_proj", hidden, values, column, "g_proj"),
            ("o_proj", values, hidden, Split.ROW, "o_proj"),
        ]
        direct = not self.q_latent
        absent = {"q_a_proj": direct, "q_b_proj": direct, "q_proj": not direct, "g_proj": not self.output_gate}
        linears = [
            Linear(name=name, inputs=inputs, outputs=outputs, split=split, precision=self.precision, fused=fused,
                   units=1 if split is replicated else self.heads)
            for name, inputs, outputs, split, fused in sizes if not absent.get(name)
        ]  # fmt: skip
        if self.indexer is not None:
            linears[2:2] = self.indexer.linears(hidden, self.q_latent or hidden)
        return at_precision(tuple(linears), self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """Norms of the latents."""
        norms = [Vector(name="kv_a_norm", parameters=self.kv_latent)]
        if self.q_latent:
            norms.append(Vector(name="q_a_norm", parameters=self.q_latent))
        return (*norms, *(self.indexer.vectors() if self.indexer else ()))

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """After o_proj."""
        return (Sum(after="o_proj", columns=hidden),)

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:  # noqa: ARG002
        """The latent and the rotary key, whole on every rank, and the indexer's key."""
        index = self.indexer.kv_bytes_per_token() if self.indexer else 0.0
        return (self.kv_latent + self.rope_dim) * kv_precision.bytes_per_parameter + index

    def state_bytes_per_sequence(self, tp: int) -> float:  # noqa: ARG002
        """None: everything grows with context."""
        return 0.0

    def spread(self, tp: int, ways: int) -> int:
        """Over any ranks: all hold the same latents."""
        return ways if tp % ways == 0 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """DeepSeek-V4: one shared key-value head, the last ``local_window`` tokens as they are, older ones compressed.

    ``ratio`` tokens become one cache entry (0: only the window). With an ``indexer`` (ratio 4) queries read its
    ``sparse_top_k`` best entries, else all of them. The output projection is low-rank in ``output_groups`` groups.
    """

    heads: int
    head_dim: int
    q_latent: int
    output_groups: int
    output_latent: int
    local_window: int
    ratio: int = 0
    sparse_top_k: int = 0
    indexer: Indexer | None = None
    precision: Precision = Precision.BF16
    overrides: Overrides = ()

    window: ClassVar[int] = 0

    @property
    def compressor_width(self) -> int:
        """Columns of the compressor: with an indexer it keeps two overlapping sets."""
        return 0 if not self.ratio else self.head_dim * (2 if self.indexer else 1)

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """q_a and kv in one GEMM, compressor and indexer, q_b, grouped o_a, o_b."""
        width = self.heads * self.head_dim
        latent = self.output_groups * self.output_latent
        replicated, column = Split.REPLICATED, Split.COLUMN
        sizes = [
            ("q_a_proj", hidden, self.q_latent, replicated, 1, "qkv_a_proj", Module.ATTENTION),
            ("kv_proj", hidden, self.head_dim, replicated, 1, "qkv_a_proj", Module.ATTENTION),
            ("q_b_proj", self.q_latent, width, column, self.heads, "q_b_proj", Module.ATTENTION),
            ("o_a_proj", width // self.output_groups, latent, column, self.output_groups, "o_a_proj", Module.ATTENTION),
            ("o_b_proj", latent, hidden, Split.ROW, self.output_groups, "o_b_proj", Module.ATTENTION),
        ]
        compressor = [("compressor_proj", hidden, 2 * self.compressor_width, Module.ATTENTION)] if self.ratio else []
        if self.indexer is not None:
            compressor.append(("index_compressor_proj", hidden, 4 * self.indexer.head_dim, Module.INDEXER))
        sizes[2:2] = [
            (name, inputs, outputs, replicated, 1, name, module) for name, inputs, outputs, module in compressor
        ]
        linears = [
            Linear(name=name, inputs=inputs, outputs=outputs, split=split, units=units, precision=self.precision,
                   fused=fused, module=module)
            for name, inputs, outputs, split, units, fused, module in sizes
        ]  # fmt: skip
        if self.indexer is not None:
            index = self.indexer.linears(hidden, self.q_latent)
            linears[2:2] = [linear for linear in index if linear.name != "index_k_proj"]
        return at_precision(tuple(linears), self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """Norms, sinks, and the position biases of the compressors."""
        vectors = [
            Vector(name="q_a_norm", parameters=self.q_latent),
            Vector(name="kv_norm", parameters=self.head_dim),
            Vector(name="sinks", parameters=self.heads, split=True, precision=Precision.FP32),
        ]
        if self.ratio:
            vectors.append(Vector(name="compressor_norm", parameters=self.head_dim))
            bias = self.ratio * self.compressor_width
            vectors.append(Vector(name="position_bias", parameters=bias, precision=Precision.FP32))
        if self.indexer is not None:
            dim = self.indexer.head_dim
            vectors.append(Vector(name="index_norm", parameters=dim))
            bias = self.ratio * 2 * dim
            vectors.append(Vector(name="index_position_bias", parameters=bias, precision=Precision.FP32))
        return tuple(vectors)

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """After o_b_proj."""
        return (Sum(after="o_b_proj", columns=hidden),)

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:  # noqa: ARG002
        """A compressed entry per ``ratio`` tokens, and the indexer's key for it; whole on every rank."""
        if not self.ratio:
            return 0.0
        index = self.indexer.kv_bytes_per_token() if self.indexer else 0.0
        return (self.head_dim * kv_precision.bytes_per_parameter + index) / self.ratio

    def state_bytes_per_sequence(self, tp: int) -> float:  # noqa: ARG002
        """The window in bf16."""
        return self.local_window * self.head_dim * Precision.BF16.bytes_per_parameter

    def spread(self, tp: int, ways: int) -> int:  # noqa: ARG002
        """Not known of any engine."""
        return 1
