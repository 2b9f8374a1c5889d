"""What a kernel must move and compute, from its shape alone: the basis of floors, rooflines and scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pciesim.model import Precision
from pciesim.schedule import DecodeAttention, DeltaRule, Elementwise, Gemm, Host, Kernel, RoutedExperts
from pciesim.units import Bytes, Flop

__all__ = ["Work", "distinct_experts", "work"]

ACTIVATION: Final = Precision.BF16.bytes_per_parameter

# Share of the uniformly hit experts that power-law routing leaves once tokens x top_k reach the number of experts. From
# the FP8 CUTLASS and Triton rows on RTX PRO 6000, whose time at 64 to 192 tokens is the bytes of the experts hit:
# 0.76 to 0.88 of the balanced rows over D(uniform)/E for 1.01, 0.73 to 0.88 for 1.2.
SKEW: Final = {"power_law_1.01": 0.8, "power_law_1.2": 0.75}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Bytes through device memory, FLOP, and the tensor precision the FLOP run in.

    ``weights`` is the part of the bytes that a benchmark may have kept in L2 and a decode step cannot.
    """

    nbytes: Bytes
    flop: Flop
    precision: str
    weights: Bytes


def distinct_experts(*, tokens: int, experts: int, top_k: int, routing: str) -> float:
    """Experts hit by at least one token: min(E, k T) balanced; E (1 - (1 - k/E)^T) independent, fewer when skewed."""
    if routing == "balanced":
        return float(min(experts, tokens * top_k))
    uniform = experts * (1.0 - (1.0 - top_k / experts) ** tokens)
    skew = SKEW.get(routing, 1.0)
    # Few tokens cannot collide much: the skew sets in between a quarter and all of the experts asked for.
    onset = min(1.0, max(0.0, (tokens * top_k / experts - 0.25) / 0.75))
    return max(uniform * (1.0 - onset * (1.0 - skew)), min(float(top_k), experts))


def work(kernel: Kernel, routing: str = "uniform") -> Work:
    """Work of a kernel on one rank, experts routed with the given skew. Raises TypeError for Host, which has none."""
    match kernel:
        case Gemm():
            return _gemm(kernel)
        case RoutedExperts():
            return _experts(kernel, routing)
        case DecodeAttention():
            return _attention(kernel)
        case DeltaRule():
            return _delta_rule(kernel)
        case Elementwise():
            # Activations of the kernel before are still in L2: a decode step need not move them through device memory.
            return Work(nbytes=kernel.nbytes, flop=0.0, precision="bf16", weights=0.0)
        case Host():
            raise TypeError("host time moves no bytes")


def _gemm(kernel: Gemm) -> Work:
    weights = kernel.n * kernel.k * kernel.precision.bytes_per_parameter
    return Work(
        nbytes=weights + kernel.m * (kernel.n + kernel.k) * ACTIVATION,
        flop=2.0 * kernel.m * kernel.n * kernel.k,
        precision=kernel.precision.value,
        weights=weights,
    )


def _experts(kernel: RoutedExperts, routing: str) -> Work:
    hit = distinct_experts(tokens=kernel.tokens, experts=kernel.experts, top_k=kernel.top_k, routing=routing)
    width = kernel.intermediate / kernel.tp
    weights = hit / kernel.ep * 3 * kernel.hidden * width * kernel.precision.bytes_per_parameter
    rows = kernel.tokens * kernel.top_k / kernel.ep
    # Tokens in, permuted rows written and read, two intermediates written and read, rows summed, tokens out.
    activations = 2 * kernel.tokens * kernel.hidden + rows * (4 * kernel.hidden + 6 * width)
    return Work(
        nbytes=weights + activations * ACTIVATION,
        flop=2.0 * rows * 3 * kernel.hidden * width,
        precision=kernel.precision.value,
        weights=weights,
    )


def _attention(kernel: DecodeAttention) -> Work:
    keys = min(kernel.context, kernel.window) if kernel.window else kernel.context
    cache = 2.0 * kernel.batch * keys * kernel.kv_heads * kernel.head_dim * kernel.kv_precision.bytes_per_parameter
    queries = kernel.batch * kernel.new_tokens * kernel.heads * kernel.head_dim
    return Work(
        nbytes=cache + 2 * queries * ACTIVATION,
        flop=4.0 * queries * keys,
        precision="bf16",
        weights=cache,
    )


def _delta_rule(kernel: DeltaRule) -> Work:
    state = kernel.batch * kernel.value_heads * kernel.key_dim * kernel.value_dim * Precision.FP32.bytes_per_parameter
    channels = 2 * kernel.key_heads * kernel.key_dim + kernel.value_heads * kernel.value_dim
    conv = kernel.batch * channels * (kernel.conv_kernel - 1) * ACTIVATION
    tokens = kernel.batch * kernel.new_tokens
    # One read of the state; decode and verification write it after every token, a prefill once.
    writes = kernel.new_tokens if kernel.new_tokens <= 16 else 1
    moved = (1 + writes) * (state + conv)
    return Work(
        nbytes=moved + 2 * tokens * channels * ACTIVATION,
        flop=8.0 * tokens * kernel.value_heads * kernel.key_dim * kernel.value_dim,
        precision="bf16",
        weights=moved,
    )
