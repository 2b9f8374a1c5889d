"""What a kernel must move and compute, from its shape alone: the basis of floors, rooflines and scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pciesim.kernels.backends import spread_of
from pciesim.model import Precision
from pciesim.routing import distinct_experts as hit_by_chance
from pciesim.routing import fullest_rank, independent_tokens
from pciesim.schedule import DecodeAttention, DeltaRule, Elementwise, Gemm, Host, Kernel, RoutedExperts, SparseIndex
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


def distinct_experts(*, tokens: float, experts: int, top_k: int, routing: str) -> float:
    """Experts hit by at least one token: min(E, k T) balanced; E (1 - (1 - k/E)^T) independent, fewer when skewed."""
    if (spread := spread_of(routing)) is not None:
        return hit_by_chance(tokens=tokens, experts=experts, top_k=top_k, spread=spread)
    if routing == "balanced":
        return float(min(experts, tokens * top_k))
    uniform = hit_by_chance(tokens=tokens, experts=experts, top_k=top_k)
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
        case SparseIndex():
            return _sparse_index(kernel)
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
    tokens = independent_tokens(kernel.tokens, kernel.group, kernel.alike)
    hit = distinct_experts(tokens=tokens, experts=kernel.experts, top_k=kernel.top_k, routing=routing)
    rows = kernel.tokens * kernel.top_k / kernel.ep
    if kernel.ep > 1 and routing != "balanced":  # every rank waits for the fullest
        spread = spread_of(routing) or 0.0
        fullest, load = fullest_rank(
            tokens=kernel.tokens, experts=kernel.experts, top_k=kernel.top_k, ranks=kernel.ep,
            group=kernel.group, alike=kernel.alike,
        )  # fmt: skip
        uniform = hit_by_chance(tokens=tokens, experts=kernel.experts, top_k=kernel.top_k, spread=spread)
        hit *= fullest * kernel.ep / uniform
        rows = load
    width = kernel.intermediate / kernel.tp
    matrices = 3 if kernel.gated else 2
    weights = hit / kernel.ep * matrices * kernel.hidden * width * kernel.precision.bytes_per_parameter
    # Tokens in, permuted rows written and read, two intermediates written and read, rows summed, tokens out.
    activations = 2 * kernel.tokens * kernel.hidden + rows * (4 * kernel.hidden + 2 * matrices * width)
    return Work(
        nbytes=weights + activations * ACTIVATION,
        flop=2.0 * rows * matrices * kernel.hidden * width,
        precision=kernel.precision.value,
        weights=weights,
    )


def _attention(kernel: DecodeAttention) -> Work:
    keys = min(kernel.context, kernel.window) if kernel.window else kernel.context
    values = kernel.value_dim or kernel.head_dim
    columns = kernel.head_dim + (0 if kernel.latent else values)  # latent values are a part of the keys
    cache = float(kernel.batch * keys * kernel.kv_heads * columns) * kernel.kv_precision.bytes_per_parameter
    queries = kernel.batch * kernel.new_tokens * kernel.heads
    return Work(
        nbytes=cache + queries * (kernel.head_dim + values) * ACTIVATION,
        flop=2.0 * queries * (kernel.head_dim + values) * keys,
        precision="bf16",
        weights=cache,
    )


def _sparse_index(kernel: SparseIndex) -> Work:
    row = kernel.head_dim * Precision.FP8.bytes_per_parameter + Precision.FP32.bytes_per_parameter
    cache = kernel.batch * kernel.context * row
    queries = kernel.batch * kernel.new_tokens
    scores = queries * kernel.context * Precision.FP32.bytes_per_parameter  # written, then read to choose
    return Work(
        nbytes=cache + 2 * scores,
        flop=2.0 * queries * kernel.context * kernel.heads * kernel.head_dim,
        precision="fp8",
        weights=cache,
    )


def _delta_rule(kernel: DeltaRule) -> Work:
    state = (
        kernel.batch
        * kernel.value_heads
        * kernel.key_dim
        * kernel.value_dim
        * kernel.state_precision.bytes_per_parameter
    )
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
