"""Weight tensors: matrices and vectors with their storage and with how tensor parallelism cuts them.

Also :class:`Sum`, the all-reduce that a row-split matrix leaves behind. GPUs and engines are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

__all__ = ["Linear", "Module", "Overrides", "Precision", "Split", "Sum", "Vector", "at_precision"]


class Precision(StrEnum):
    """Storage of a weight or a cache. ``bytes_per_parameter`` includes block scales.

    Sources: the formats themselves. NVFP4 also has one fp32 scale a tensor, which is left out (parts per million).
    """

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    INT4 = "int4"
    INT4_AWQ = "int4_awq"

    @property
    def bytes_per_parameter(self) -> float:
        """Bytes of one weight and its share of the scales.

        NVFP4: 4 bits and an FP8 scale per 16. MXFP4, MXFP8: an E8M0 scale per 32. INT4: a bf16 scale per 32
        (compressed-tensors). INT4_AWQ: an fp16 scale and a 4-bit zero point per 128. FP8 blocks: an fp32 scale per
        128 x 128.
        """
        return _BYTES[self.value]


_BYTES: Final = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 128**2,
    "mxfp8": 1.0 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2 / 32,
    "int4_awq": 0.5 + (2 + 0.5) / 128,
}


class Split(StrEnum):
    """How tensor parallelism cuts a matrix."""

    COLUMN = "column"  # outputs divided by TP
    ROW = "row"  # inputs divided by TP; the result needs a sum over ranks
    REPLICATED = "replicated"  # every rank holds and reads all of it
    KV_HEADS = "kv_heads"  # column over KV heads, replicated where TP exceeds them
    VOCAB = "vocab"  # rows of the vocabulary divided by TP


class Module(StrEnum):
    """The part of a model a weight belongs to: the rows of a size table, and the classes precision is given by."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear_attention"
    INDEXER = "indexer"
    DENSE_MLP = "dense_mlp"
    ROUTER = "router"
    SHARED_EXPERTS = "shared_experts"
    ROUTED_EXPERTS = "routed_experts"
    RESIDUAL = "residual"
    NORMS = "norms"
    LM_HEAD = "lm_head"
    MTP = "mtp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A weight matrix [outputs, inputs].

    ``units`` is the number of indivisible pieces along the split side (heads, blocks): TP divides it, or, for
    KV_HEADS, replicates once TP exceeds it. ``fused`` names the GEMM it runs in: linears of one layer with the same
    ``fused`` name are one kernel with their outputs side by side. ``bias`` adds ``outputs`` bf16 parameters.
    """

    name: str
    inputs: int
    outputs: int
    split: Split
    precision: Precision
    units: int = 1
    fused: str = ""
    bias: bool = False
    module: Module = Module.ATTENTION

    @property
    def parameters(self) -> int:
        """Weights and bias."""
        return self.inputs * self.outputs + (self.outputs if self.bias else 0)

    @property
    def nbytes(self) -> float:
        """Bytes of the whole matrix."""
        return self.local_bytes(1)

    def local_shape(self, tp: int) -> tuple[int, int]:
        """(outputs, inputs) on one of ``tp`` ranks: the fullest one where TP does not divide them (engines pad)."""
        match self.split:
            case Split.ROW:
                return self.outputs, -(-self.inputs // tp)
            case Split.COLUMN | Split.VOCAB:
                return -(-self.outputs // tp), self.inputs
            case Split.KV_HEADS:
                return self.outputs // self.units * max(1, self.units // tp), self.inputs
            case Split.REPLICATED:
                return self.outputs, self.inputs

    def local_bytes(self, tp: int) -> float:
        """Bytes that one of ``tp`` ranks holds, and reads when it runs the GEMM."""
        outputs, inputs = self.local_shape(tp)
        bias = outputs * Precision.BF16.bytes_per_parameter if self.bias else 0.0
        return outputs * inputs * self.precision.bytes_per_parameter + bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """Small weights that no GEMM reads: norms, convolution taps, routing biases. ``split`` says if TP divides them."""

    name: str
    parameters: int
    split: bool = False
    precision: Precision = Precision.BF16

    def local_bytes(self, tp: int) -> float:
        """Bytes that one of ``tp`` ranks holds."""
        return self.parameters / (tp if self.split else 1) * self.precision.bytes_per_parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """An all-reduce over the tensor-parallel group: ``columns`` values per token of the pass.

    ``after`` names what produced the partial sums. Only bf16 sums of at least 16 bytes a token can be served by custom
    kernels; fp32 sums (q/k norms over a whole projection) always run on NCCL.
    """

    after: str
    columns: int
    precision: Precision = Precision.BF16

    @property
    def bytes_per_token(self) -> int:
        """Bytes each rank passes in, per token."""
        return int(self.columns * self.precision.bytes_per_parameter)


Overrides: TypeAlias = tuple[tuple[str, Precision], ...]
"""Matrices, by name or by the name of their GEMM, whose precision differs from that of their block."""


def at_precision(linears: tuple[Linear, ...], overrides: Overrides) -> tuple[Linear, ...]:
    """The same matrices; those named in ``overrides``, by their own name or their GEMM's, at their own precision."""
    if not overrides:
        return linears
    table = dict(overrides)
    return tuple(
        replace(linear, precision=table.get(linear.name, table.get(linear.fused, linear.precision)))
        for linear in linears
    )
