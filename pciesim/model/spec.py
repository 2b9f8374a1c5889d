"""Layers, runs of equal layers, and the whole model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pciesim.model.mixers import Absent, Attention, CompressedAttention, Mla
from pciesim.model.mlps import DenseAndMoe, DenseMlp, Moe
from pciesim.model.recurrent import GatedDeltaNet, KimiDelta, Mamba2
from pciesim.model.weights import Linear, Module, Precision, Split, Sum, Vector

__all__ = ["Layer", "LayerRun", "Mixer", "Mlp", "ModelSpec", "MtpHead"]

Mixer: TypeAlias = Attention | Mla | CompressedAttention | GatedDeltaNet | KimiDelta | Mamba2 | Absent
Mlp: TypeAlias = DenseMlp | Moe | DenseAndMoe | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A mixer and an MLP, each with an RMSNorm of ``hidden`` weights before it, or only one of them.

    ``post_norms`` adds a norm after each (Gemma). ``streams`` above 1 keeps that many residual streams, mixed before
    and after each half by hyper-connections (DeepSeek-V4).
    """

    mixer: Mixer
    mlp: Mlp
    post_norms: bool = False
    streams: int = 1

    @property
    def halves(self) -> tuple[str, ...]:
        """Names of the parts that are there, in order."""
        named = (("mixer", self.mixer), ("mlp", self.mlp))
        return tuple(name for name, part in named if not isinstance(part, Absent))

    @property
    def moe(self) -> Moe | None:
        """The routed experts, if any."""
        match self.mlp:
            case Moe() as moe:
                return moe
            case DenseAndMoe(moe=moe):
                return moe
            case _:
                return None

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """All matrices but the routed experts, in the order of use."""
        found: list[Linear] = []
        for half in self.halves:
            found += self._hyper_connection(half, hidden)
            found += (self.mixer if half == "mixer" else self.mlp).linears(hidden)
        return tuple(found)

    def _hyper_connection(self, half: str, hidden: int) -> tuple[Linear, ...]:
        """The projection of all streams to the weights that mix them: in, out, and across. Kept in fp32."""
        if self.streams == 1:
            return ()
        outputs = self.streams * (2 + self.streams)
        return (
            Linear(name=f"hyper_{half}", inputs=self.streams * hidden, outputs=outputs, split=Split.REPLICATED,
                   precision=Precision.FP32, fused=f"hyper_{half}", bias=True, module=Module.RESIDUAL),
        )  # fmt: skip

    def vectors(self, hidden: int) -> tuple[Vector, ...]:
        """All small weights, with the layer's norms."""
        norms = len(self.halves) * (2 if self.post_norms else 1)
        own = tuple(Vector(name=f"norm_{index}", parameters=hidden) for index in range(norms))
        return own + self.mixer.vectors(hidden) + self.mlp.vectors(hidden)

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """The all-reduces of the layer under tensor parallelism, in order."""
        return self.mixer.sums(hidden) + self.mlp.sums(hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """A pattern of layers and how often it repeats: Qwen3.5 is fifteen times (GDN, GDN, GDN, attention)."""

    pattern: tuple[Layer, ...]
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpHead:
    """Multi-token-prediction modules: a projection of [embedding, hidden] to hidden, then layers.

    Embedding and lm_head are the model's own. ``modules`` is how many the configuration names.
    """

    layers: tuple[Layer, ...]
    modules: int = 1
    precision: Precision = Precision.BF16

    def projection(self, hidden: int) -> Linear:
        """``fc`` [2 hidden -> hidden]; SGLang replicates it."""
        return Linear(name="mtp_fc", inputs=2 * hidden, outputs=hidden, split=Split.REPLICATED,
                      precision=self.precision, fused="mtp_fc", module=Module.MTP)  # fmt: skip

    def vectors(self, hidden: int) -> tuple[Vector, ...]:
        """Norms before the projection (embedding and hidden) and before the head."""
        return tuple(Vector(name=name, parameters=hidden) for name in ("embedding_norm", "hidden_norm", "final_norm"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder-only language model. ``kv_precision`` is the KV cache's; activations are bf16.

    ``mtp`` and ``vision_parameters`` (an image tower, unused in decode; None: there is one, its size is not known) are
    listed apart: totals exclude them.
    """

    name: str
    hidden: int
    vocabulary: int
    runs: tuple[LayerRun, ...]
    tied_embeddings: bool = False
    embedding_precision: Precision = Precision.BF16
    head_precision: Precision = Precision.BF16
    kv_precision: Precision = Precision.BF16
    mtp: MtpHead | None = None
    vision_parameters: int | None = 0
    source: str = ""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Every layer in order."""
        return tuple(layer for run in self.runs for _ in range(run.repeat) for layer in run.pattern)

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """Small weights outside the layers: the norm before the head, and what merges several residual streams."""
        final = Vector(name="final_norm", parameters=self.hidden)
        streams = max((layer.streams for run in self.runs for layer in run.pattern), default=1)
        if streams == 1:
            return (final,)
        merge = Vector(name="hyper_head", parameters=streams**2 * self.hidden, precision=Precision.FP32)
        return (final, merge)

    @property
    def embedding(self) -> Linear:
        """The token embedding: a look-up, split over the vocabulary."""
        return Linear(name="embedding", inputs=self.hidden, outputs=self.vocabulary, split=Split.VOCAB,
                      precision=self.embedding_precision, module=Module.EMBEDDING)  # fmt: skip

    @property
    def head(self) -> Linear:
        """The logits GEMM, split over the vocabulary. With tied embeddings it reads the embedding's matrix."""
        precision = self.embedding_precision if self.tied_embeddings else self.head_precision
        return Linear(name="lm_head", inputs=self.hidden, outputs=self.vocabulary, split=Split.VOCAB,
                      precision=precision, fused="lm_head", module=Module.LM_HEAD)  # fmt: skip
