"""Schedules op by op: streams, places of small kernels, the mixers of every kind, and what they move."""

from __future__ import annotations

import pytest

from pciesim.errors import Infeasible
from pciesim.formats.engine_yaml import load_engine
from pciesim.formats.model import load_model
from pciesim.formats.shipped import find_input
from pciesim.model import ModelSpec
from pciesim.schedule import (
    Compute,
    DecodeAttention,
    DeltaRule,
    Elementwise,
    Gemm,
    RoutedExperts,
    Rule,
    Schedule,
    SparseIndex,
    Speculation,
    build,
    iteration,
    prompt,
)
from pciesim.workload import Parallelism, Phase, Workload

SGLANG = load_engine("sglang")


def model_named(name: str) -> ModelSpec:
    return load_model(find_input("models", name))


def of(name: str, work: Workload | None = None, tp: int = 8) -> Schedule:
    return build(model_named(name), work or Workload(), Parallelism(tp=tp), SGLANG)


def kernels(schedule: Schedule, kind: type) -> list[object]:
    return [op.kernel for op in schedule.ops if isinstance(op, Compute) and isinstance(op.kernel, kind)]


def test_shared_experts_and_gates_run_beside_the_main_stream() -> None:
    schedule = of("qwen35_397b")
    beside = {op.name for op in schedule.ops if op.stream == 1}
    assert beside == {
        "in_proj_ba", "shared_gate_up_proj", "silu_mul", "shared_down_proj", "shared_gate", "sigmoid_mul",
    }  # fmt: skip
    position = next(i for i, op in enumerate(schedule.ops) if op.name == "delta_rule")
    (waited,) = schedule.after[position]
    assert schedule.ops[waited].name == "in_proj_ba"


def test_many_rows_and_prompts_have_no_side_stream() -> None:
    assert {op.stream for op in of("qwen35_397b", Workload(batch=1024)).ops} == {0}
    assert {op.stream for op in of("qwen35_397b", Workload(phase=Phase.PREFILL, new_tokens=64, context=0)).ops} == {0}


def test_batches_are_padded_but_experts_and_attention_see_real_sequences() -> None:
    """Three sequences run in the graph of four."""
    schedule = of("qwen35_397b", Workload(batch=3))
    assert {kernel.m for kernel in kernels(schedule, Gemm) if isinstance(kernel, Gemm)} == {4}
    assert {kernel.tokens for kernel in kernels(schedule, RoutedExperts) if isinstance(kernel, RoutedExperts)} == {3}
    assert {kernel.batch for kernel in kernels(schedule, DecodeAttention) if isinstance(kernel, DecodeAttention)} == {3}


def test_latent_attention_decodes_in_the_latent_and_expands_a_prompt() -> None:
    """DeepSeek-V3 at TP8: 16 heads on one latent of 512 + 64 at decode; 16 KV heads of 192 and 128 for a prompt."""
    (decode, *_) = kernels(of("deepseek_v3"), DecodeAttention)
    assert isinstance(decode, DecodeAttention)
    assert (decode.heads, decode.kv_heads, decode.head_dim, decode.value_dim, decode.latent) == (16, 1, 576, 512, True)
    (read, *_) = kernels(of("deepseek_v3", Workload(phase=Phase.PREFILL, context=0, new_tokens=256)), DecodeAttention)
    assert isinstance(read, DecodeAttention)
    assert (read.heads, read.kv_heads, read.head_dim, read.value_dim, read.latent) == (16, 16, 192, 128, False)
    names = [op.name for op in of("deepseek_v3").ops]
    assert names.count("kv_b_key") == names.count("kv_b_value") == 61


def test_sparse_attention_reads_what_the_indexer_chose() -> None:
    """DeepSeek-V3.2 at 40,000 tokens: the indexer scores all, attention reads 2,048; below that it reads all."""
    schedule = of("deepseek_v32", Workload(context=40_000))
    index, attention = kernels(schedule, SparseIndex)[0], kernels(schedule, DecodeAttention)[0]
    assert isinstance(index, SparseIndex)
    assert isinstance(attention, DecodeAttention)
    assert (index.context, attention.context) == (40_000, 2048)
    (short, *_) = kernels(of("deepseek_v32", Workload(context=1000)), DecodeAttention)
    assert isinstance(short, DecodeAttention)
    assert short.context == 1000


