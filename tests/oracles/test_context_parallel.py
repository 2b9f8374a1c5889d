"""Decode context parallelism against figures derived by hand.

N ranks in a row that would hold copies of a KV head hold every Nth token instead. With H query heads over TP ranks, R
rows, query width q and value width v, a rank passes in, per layer:

    queries          R x H / TP x q x 2 bytes          (all-gather, bf16)
    log-sum-exps     R x N x H / TP x 4 bytes          (all-gather, fp32)
    partial outputs  R x N x H / TP x v x 2 bytes      (reduce-scatter, bf16)

and its attention kernel has N x H / TP query heads over 1 / N of the tokens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pciesim.compare.memo import Memo
from pciesim.compare.outcome import outcome_of
from pciesim.errors import Infeasible
from pciesim.formats.engine_yaml import load_engine
from pciesim.memory import memory_use
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, Compute, DecodeAttention, SparseIndex, members
from pciesim.step import schedule_of
from pciesim.strategies.choice import apply_choices
from pciesim.workload import Parallelism, Phase
from tests.support.scenarios import scenario

GQA, MLA, SPARSE = "qwen35_397b", "kimi_k25_nvfp4", "deepseek_v32"


def question(model: str, *, batch: int = 1, context: int = 1024, engine: str = "vllm-0.33") -> Scenario:
    base = scenario(model=model, batch=batch, engine=engine)
    return replace(base, workload=replace(base.workload, context=context))


def spread(base: Scenario, ways: int, *, hypothetical: bool = False) -> Scenario:
    return apply_choices(base, [("dcp", str(ways))], hypothetical=hypothetical).scenario


def exchanged(given: Scenario) -> Counter[tuple[str, str, int, int]]:
    """(tensor, kind, bytes of a rank, ranks) and how often in a step."""
    return Counter(
        (op.name, op.kind.value, op.nbytes, op.ranks)
        for op in schedule_of(given).ops
        if isinstance(op, Collective) and op.category is Category.CONTEXT_EXCHANGE
    )


def attention(given: Scenario) -> DecodeAttention:
    """The attention kernel of the model's layers, which are all alike."""
    (found,) = {op.kernel for op in schedule_of(given).ops if isinstance(op, Compute) and op.name == "attention"}
    assert isinstance(found, DecodeAttention)
    return found


def test_grouped_queries() -> None:
    """Qwen3.5-397B, TP8, N = 4: 15 of 60 layers attend; 32 heads of 256, 2 KV heads, so four ranks hold each.

    Queries 4 x 256 x 2 = 2,048 bytes; log-sum-exps 4 x 4 x 4 = 64; outputs 4 x 4 x 256 x 2 = 8,192.
    """
    base = question(GQA, context=1001)
    assert exchanged(base) == {}
    assert exchanged(spread(base, 4)) == {
        ("queries", "all_gather", 2048, 4): 15,
        ("log_sum_exp", "all_gather", 64, 4): 15,
        ("partial_outputs", "reduce_scatter", 8192, 4): 15,
    }
    whole, part = attention(base), attention(spread(base, 4))
    assert (whole.heads, whole.kv_heads, whole.context) == (4, 1, 1001)
    assert (part.heads, part.kv_heads, part.context) == (16, 1, 251), "the rank with most tokens: 1,001 / 4, rounded up"


def test_latent_attention() -> None:
    """Kimi-K2.5, TP8, N = 8: 61 layers, 64 heads, latent 512, rotary 64: every rank holds the one latent.

    Queries 8 x 576 x 2 = 9,216 bytes; log-sum-exps 8 x 8 x 4 = 256; outputs 8 x 8 x 512 x 2 = 65,536.
    """
    base = question(MLA, context=8000)
    assert exchanged(spread(base, 8)) == {
        ("queries", "all_gather", 9216, 8): 61,
        ("log_sum_exp", "all_gather", 256, 8): 61,
        ("partial_outputs", "reduce_scatter", 65536, 8): 61,
    }
    whole, part = attention(base), attention(spread(base, 8))
    assert (whole.heads, whole.context) == (8, 8000)
    assert (part.heads, part.context) == (64, 1000)


def test_a_sparse_indexer_exchanges_its_candidates() -> None:
    """DeepSeek-V3.2, TP8, N = 4: 2,048 best tokens of each share as (score, number): 2,048 x 8 = 16,384 bytes.

    The indexer scores a quarter of 65,536 keys; of the 2,048 chosen a rank reads 512.
    """
    found = spread(question(SPARSE, context=65536), 4)
    assert exchanged(found)["index_candidates", "all_gather", 16384, 4] == 61
    assert attention(found).context == 512
    (index,) = {op.kernel for op in schedule_of(found).ops if op.category is Category.SPARSE_INDEX}
    assert isinstance(index, SparseIndex)
    assert index.context == 16384


@pytest.mark.parametrize(("model", "ways"), [(GQA, 2), (MLA, 4)])
def test_bytes_grow_with_the_rows(model: str, ways: int) -> None:
    """Sixteen sequences: sixteen times the bytes in as many calls, and three copies a layer that one row spares."""
    one, many = (spread(question(model, batch=batch), ways) for batch in (1, 16))
    assert {(*key[:2], 16 * key[2], key[3]): count for key, count in exchanged(one).items()} == exchanged(many)
    layers = max(exchanged(one).values())
    copies = [sum(op.name == "gather_copy" for op in schedule_of(each).ops) for each in (one, many)]
    assert copies[1] - copies[0] == 3 * layers


