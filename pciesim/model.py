"""The model: layers as runs of equal layers, each a list of weight matrices with their split and precision.

One description serves every question. The parameter total, the bytes a GPU holds and reads, and the GEMMs of the
schedule all come from the same :class:`Linear` list, so they cannot disagree. GPUs and engines are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "Attention", "DenseMlp", "GatedDeltaNet", "Layer", "LayerRun", "Linear", "Mixer", "Mlp", "ModelSpec", "Moe",
    "Precision", "Split",
]  # fmt: skip


class Precision(StrEnum):
    """Storage of a weight. ``bytes_per_parameter`` includes block scales (sources: reference formats of each kind)."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    INT4 = "int4"

    @property
    def bytes_per_parameter(self) -> float:
        """NVFP4: 4 bits + an FP8 scale per 16. MXFP4: an E8M0 scale per 32. INT4: a bf16 scale per 32. FP8 blocks:
        an fp32 scale per 128 x 128."""
        return {
            "fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4 / 128**2,
            "nvfp4": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32, "int4": 0.5 + 2 / 32,
        }[self.value]  # fmt: skip


class Split(StrEnum):
    """How tensor parallelism cuts a matrix."""

    COLUMN = "column"  # outputs divided by TP
    ROW = "row"  # inputs divided by TP; the result needs a sum over ranks
    REPLICATED = "replicated"  # every rank holds and reads all of it
    KV_HEADS = "kv_heads"  # column over KV heads, replicated where TP exceeds them
    VOCAB = "vocab"  # rows of the vocabulary divided by TP


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A weight matrix [outputs, inputs].

    ``units`` is the number of indivisible pieces along the split side (heads, blocks): TP divides it, or, for
    KV_HEADS, replicates once TP exceeds it. ``fused`` names the GEMM it runs in: linears of one layer with the same
    ``fused`` name are one kernel with their outputs side by side. ``bias`` adds ``outputs`` parameters.
    """

    name: str
    inputs: int
    outputs: int
    split: Split
    precision: Precision
    units: int = 1
    fused: str = ""
    bias: bool = False

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs + (self.outputs if self.bias else 0)

    def local_shape(self, tp: int) -> tuple[int, int]:
        """(outputs, inputs) on one of ``tp`` ranks."""
        if self.split is Split.ROW:
            return self.outputs, self.inputs // tp
        if self.split in (Split.COLUMN, Split.VOCAB):
            return -(-self.outputs // tp), self.inputs
        if self.split is Split.KV_HEADS:
            return self.outputs // self.units * max(1, self.units // tp), self.inputs
        return self.outputs, self.inputs

    def local_bytes(self, tp: int) -> float:
        outputs, inputs = self.local_shape(tp)
        return outputs * inputs * self.precision.bytes_per_parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query attention. ``output_gate`` doubles the query projection (Qwen3.5); ``window`` 0 is full."""

    heads: int
    kv_heads: int
    head_dim: int
    output_gate: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    window: int = 0
    precision: Precision = Precision.BF16

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        width = self.heads * self.head_dim
        kv = self.kv_heads * self.head_dim
        p = self.precision
        return (
            Linear(name="q_proj", inputs=hidden, outputs=width * (2 if self.output_gate else 1), split=Split.COLUMN,
                   precision=p, units=self.heads, fused="qkv_proj", bias=self.qkv_bias),
            Linear(name="k_proj", inputs=hidden, outputs=kv, split=Split.KV_HEADS, precision=p, units=self.kv_heads,
                   fused="qkv_proj", bias=self.qkv_bias),
            Linear(name="v_proj", inputs=hidden, outputs=kv, split=Split.KV_HEADS, precision=p, units=self.kv_heads,
                   fused="qkv_proj", bias=self.qkv_bias),
            Linear(name="o_proj", inputs=width, outputs=hidden, split=Split.ROW, precision=p, units=self.heads,
                   fused="o_proj"),
        )  # fmt: skip

    def small_parameters(self, hidden: int) -> int:
        """Norm weights of the mixer itself."""
        return 2 * self.head_dim if self.qk_norm else 0

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:
        return 2 * max(1, self.kv_heads // tp) * self.head_dim * kv_precision.bytes_per_parameter

    def state_bytes_per_sequence(self, tp: int) -> float:
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Gated delta rule with a short convolution (Qwen3-Next, Qwen3.5): a recurrent state instead of a KV cache."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int = 4
    state_precision: Precision = Precision.FP32
    precision: Precision = Precision.BF16

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        keys, values, p = self.key_heads * self.key_dim, self.value_heads * self.value_dim, self.precision
        return (
            Linear(name="in_proj_qkvz", inputs=hidden, outputs=2 * keys + 2 * values, split=Split.COLUMN, precision=p,
                   units=self.key_heads, fused="in_proj_qkvz"),
            Linear(name="in_proj_ba", inputs=hidden, outputs=2 * self.value_heads, split=Split.COLUMN,
                   precision=p, units=self.value_heads, fused="in_proj_ba"),
            Linear(name="out_proj", inputs=values, outputs=hidden, split=Split.ROW, precision=p,
                   units=self.value_heads, fused="out_proj"),
        )  # fmt: skip

    def small_parameters(self, hidden: int) -> int:
        """Convolution, dt_bias, A_log and the gated norm."""
        channels = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        return channels * self.conv_kernel + 2 * self.value_heads + self.value_dim

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:
        return 0.0

    def state_bytes_per_sequence(self, tp: int) -> float:
        """Recurrent state [value heads, key dim, value dim] and convolution state [channels, kernel - 1] in bf16."""
        channels = (2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim) / tp
        recurrent = self.value_heads / tp * self.key_dim * self.value_dim * self.state_precision.bytes_per_parameter
        return recurrent + channels * (self.conv_kernel - 1) * Precision.BF16.bytes_per_parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """Gated MLP: gate and up in one GEMM, then down."""

    intermediate: int
    precision: Precision = Precision.BF16

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        return (
            Linear(name="gate_up_proj", inputs=hidden, outputs=2 * self.intermediate, split=Split.COLUMN,
                   precision=self.precision, units=self.intermediate, fused="gate_up_proj"),
            Linear(name="down_proj", inputs=self.intermediate, outputs=hidden, split=Split.ROW,
                   precision=self.precision, units=self.intermediate, fused="down_proj"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Routed experts (gated, three matrices each), a router, and optionally shared experts with a sigmoid gate.

    ``precision`` is that of the routed experts, ``shared_precision`` that of the shared ones; the router stays bf16.
    """

    experts: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    precision: Precision = Precision.BF16
    shared_precision: Precision = Precision.BF16

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """Everything but the routed experts."""
        linears = [
            Linear(name="router", inputs=hidden, outputs=self.experts, split=Split.REPLICATED,
                   precision=Precision.BF16, fused="router"),
        ]  # fmt: skip
        if self.shared_intermediate:
            shared = DenseMlp(intermediate=self.shared_intermediate, precision=self.shared_precision)
            linears += [
                Linear(name="shared_" + part.name, inputs=part.inputs, outputs=part.outputs, split=part.split,
                       precision=part.precision, units=part.units, fused="shared_" + part.fused)
                for part in shared.linears(hidden)
            ]  # fmt: skip
        if self.shared_gate:
            linears.append(
                Linear(name="shared_gate", inputs=hidden, outputs=1, split=Split.REPLICATED,
                       precision=Precision.BF16, fused="shared_gate")
            )  # fmt: skip
        return tuple(linears)

    def expert_parameters(self, hidden: int) -> int:
        """Parameters of one routed expert."""
        return 3 * hidden * self.intermediate

    def expert_bytes(self, hidden: int) -> float:
        return self.expert_parameters(hidden) * self.precision.bytes_per_parameter


Mixer: TypeAlias = Attention | GatedDeltaNet
Mlp: TypeAlias = DenseMlp | Moe


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A mixer and an MLP, each with an RMSNorm of ``hidden`` weights before it."""

    mixer: Mixer
    mlp: Mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """A pattern of layers and how often it repeats: Qwen3.5 is fifteen times (GDN, GDN, GDN, attention)."""

    pattern: tuple[Layer, ...]
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder-only language model. ``kv_precision`` is the KV cache's; activations are bf16."""

    name: str
    hidden: int
    vocabulary: int
    runs: tuple[LayerRun, ...]
    tied_embeddings: bool = False
    embedding_precision: Precision = Precision.BF16
    head_precision: Precision = Precision.BF16
    kv_precision: Precision = Precision.BF16
    source: str = ""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Every layer in order."""
        return tuple(layer for run in self.runs for _ in range(run.repeat) for layer in run.pattern)
