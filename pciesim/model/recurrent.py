"""Token mixers with a recurrent state of fixed size instead of a cache that grows: delta rules and Mamba2.

They answer the same questions as :mod:`pciesim.model.mixers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pciesim.model.weights import Linear, Module, Overrides, Precision, Split, Sum, Vector, at_precision

__all__ = ["GatedDeltaNet", "KimiDelta", "Mamba2"]


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
    overrides: Overrides = ()

    window: ClassVar[int] = 0

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """q, k, v, z in one GEMM, the two gates in another, then out."""
        values = self.value_heads * self.value_dim
        linears = (
            Linear(name="in_proj_qkvz", inputs=hidden, outputs=self.channels + values, split=Split.COLUMN,
                   precision=self.precision, units=self.key_heads, fused="in_proj_qkvz",
                   module=Module.LINEAR_ATTENTION),
            Linear(name="in_proj_ba", inputs=hidden, outputs=2 * self.value_heads, split=Split.COLUMN,
                   precision=self.precision, units=self.value_heads, fused="in_proj_ba",
                   module=Module.LINEAR_ATTENTION),
            Linear(name="out_proj", inputs=values, outputs=hidden, split=Split.ROW, precision=self.precision,
                   units=self.value_heads, fused="out_proj", module=Module.LINEAR_ATTENTION),
        )  # fmt: skip
        return at_precision(linears, self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """Convolution, dt_bias, A_log and the gated norm."""
        return (
            Vector(name="conv1d", parameters=self.channels * self.conv_kernel, split=True),
            Vector(name="dt_bias", parameters=self.value_heads, split=True),
            Vector(name="A_log", parameters=self.value_heads, split=True, precision=Precision.FP32),
            Vector(name="gated_norm", parameters=self.value_dim),
        )

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """After out_proj."""
        return (Sum(after="out_proj", columns=hidden),)

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:  # noqa: ARG002
        """None: the state does not grow."""
        return 0.0

    def state_bytes_per_sequence(self, tp: int) -> float:
        """Recurrent state [value heads, key dim, value dim] and convolution state [channels, kernel - 1] in bf16."""
        recurrent = self.value_heads / tp * self.key_dim * self.value_dim * self.state_precision.bytes_per_parameter
        return recurrent + self.channels / tp * (self.conv_kernel - 1) * Precision.BF16.bytes_per_parameter

    def spread(self, tp: int, ways: int) -> int:  # noqa: ARG002
        """A state is no list of tokens."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Kimi delta attention: a gated delta rule whose decay is per channel.

    ``full_rank_gate`` projects the output gate directly (Kimi-K3), else through ``head_dim`` columns (Kimi-Linear).
    """

    heads: int
    head_dim: int
    conv_kernel: int = 4
    full_rank_gate: bool = True
    state_precision: Precision = Precision.FP32
    precision: Precision = Precision.BF16
    overrides: Overrides = ()

    window: ClassVar[int] = 0

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """q, k, v in one GEMM, the forget gate's two, beta, the output gate, o."""
        width, dim = self.heads * self.head_dim, self.head_dim
        replicated, column = Split.REPLICATED, Split.COLUMN
        gate = (
            [("g_proj", hidden, width, column)]
            if self.full_rank_gate
            else [("g_a_proj", hidden, dim, replicated), ("g_b_proj", dim, width, column)]
        )
        sizes = [
            ("q_proj", hidden, width, column), ("k_proj", hidden, width, column), ("v_proj", hidden, width, column),
            ("f_a_proj", hidden, dim, replicated), ("f_b_proj", dim, width, column),
            ("b_proj", hidden, self.heads, column), *gate, ("o_proj", width, hidden, Split.ROW),
        ]  # fmt: skip
        linears = tuple(
            Linear(name=name, inputs=inputs, outputs=outputs, split=split, precision=self.precision,
                   units=1 if split is replicated else self.heads, module=Module.LINEAR_ATTENTION,
                   fused="qkv_proj" if name in ("q_proj", "k_proj", "v_proj") else name)
            for name, inputs, outputs, split in sizes
        )  # fmt: skip
        return at_precision(linears, self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """Convolution, dt_bias, A_log and the gated norm."""
        width = self.heads * self.head_dim
        return (
            Vector(name="conv1d", parameters=3 * width * self.conv_kernel, split=True),
            Vector(name="dt_bias", parameters=width, split=True, precision=Precision.FP32),
            Vector(name="A_log", parameters=self.heads, split=True, precision=Precision.FP32),
            Vector(name="gated_norm", parameters=self.head_dim),
        )

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """After o_proj."""
        return (Sum(after="o_proj", columns=hidden),)

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:  # noqa: ARG002
        """None: the state does not grow."""
        return 0.0

    def state_bytes_per_sequence(self, tp: int) -> float:
        """Recurrent state [heads, dim, dim] and convolution state [3 heads dim, kernel - 1] in bf16."""
        recurrent = self.heads / tp * self.head_dim**2 * self.state_precision.bytes_per_parameter
        channels = 3 * self.heads * self.head_dim / tp
        return recurrent + channels * (self.conv_kernel - 1) * Precision.BF16.bytes_per_parameter

    def spread(self, tp: int, ways: int) -> int:  # noqa: ARG002
        """A state is no list of tokens."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Selective state space (Nemotron-H). ``groups`` share B and C like KV heads; TP beyond them replicates."""

    heads: int
    head_dim: int
    groups: int
    state: int
    conv_kernel: int = 4
    state_precision: Precision = Precision.FP32
    precision: Precision = Precision.BF16
    overrides: Overrides = ()

    window: ClassVar[int] = 0

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """z, x, B, C, dt in one GEMM, then out."""
        width = self.heads * self.head_dim
        sizes = [
            ("in_proj_zx", hidden, 2 * width, Split.COLUMN, self.heads, "in_proj"),
            ("in_proj_bc", hidden, 2 * self.groups * self.state, Split.KV_HEADS, self.groups, "in_proj"),
            ("in_proj_dt", hidden, self.heads, Split.COLUMN, self.heads, "in_proj"),
            ("out_proj", width, hidden, Split.ROW, self.heads, "out_proj"),
        ]
        linears = tuple(
            Linear(name=name, inputs=inputs, outputs=outputs, split=split, units=units, precision=self.precision,
                   fused=fused, module=Module.LINEAR_ATTENTION)
            for name, inputs, outputs, split, units, fused in sizes
        )  # fmt: skip
        return at_precision(linears, self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """Convolution with bias, dt_bias, A_log and D, the gated norm."""
        channels = self.heads * self.head_dim + 2 * self.groups * self.state
        return (
            Vector(name="conv1d", parameters=channels * (self.conv_kernel + 1), split=True),
            Vector(name="dt_bias_A_log_D", parameters=3 * self.heads, split=True, precision=Precision.FP32),
            Vector(name="gated_norm", parameters=self.heads * self.head_dim, split=True),
        )

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """After out_proj."""
        return (Sum(after="out_proj", columns=hidden),)

    def kv_bytes_per_token(self, tp: int, kv_precision: Precision) -> float:  # noqa: ARG002
        """None: the state does not grow."""
        return 0.0

    def state_bytes_per_sequence(self, tp: int) -> float:
        """State [heads, head dim, state] and convolution state [channels, kernel - 1] in bf16."""
        recurrent = self.heads / tp * self.head_dim * self.state * self.state_precision.bytes_per_parameter
        channels = self.heads * self.head_dim / tp + 2 * max(1, self.groups // tp) * self.state
        return recurrent + channels * (self.conv_kernel - 1) * Precision.BF16.bytes_per_parameter

    def spread(self, tp: int, ways: int) -> int:  # noqa: ARG002
        """A state is no list of tokens."""
        return 1
