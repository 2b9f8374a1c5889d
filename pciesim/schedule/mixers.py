"""What each token mixer issues on one rank: projections, small kernels, attention or recurrence, and the sums inside.

The GEMMs come from the mixer's own list of linears, the small kernels from the engine's file, by place. The sum after
the last projection belongs to the boundary with the MLP and is issued there (:mod:`pciesim.schedule.exchange`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pciesim.model import (
    Attention,
    CompressedAttention,
    GatedDeltaNet,
    KimiDelta,
    Linear,
    Mamba2,
    Mla,
    Sum,
)
from pciesim.schedule.context import gather_queries, merge_candidates, merge_outputs
from pciesim.schedule.frame import Frame
from pciesim.schedule.groups import ATTENTION_TP
from pciesim.schedule.ops import Category, DecodeAttention, DeltaRule, Rule, SparseIndex
from pciesim.schedule.tape import Tape
from pciesim.workload import Phase

__all__ = ["MIXERS", "issue_mixer"]


def issue_mixer(tape: Tape, mixer: object) -> None:
    """The ops of a mixer up to its last projection. Raises KeyError for a kind that has no schedule."""
    MIXERS[type(mixer)](tape, mixer)


def _attention(tape: Tape, mixer: Attention) -> None:
    frame = tape.frame
    tp, rows, hidden = frame.attention_tp, frame.rows, frame.model.hidden
    linears = mixer.linears(hidden)
    heads, kv_heads = _share(mixer.heads, tp), _share(mixer.kv_heads, tp)
    values = mixer.value_dim or mixer.head_dim
    tape.gemm("qkv_proj", linears, tp=tp, rows=rows)
    _inner_sums(tape, mixer.sums(hidden), "o_proj")
    with tape.side():
        tape.gemm("g_proj", linears, tp=tp, rows=rows)
    tape.small("attention_prepare", heads * mixer.head_dim + kv_heads * (mixer.head_dim + values), rows)
    context, ways = min(frame.context, mixer.window) if mixer.window else frame.context, frame.spread(mixer)
    keys = _select(tape, mixer, context, ways)
    gather_queries(tape, ways, heads=heads, width=mixer.head_dim, latent=False)
    kernel = DecodeAttention(
        batch=frame.sequences, new_tokens=frame.new_tokens, context=_mean_keys(frame, keys), heads=ways * heads,
        kv_heads=kv_heads, head_dim=mixer.head_dim, window=mixer.window, kv_precision=frame.model.kv_precision,
        value_dim=mixer.value_dim,
    )  # fmt: skip
    width = mixer.head_dim + values
    cache = frame.sequences * keys * kv_heads * width * frame.model.kv_precision.bytes_per_parameter
    flop = 2.0 * frame.sequences * frame.new_tokens * _mean_keys(frame, keys) * ways * heads * width
    tape.join()
    tape.compute("attention", Category.ATTENTION, kernel, cache, flop)
    merge_outputs(tape, ways, heads=heads, width=values, latent=False)
    if mixer.output_gate or mixer.head_gate:
        tape.small("attention_gate", heads * values, rows)
    tape.gemm("o_proj", linears, tp=tp, rows=rows)


def _mla(tape: Tape, mixer: Mla) -> None:
    """Decode works in the latent: kv_b becomes a product before and one after attention. A prompt expands it."""
    frame = tape.frame
    tp, rows, hidden = frame.attention_tp, frame.rows, frame.model.hidden
    linears = mixer.linears(hidden)
    heads, latent = _share(mixer.heads, tp), mixer.kv_latent
    with tape.side():
        tape.gemm("g_proj", linears, tp=tp, rows=rows)
    tape.gemm("qkv_a_proj", linears, tp=tp, rows=rows)
    tape.gemm("kv_a_proj", linears, tp=tp, rows=rows)
    tape.small("latent_norm", mixer.q_latent + latent, rows)
    tape.gemm("q_b_proj", linears, tp=tp, rows=rows)
    tape.gemm("q_proj", linears, tp=tp, rows=rows)
    tape.small("attention_prepare", heads * mixer.rope_dim + latent, rows)
    expand, ways = frame.phase is Phase.PREFILL, frame.spread(mixer)
    keys = _select(tape, mixer, frame.context, ways)
    up = _by_head(linears, "kv_b_proj", mixer.nope_dim, mixer.value_dim, mixer.heads)
    if expand:
        tape.gemm("kv_b_proj", linears, tp=tp, rows=rows)
    else:
        tape.gemm("kv_b_key", up, tp=tp, rows=rows)
    head_dim = mixer.nope_dim + mixer.rope_dim if expand else latent + mixer.rope_dim
    values = mixer.value_dim if expand else latent
    gather_queries(tape, ways, heads=heads, width=head_dim, latent=True)
    kernel = DecodeAttention(
        batch=frame.sequences, new_tokens=frame.new_tokens, context=_mean_keys(frame, keys), heads=ways * heads,
        kv_heads=heads if expand else 1, head_dim=head_dim, window=0, kv_precision=frame.model.kv_precision,
        value_dim=values, latent=not expand,
    )  # fmt: skip
    cache = frame.sequences * keys * (latent + mixer.rope_dim) * frame.model.kv_precision.bytes_per_parameter
    flop = 2.0 * frame.sequences * frame.new_tokens * _mean_keys(frame, keys) * ways * heads * (head_dim + values)
    tape.join()
    tape.compute("attention", Category.ATTENTION, kernel, cache, flop)
    merge_outputs(tape, ways, heads=heads, width=values, latent=True)
    if not expand:
        tape.gemm("kv_b_value", up, tp=tp, rows=rows)
    if mixer.output_gate:
        tape.small("attention_gate", heads * mixer.value_dim, rows)
    tape.gemm("o_proj", linears, tp=tp, rows=rows)


def _compressed(tape: Tape, mixer: CompressedAttention) -> None:
    frame = tape.frame
    tp, rows, hidden = frame.attention_tp, frame.rows, frame.model.hidden
    linears = mixer.linears(hidden)
    heads = _share(mixer.heads, tp)
    tape.gemm("qkv_a_proj", linears, tp=tp, rows=rows)
    tape.small("latent_norm", mixer.q_latent + mixer.head_dim, rows)
    if mixer.ratio:
        with tape.side():
            tape.gemm("compressor_proj", linears, tp=tp, rows=rows)
            tape.gemm("index_compressor_proj", linears, tp=tp, rows=rows)
            tape.small("compress", mixer.compressor_width, rows)
    tape.gemm("q_b_proj", linears, tp=tp, rows=rows)
    tape.small("attention_prepare", heads * mixer.head_dim + mixer.head_dim, rows)
    entries = frame.context // mixer.ratio if mixer.ratio else 0
    tape.join()
    kept = _select(tape, mixer, entries)
    keys = min(frame.context, mixer.local_window) + kept
    kernel = DecodeAttention(
        batch=frame.sequences, new_tokens=frame.new_tokens, context=_mean_keys(frame, keys), heads=heads, kv_heads=1,
        head_dim=mixer.head_dim, window=0, kv_precision=frame.model.kv_precision, latent=True,
    )  # fmt: skip
    cache = frame.sequences * keys * mixer.head_dim * frame.model.kv_precision.bytes_per_parameter
    flop = 4.0 * frame.sequences * frame.new_tokens * _mean_keys(frame, keys) * heads * mixer.head_dim
    tape.compute("attention", Category.ATTENTION, kernel, cache, flop)
    tape.gemm("o_a_proj", linears, tp=tp, rows=rows)
    tape.gemm("o_b_proj", linears, tp=tp, rows=rows)


def _gated_delta(tape: Tape, mixer: GatedDeltaNet) -> None:
    frame = tape.frame
    tp, rows = frame.attention_tp, frame.rows
    linears = mixer.linears(frame.model.hidden)
    values = mixer.value_heads * mixer.value_dim // tp
    tape.gemm("in_proj_qkvz", linears, tp=tp, rows=rows)
    with tape.side():
        tape.gemm("in_proj_ba", linears, tp=tp, rows=rows)
    tape.small("delta_prepare", 2 * values, rows)
    kernel = DeltaRule(
        batch=frame.sequences, new_tokens=frame.new_tokens, key_heads=_share(mixer.key_heads, tp),
        value_heads=_share(mixer.value_heads, tp), key_dim=mixer.key_dim, value_dim=mixer.value_dim,
        conv_kernel=mixer.conv_kernel, hidden=frame.model.hidden, state_precision=mixer.state_precision,
    )  # fmt: skip
    _recurrence(tape, kernel, mixer.state_bytes_per_sequence(tp), values * mixer.key_dim)
    tape.small("delta_finish", values, rows)
    tape.gemm("out_proj", linears, tp=tp, rows=rows)


def _kimi_delta(tape: Tape, mixer: KimiDelta) -> None:
    frame = tape.frame
    tp, rows = frame.attention_tp, frame.rows
    linears = mixer.linears(frame.model.hidden)
    heads = _share(mixer.heads, tp)
    width = heads * mixer.head_dim
    tape.gemm("qkv_proj", linears, tp=tp, rows=rows)
    with tape.side():
        for name in ("f_a_proj", "f_b_proj", "b_proj", "g_a_proj", "g_b_proj", "g_proj"):
            tape.gemm(name, linears, tp=tp, rows=rows)
    tape.small("delta_prepare", 2 * width, rows)
    kernel = DeltaRule(
        batch=frame.sequences, new_tokens=frame.new_tokens, key_heads=heads, value_heads=heads,
        key_dim=mixer.head_dim, value_dim=mixer.head_dim, conv_kernel=mixer.conv_kernel, hidden=frame.model.hidden,
        rule=Rule.KIMI_DELTA, state_precision=mixer.state_precision,
    )  # fmt: skip
    _recurrence(tape, kernel, mixer.state_bytes_per_sequence(tp), width * mixer.head_dim)
    tape.small("delta_finish", width, rows)
    tape.gemm("o_proj", linears, tp=tp, rows=rows)


def _mamba2(tape: Tape, mixer: Mamba2) -> None:
    frame = tape.frame
    tp, rows = frame.attention_tp, frame.rows
    linears = mixer.linears(frame.model.hidden)
    heads = _share(mixer.heads, tp)
    width = heads * mixer.head_dim
    tape.gemm("in_proj", linears, tp=tp, rows=rows)
    tape.small("delta_prepare", 2 * width, rows)
    kernel = DeltaRule(
        batch=frame.sequences, new_tokens=frame.new_tokens, key_heads=_share(mixer.groups, tp), value_heads=heads,
        key_dim=mixer.state, value_dim=mixer.head_dim, conv_kernel=mixer.conv_kernel, hidden=frame.model.hidden,
        rule=Rule.MAMBA2, state_precision=mixer.state_precision,
    )  # fmt: skip
    _recurrence(tape, kernel, mixer.state_bytes_per_sequence(tp), width * mixer.state)
    tape.small("delta_finish", width, rows)
    tape.gemm("out_proj", linears, tp=tp, rows=rows)


def _recurrence(tape: Tape, kernel: DeltaRule, state: float, products: float) -> None:
    """Convolution update and recurrence. Decode reads the state once and writes it after every token of the pass."""
    frame = tape.frame
    prompt = frame.phase is Phase.PREFILL
    writes = 1 if prompt else frame.new_tokens
    category = Category.STATE_SPACE if kernel.rule is Rule.MAMBA2 else Category.DELTA_RULE
    name = "state_space" if kernel.rule is Rule.MAMBA2 else "delta_rule"
    tape.join()
    nbytes = (1 + writes) * frame.sequences * state
    tape.compute(name, category, kernel, nbytes, 8.0 * frame.sequences * frame.new_tokens * products)
    if frame.new_tokens > 1 and not prompt:
        tape.small("state_commit", round(state / 4), frame.sequences)  # the accepted token's state becomes the state


def _select(tape: Tape, mixer: Attention | Mla | CompressedAttention, keys: int, ways: int = 1) -> int:
    """Keys a query reads: all, or the ``sparse_top_k`` that the indexer (this layer's or an earlier one's) chose.

    Of a cache spread over ``ways`` ranks, those on the rank that has most.
    """
    frame, indexer, top_k = tape.frame, mixer.indexer, mixer.sparse_top_k
    kept, keys = min(keys, top_k) if top_k else keys, -(-keys // ways)
    if indexer is not None:
        for name in ("index_q_proj", "index_k_proj", "index_weights_proj"):
            tape.gemm(name, mixer.linears(frame.model.hidden), tp=1, rows=frame.rows)
        tape.small("index_prepare", (indexer.heads + 1) * indexer.head_dim, frame.rows)
        kernel = SparseIndex(
            batch=frame.sequences, new_tokens=frame.new_tokens, context=_mean_keys(frame, keys), heads=indexer.heads,
            head_dim=indexer.head_dim, top_k=top_k,
        )  # fmt: skip
        nbytes = frame.sequences * keys * indexer.kv_bytes_per_token()
        flop = 2.0 * frame.sequences * frame.new_tokens * _mean_keys(frame, keys) * indexer.heads * indexer.head_dim
        tape.compute("sparse_index", Category.SPARSE_INDEX, kernel, nbytes, flop)
        merge_candidates(tape, ways, top_k)
    return -(-kept // ways)


def _mean_keys(frame: Frame, keys: int) -> int:
    """Keys a query sees on average: prompt tokens see those before them in the chunk too."""
    return keys + frame.new_tokens // 2 if frame.phase is Phase.PREFILL else keys


def _by_head(linears: Sequence[Linear], name: str, keys: int, values: int, heads: int) -> tuple[Linear, ...]:
    """kv_b as the two products of decode: latent queries before attention, values after it."""
    whole = next(linear for linear in linears if linear.name == name)
    return tuple(
        Linear(
            name=part, inputs=whole.inputs, outputs=heads * width, split=whole.split, units=whole.units, fused=part,
            precision=whole.precision, module=whole.module,
        )
        for part, width in (("kv_b_key", keys), ("kv_b_value", values))
    )  # fmt: skip


def _inner_sums(tape: Tape, sums: Sequence[Sum], last: str) -> None:
    """Sums inside the mixer: the norm over a whole q and k projection that spans ranks."""
    for each in sums:
        if each.after != last:
            tape.all_reduce(each.after, tape.frame.rows, each, group=ATTENTION_TP)


def _share(heads: int, tp: int) -> int:
    """Heads of one rank: at least one, replicated beyond."""
    return max(1, heads // tp)


_Issue = Callable[[Tape, Any], None]
MIXERS: Mapping[type, _Issue] = MappingProxyType(
    {
        Attention: _attention,
        Mla: _mla,
        CompressedAttention: _compressed,
        GatedDeltaNet: _gated_delta,
        KimiDelta: _kimi_delta,
        Mamba2: _mamba2,
    }
)