def test_compressed_attention_reads_its_window_and_chosen_entries() -> None:
    """DeepSeek-V4-Flash at 40,000 tokens: 128 recent tokens, and 10,000 entries (ratio 4) or 312 (ratio 128)."""
    found = {kernel.context for kernel in kernels(of("deepseek_v4_flash", Workload(context=40_000)), DecodeAttention)
             if isinstance(kernel, DecodeAttention)}  # fmt: skip
    assert 128 + 40_000 // 128 in found
    assert max(found) <= 128 + 10_000


def test_a_window_bounds_what_is_read() -> None:
    found = [kernel for kernel in kernels(of("gpt_oss_120b", Workload(context=5000)), DecodeAttention)
             if isinstance(kernel, DecodeAttention)]  # fmt: skip
    assert {(kernel.window, kernel.context) for kernel in found} == {(128, 128), (0, 5000)}


def test_recurrences_by_kind() -> None:
    assert {kernel.rule for kernel in kernels(of("kimi_k3"), DeltaRule) if isinstance(kernel, DeltaRule)} == {
        Rule.KIMI_DELTA
    }
    (state, *_) = kernels(of("nemotron3_super"), DeltaRule)
    assert isinstance(state, DeltaRule)
    assert state.rule is Rule.MAMBA2


def test_verification_writes_a_state_after_every_token() -> None:
    """One read and four writes of every state against one and one."""
    model = model_named("qwen35_397b")

    def moved(tokens: int) -> float:
        schedule = build(model, Workload(new_tokens=tokens), Parallelism(tp=8), SGLANG)
        return sum(op.nbytes for op in schedule.ops if op.name == "delta_rule")

    assert moved(4) == pytest.approx(moved(1) * 5 / 2)


def test_experts_of_two_matrices() -> None:
    (experts, *_) = kernels(of("nemotron3_super"), RoutedExperts)
    assert isinstance(experts, RoutedExperts)
    assert (experts.gated, experts.hidden) == (False, 1024)


def test_rows_of_small_kernels_have_their_width() -> None:
    widths = {(k.kind, k.width) for k in kernels(of("qwen35_397b"), Elementwise) if isinstance(k, Elementwise)}
    assert ("rmsnorm_add", 4096) in widths
    assert ("topk", 512) in widths


def test_drafts_hit_fewer_experts_when_they_are_alike() -> None:
    model = model_named("qwen35_397b")

    def hit(alike: float) -> float:
        passes = iteration(model, Workload(), Parallelism(tp=8), SGLANG, Speculation(drafts=3, alike=alike))
        verify = next(each.schedule for each in passes if each.name == "verify")
        return sum(op.nbytes for op in verify.ops if op.name == "routed_experts")

    assert hit(0.0) > hit(0.5) > hit(1.0)


def test_a_model_without_a_draft_head_cannot_draft() -> None:
    with pytest.raises(Infeasible, match="has no draft head"):
        iteration(model_named("llama31_8b"), Workload(), Parallelism(tp=2), SGLANG, Speculation(drafts=3))


def test_a_prompt_is_read_in_chunks() -> None:
    """20,000 tokens in chunks of 8,192: two whole ones and 3,616, each after what was read before."""
    passes = prompt(model_named("qwen35_397b"), Parallelism(tp=8), SGLANG, tokens=20_000)
    rows = [next(op for op in each.schedule.ops if op.name == "router") for each in passes]
    assert [op.kernel.m for op in rows if isinstance(op, Compute) and isinstance(op.kernel, Gemm)] == [8192, 8192, 3616]
    assert [len(kernels(each.schedule, Gemm)) for each in passes] == [len(kernels(passes[0].schedule, Gemm))] * 3
