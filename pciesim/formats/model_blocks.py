"""Blocks of a model file: one document per kind of mixer and MLP, each with its ``to_domain``.

Fields and their meaning are those of the class of the same name in :mod:`pciesim.model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from pciesim.formats.documents import Document
from pciesim.model import (
    Attention,
    CompressedAttention,
    DenseAndMoe,
    DenseMlp,
    GatedDeltaNet,
    Indexer,
    KimiDelta,
    Mamba2,
    Mla,
    Module,
    Moe,
    Overrides,
    Precision,
    QkNorm,
)

__all__ = [
    "PRECISION_CLASSES",
    "AttentionDocument",
    "BlockBase",
    "BlockDocument",
    "CompressedAttentionDocument",
    "Count",
    "DenseMlpDocument",
    "GatedDeltaNetDocument",
    "IndexerDocument",
    "KimiDeltaDocument",
    "Mamba2Document",
    "MlaDocument",
    "MoeDocument",
    "Precisions",
    "class_precision",
]

Count: TypeAlias = Annotated[int, Field(ge=0)]
Precisions: TypeAlias = Mapping[str, Precision]

PRECISION_CLASSES: Final = frozenset(
    {"default", "kv_cache"} | set(Module) - {Module.NORMS, Module.MTP, Module.RESIDUAL}
)
"""Keys of ``precision`` that name a class of modules; any other key names a matrix."""


def class_precision(precision: Precisions, module: Module) -> Precision:
    """That of a class of linear layers: its own, else the default, else bf16."""
    return precision.get(module, precision.get("default", Precision.BF16))


def _overrides(precision: Precisions) -> Overrides:
    return tuple((name, value) for name, value in precision.items() if name not in PRECISION_CLASSES)


class BlockBase(Document):
    """What every kind of block has: a ``precision`` of its own, over that of the file."""

    precision: dict[str, Precision] = Field(default_factory=dict)


class IndexerDocument(Document):
    """The selector of sparse attention; see :class:`pciesim.model.Indexer`."""

    heads: PositiveInt
    head_dim: PositiveInt
    weighted: bool = True

    def to_domain(self, precision: Precisions) -> Indexer:
        """The indexer at the given precisions."""
        return Indexer(**self.model_dump(), precision=class_precision(precision, Module.INDEXER))


class AttentionDocument(BlockBase):
    """Grouped-query attention; see :class:`pciesim.model.Attention`."""

    kind: Literal["attention"]
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    value_dim: Count = 0
    output_gate: bool = False
    head_gate: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    qkv_bias: bool = False
    output_bias: bool = False
    shared_kv: bool = False
    sinks: bool = False
    window: Count = 0
    sparse_top_k: Count = 0
    indexer: IndexerDocument | None = None

    @model_validator(mode="after")
    def _heads_are_shared_evenly(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        return self

    def to_domain(self, precision: Precisions) -> Attention:
        """The mixer at the given precisions."""
        return Attention(
            **self.model_dump(exclude={"kind", "precision", "indexer"}),
            indexer=None if self.indexer is None else self.indexer.to_domain(precision),
            precision=class_precision(precision, Module.ATTENTION),
            overrides=_overrides(precision),
        )


class MlaDocument(BlockBase):
    """Multi-head latent attention; see :class:`pciesim.model.Mla`."""

    kind: Literal["mla"]
    heads: PositiveInt
    q_latent: Count
    kv_latent: PositiveInt
    nope_dim: PositiveInt
    rope_dim: PositiveInt
    value_dim: PositiveInt
    output_gate: bool = False
    sparse_top_k: Count = 0
    indexer: IndexerDocument | None = None

    def to_domain(self, precision: Precisions) -> Mla:
        """The mixer at the given precisions."""
        return Mla(
            **self.model_dump(exclude={"kind", "precision", "indexer"}),
            indexer=None if self.indexer is None else self.indexer.to_domain(precision),
            precision=class_precision(precision, Module.ATTENTION),
            overrides=_overrides(precision),
        )


class CompressedAttentionDocument(BlockBase):
    """Compressed sparse attention; see :class:`pciesim.model.CompressedAttention`."""

    kind: Literal["compressed_attention"]
    heads: PositiveInt
    head_dim: PositiveInt
    q_latent: PositiveInt
    output_groups: PositiveInt
    output_latent: PositiveInt
    local_window: PositiveInt
    ratio: Count = 0
    sparse_top_k: Count = 0
    indexer: IndexerDocument | None = None

    @model_validator(mode="after")
    def _groups_are_even(self) -> Self:
        if self.heads % self.output_groups:
            raise ValueError(f"output_groups {self.output_groups} does not divide heads {self.heads}")
        if self.indexer is not None and not self.ratio:
            raise ValueError("an indexer needs a ratio above 0")
        return self

    def to_domain(self, precision: Precisions) -> CompressedAttention:
        """The mixer at the given precisions."""
        return CompressedAttention(
            **self.model_dump(exclude={"kind", "precision", "indexer"}),
            indexer=None if self.indexer is None else self.indexer.to_domain(precision),
            precision=class_precision(precision, Module.ATTENTION),
            overrides=_overrides(precision),
        )


class GatedDeltaNetDocument(BlockBase):
    """Gated delta rule; see :class:`pciesim.model.GatedDeltaNet`."""

    kind: Literal["gated_delta_net"]
    key_heads: PositiveInt
    value_heads: PositiveInt
    key_dim: PositiveInt
    value_dim: PositiveInt
    conv_kernel: PositiveInt = 4
    state_precision: Precision = Precision.FP32

    @model_validator(mode="after")
    def _heads_are_shared_evenly(self) -> Self:
        if self.value_heads % self.key_heads:
            raise ValueError(f"key_heads {self.key_heads} does not divide value_heads {self.value_heads}")
        return self

    def to_domain(self, precision: Precisions) -> GatedDeltaNet:
        """The mixer at the given precisions."""
        return GatedDeltaNet(
            **self.model_dump(exclude={"kind", "precision"}),
            precision=class_precision(precision, Module.LINEAR_ATTENTION),
            overrides=_overrides(precision),
        )


class KimiDeltaDocument(BlockBase):
    """Kimi delta attention; see :class:`pciesim.model.KimiDelta`."""

    kind: Literal["kimi_delta"]
    heads: PositiveInt
    head_dim: PositiveInt
    conv_kernel: PositiveInt = 4
    full_rank_gate: bool = True
    state_precision: Precision = Precision.FP32

    def to_domain(self, precision: Precisions) -> KimiDelta:
        """The mixer at the given precisions."""
        return KimiDelta(
            **self.model_dump(exclude={"kind", "precision"}),
            precision=class_precision(precision, Module.LINEAR_ATTENTION),
            overrides=_overrides(precision),
        )


class Mamba2Document(BlockBase):
    """Selective state space; see :class:`pciesim.model.Mamba2`."""

    kind: Literal["mamba2"]
    heads: PositiveInt
    head_dim: PositiveInt
    groups: PositiveInt
    state: PositiveInt
    conv_kernel: PositiveInt = 4
    state_precision: Precision = Precision.FP32

    def to_domain(self, precision: Precisions) -> Mamba2:
        """The mixer at the given precisions."""
        return Mamba2(
            **self.model_dump(exclude={"kind", "precision"}),
            precision=class_precision(precision, Module.LINEAR_ATTENTION),
            overrides=_overrides(precision),
        )


class DenseMlpDocument(BlockBase):
    """Dense MLP; see :class:`pciesim.model.DenseMlp`."""

    kind: Literal["dense_mlp"]
    intermediate: PositiveInt
    gated: bool = True

    def to_domain(self, precision: Precisions) -> DenseMlp:
        """The MLP at the given precisions."""
        return DenseMlp(
            **self.model_dump(exclude={"kind", "precision"}),
            precision=class_precision(precision, Module.DENSE_MLP),
            overrides=_overrides(precision),
        )


class MoeDocument(BlockBase):
    """Mixture of experts; see :class:`pciesim.model.Moe`. ``dense_intermediate`` adds a dense MLP beside it."""

    kind: Literal["moe"]
    experts: PositiveInt
    top_k: PositiveInt
    intermediate: PositiveInt
    shared_intermediate: Count = 0
    shared_gate: bool = False
    gated: bool = True
    latent: Count = 0
    latent_norm: bool = False
    latent_sum: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    routing_bias: bool = False
    dense_intermediate: Count = 0

    @model_validator(mode="after")
    def _experts_are_enough(self) -> Self:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is more than experts {self.experts}")
        return self

    def to_domain(self, precision: Precisions) -> Moe | DenseAndMoe:
        """The MLP at the given precisions."""
        moe = Moe(
            **self.model_dump(exclude={"kind", "precision", "dense_intermediate"}),
            precision=class_precision(precision, Module.ROUTED_EXPERTS),
            shared_precision=class_precision(precision, Module.SHARED_EXPERTS),
            router_precision=precision.get(Module.ROUTER, Precision.BF16),
            overrides=_overrides(precision),
        )
        if not self.dense_intermediate:
            return moe
        dense = DenseMlp(
            intermediate=self.dense_intermediate,
            precision=class_precision(precision, Module.DENSE_MLP),
            overrides=_overrides(precision),
        )
        return DenseAndMoe(dense=dense, moe=moe)


BlockDocument: TypeAlias = Annotated[
    AttentionDocument
    | MlaDocument
    | CompressedAttentionDocument
    | GatedDeltaNetDocument
    | KimiDeltaDocument
    | Mamba2Document
    | DenseMlpDocument
    | MoeDocument,
    Field(discriminator="kind"),
]