def test_every_verified_draft_is_a_row() -> None:
    """Three drafts: four rows of every sequence, in the model and in its draft head."""
    drafted = apply_choices(question("deepseek_v3"), [("dcp", "8"), ("spec", "mtp:3")]).scenario
    found = exchanged(drafted)
    assert found["queries", "all_gather", 4 * 16 * 576 * 2, 8] == 61 + 1
    assert found["queries", "all_gather", 16 * 576 * 2, 8] == 2


def test_subgroups_are_ranks_in_a_row_at_the_same_time() -> None:
    split = Parallelism(tp=8, dcp=2)
    assert members(split, "dcp", 0) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert members(replace(split, tp=4, pp=2), "dcp", 1) == ((4, 5), (6, 7))


@pytest.mark.parametrize(("model", "ways"), [(GQA, 4), (MLA, 8), (SPARSE, 8)])
def test_a_gpu_holds_its_share_of_the_tokens(model: str, ways: int) -> None:
    """The cache of a GPU falls by N, what fits grows; weights and recurrent states stay."""
    base = question(model, batch=4, context=32768)
    whole, part = memory_use(base), memory_use(spread(base, ways))
    assert part.kv_cache == pytest.approx(whole.kv_cache / ways)
    assert (part.weights, part.state, part.activations) == (whole.weights, whole.state, whole.activations)
    assert part.most_context == pytest.approx(ways * whole.most_context, rel=0.15)
    assert part.most_sequences > whole.most_sequences


@pytest.mark.parametrize(("model", "ways", "batch"), [(MLA, 8, 1), (GQA, 4, 16)])
def test_long_contexts_gain_and_short_ones_lose(model: str, ways: int, batch: int) -> None:
    """Three calls a layer cost the same whatever the context; what is not read grows with it."""
    memo = Memo(evaluator="estimate")

    def latency(context: int, ways: int) -> float:
        return outcome_of((), spread(question(model, batch=batch, context=context), ways), memo).latency

    short, long = ([latency(context, each) for each in (1, ways)] for context in (1024, 131072))
    assert short[1] > 1.03 * short[0]
    assert long[1] < 0.9 * long[0]


@pytest.mark.parametrize(
    ("model", "engine", "ways", "told"),
    [
        (GQA, "sglang", 2, "SGLang 0.5.23 has no decode context parallelism, vLLM has"),
        (GQA, "vllm-0.17", 2, "vLLM 0.17 does not have it for models with recurrent layers, 0.33.0 has"),
        (SPARSE, "vllm-0.17", 2, "vLLM 0.17 does not have it for sparse attention, 0.33.0 has"),
        ("gpt_oss_120b", "vllm-0.33", 2, "no windowed layers"),
        ("deepseek_v4_flash", "vllm-0.33", 2, "compressed cache"),
    ],
)
def test_refused_by_the_engine(model: str, engine: str, ways: int, told: str) -> None:
    with pytest.raises(Infeasible, match=told):
        spread(question(model, engine=engine), ways)


@pytest.mark.parametrize(
    ("model", "ways", "told"),
    [
        (GQA, 3, "does not divide TP 8"),
        (GQA, 8, "holds each of the 2 KV heads of .* 4 times: N must divide 4"),
        ("llama31_70b", 2, "holds each of the 8 KV heads of .* once"),
        ("deepseek_v4_flash", 2, "has a cache that it could spread"),
    ],
)
def test_there_must_be_copies_to_spread(model: str, ways: int, told: str) -> None:
    """Neither can it be supposed: without copies there is nothing to share."""
    with pytest.raises(Infeasible, match=told):
        spread(question(model), ways, hypothetical=True)


def test_older_versions_have_it_for_what_they_know() -> None:
    """0.17 does not mask empty shards: eight small kernels a layer less than 0.33."""
    ops = [len(schedule_of(spread(question(MLA, engine=each), 8)).ops) for each in ("vllm-0.17", "vllm-0.33")]
    assert ops[1] - ops[0] == 8 * 61
    assert exchanged(spread(question("qwen3_235b", engine="vllm-0.17"), 2))
    engine = replace(load_engine("vllm-0.17"), version="0.11.0")
    with pytest.raises(Infeasible, match=r"vLLM 0\.11\.0 does not have it for grouped queries, 0\.11\.1 has"):
        spread(replace(question("qwen3_235b"), engine=engine), 2)
    with pytest.raises(Infeasible, match=r"does not have decode context parallelism, 0\.10\.2 has"):
        spread(replace(question(MLA), engine=replace(engine, version="0.10.1")), 2)


def test_a_prompt_is_refused_and_left_as_it_is() -> None:
    base = question(GQA)
    prompt = replace(base, workload=replace(base.workload, phase=Phase.PREFILL, new_tokens=512, context=0))
    with pytest.raises(Infeasible, match="what a prompt pays"):
        spread(prompt, 2)
    assert schedule_of(spread(prompt, 2, hypothetical=True)) == schedule_of(prompt)


def test_windows_and_states_stay_whole() -> None:
    """Supposing that an engine did it: gpt-oss has 18 full layers of 36, 8 KV heads; at TP8 none has a copy."""
    model = scenario(model="gpt_oss_120b").model
    windows = {layer.mixer.spread(16, 2) for layer in model.layers if layer.mixer.window}
    full = {layer.mixer.spread(16, 2) for layer in model.layers if not layer.mixer.window}
    assert (windows, full) == ({1}, {2})
    recurrent = {type(layer.mixer).__name__: layer.mixer.spread(8, 4) for layer in scenario(model=GQA).model.layers}
    assert recurrent == {"GatedDeltaNet": 1, "Attention": 4}
