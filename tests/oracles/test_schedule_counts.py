"""Collectives of one decode step: counts and bytes worked out by hand for every model, not taken from the code.

Plain tensor parallelism sums once after the embedding and once after every mixer and every MLP: 1 + 2 x layers calls of
hidden x 2 bytes a token; Nemotron's blocks are a mixer or an MLP, so one each; MiniMax-M2 adds two fp32 a layer for the
norm over the whole q and k projections; Kimi-K3's MoE sums carry [latent 3584 | shared 7168]; Gemma-4 26B sums its
dense and its routed branch apart. The logits are gathered once: vocabulary / TP x 2 bytes from each rank.
"""

from __future__ import annotations

from collections import Counter

import pytest

from pciesim.formats.engine_yaml import load_engine
from pciesim.formats.model import load_model
from pciesim.formats.shipped import find_input
from pciesim.model import ModelSpec
from pciesim.schedule import Collective, CollectiveKind, Schedule, Speculation, build, iteration
from pciesim.workload import Parallelism, Phase, Workload

SGLANG, VLLM = load_engine("sglang"), load_engine("vllm")

# file, all-reduces a step, {bytes a token: calls}, vocabulary
TABLE = [
    ("qwen35_397b", 121, {8192: 121}, 248320),  # 1 + 2 x 60; 4096 x 2
    ("qwen35_122b", 97, {6144: 97}, 248320),  # 1 + 2 x 48; 3072 x 2
    ("qwen35_35b", 81, {4096: 81}, 248320),  # 1 + 2 x 40; 2048 x 2
    ("qwen35_27b", 129, {10240: 129}, 248320),  # 1 + 2 x 64; 5120 x 2
    ("qwen3_235b", 189, {8192: 189}, 151936),  # 1 + 2 x 94; 4096 x 2
    ("qwen3_next_80b", 97, {4096: 97}, 151936),  # 1 + 2 x 48; 2048 x 2
    ("deepseek_v3", 123, {14336: 123}, 129280),  # 1 + 2 x 61; 7168 x 2
    ("deepseek_v32", 123, {14336: 123}, 129280),
    ("kimi_k2", 123, {14336: 123}, 163840),
    ("kimi_k25", 123, {14336: 123}, 163840),
    ("deepseek_v4_pro", 123, {14336: 123}, 129280),
    ("deepseek_v4_flash", 87, {8192: 87}, 129280),  # 1 + 2 x 43; 4096 x 2
    ("kimi_k3", 187, {14336: 95, 21504: 92}, 163840),  # 1 + 2 x 93; 92 MoE layers sum (3584 + 7168) x 2
    ("nemotron3_super", 89, {8192: 89}, 131072),  # 1 + 88 blocks; 4096 x 2
    ("nemotron3_nano", 53, {5376: 53}, 131072),  # 1 + 52 blocks; 2688 x 2
    ("nemotron3_ultra", 109, {16384: 109}, 131072),  # 1 + 108 blocks; 8192 x 2
    ("glm5", 157, {12288: 157}, 154880),  # 1 + 2 x 78; 6144 x 2
    ("glm51", 157, {12288: 157}, 154880),
    ("glm52", 157, {12288: 157}, 154880),
    ("glm47", 185, {10240: 185}, 151552),  # 1 + 2 x 92; 5120 x 2
    ("glm45_air", 93, {8192: 93}, 151552),  # 1 + 2 x 46; 4096 x 2
    ("minimax_m2", 187, {6144: 125, 8: 62}, 200064),  # 1 + 3 x 62; 3072 x 2, and 2 fp32
    ("minimax_m27", 187, {6144: 125, 8: 62}, 200064),
    ("minimax_m3", 121, {12288: 121}, 200064),  # 1 + 2 x 60; 6144 x 2
    ("gpt_oss_120b", 73, {5760: 73}, 201088),  # 1 + 2 x 36; 2880 x 2
    ("gpt_oss_20b", 49, {5760: 49}, 201088),
    ("llama31_8b", 65, {8192: 65}, 128256),
    ("llama31_70b", 161, {16384: 161}, 128256),
    ("llama31_405b", 253, {32768: 253}, 128256),
    ("mixtral_8x7b", 65, {8192: 65}, 32000),
    ("mixtral_8x22b", 113, {12288: 113}, 32000),
    ("llama4_maverick", 97, {10240: 97}, 202048),
    ("llama4_scout", 97, {10240: 97}, 202048),
    ("gemma4_26b", 91, {5632: 91}, 262144),  # 1 + 3 x 30; 2816 x 2
    ("gemma4_31b", 121, {10752: 121}, 262144),
    ("mimo_v2_flash", 97, {8192: 97}, 152576),
]


def model_named(name: str) -> ModelSpec:
    return load_model(find_input("models", name))


def sums(schedule: Schedule) -> Counter[int]:
    return Counter(op.nbytes for op in collectives(schedule, CollectiveKind.ALL_REDUCE))


def collectives(schedule: Schedule, kind: CollectiveKind | None = None) -> list[Collective]:
    return [op for op in schedule.ops if isinstance(op, Collective) and kind in (None, op.kind)]


@pytest.mark.parametrize("engine", [SGLANG, VLLM], ids=["sglang", "vllm"])
@pytest.mark.parametrize(("name", "calls", "sizes", "vocabulary"), TABLE, ids=[row[0] for row in TABLE])
def test_tensor_parallel(engine: object, name: str, calls: int, sizes: dict[int, int], vocabulary: int) -> None:
    tp, batch = 4, 8
    schedule = build(model_named(name), Workload(batch=batch), Parallelism(tp=tp), engine)  # type: ignore[arg-type]
    found = sums(schedule)
    assert found.total() == calls
    assert found == {size * batch: count for size, count in sizes.items()}
    (gather,) = collectives(schedule, CollectiveKind.ALL_GATHER)
    assert gather.nbytes == batch * vocabulary // tp * 2
    assert {op.ranks for op in collectives(schedule)} == {tp}
    assert {op.group for op in collectives(schedule)} == {"tp"}


@pytest.mark.parametrize(("name", "calls", "sizes", "vocabulary"), TABLE, ids=[row[0] for row in TABLE])
def test_prefill_sums_every_token_and_gathers_the_last(
    name: str, calls: int, sizes: dict[int, int], vocabulary: int
) -> None:
    chunk = 4096
    work = Workload(phase=Phase.PREFILL, batch=1, context=0, new_tokens=chunk)
    schedule = build(model_named(name), work, Parallelism(tp=4), SGLANG)
    assert sums(schedule) == {size * chunk: count for size, count in sizes.items()}
    assert sums(schedule).total() == calls
    (gather,) = collectives(schedule, CollectiveKind.ALL_GATHER)
    assert gather.nbytes == vocabulary // 4 * 2


def test_the_worked_example() -> None:
    """Qwen3.5-397B, TP8, one user: 121 all-reduces of 8,192 B, 991,232 B in all, and one all-gather of 62,080 B."""
    schedule = build(model_named("qwen35_397b"), Workload(), Parallelism(tp=8), SGLANG)
    assert sum(op.nbytes for op in collectives(schedule, CollectiveKind.ALL_REDUCE)) == 991_232
    assert [op.nbytes for op in collectives(schedule, CollectiveKind.ALL_GATHER)] == [62_080]


def test_norms_over_the_whole_projection_are_summed_in_fp32() -> None:
    schedule = build(model_named("minimax_m27"), Workload(batch=2), Parallelism(tp=4), SGLANG)
    assert Counter(op.precision.value for op in collectives(schedule, CollectiveKind.ALL_REDUCE)) == {
        "bf16": 125,
        "fp32": 62,
    }


def test_attention_data_parallelism_of_sglang() -> None:
    """Eight ranks, each with 8 of 64 sequences, no all-reduce: embedding and attention are whole.

    Per layer: an all-gather of 8 x 4096 x 2 B from each rank before the MLP, a reduce-scatter of 64 x 4096 x 2 B after
    it. Before the head the rows of all are gathered once more; the logits of all 64 rows from each rank's eighth of the
    vocabulary.
    """
    schedule = build(model_named("qwen35_397b"), Workload(batch=64), Parallelism(tp=8, ep=8, attention_dp=8), SGLANG)
    assert sums(schedule).total() == 0
    gathers = Counter(op.nbytes for op in collectives(schedule, CollectiveKind.ALL_GATHER))
    assert gathers == {8 * 4096 * 2: 60 + 1, 64 * 248320 // 8 * 2: 1}
    scatters = Counter(op.nbytes for op in collectives(schedule, CollectiveKind.REDUCE_SCATTER))
    assert scatters == {64 * 4096 * 2: 60}


def test_attention_data_parallelism_over_groups() -> None:
    """Four attention groups of two GPUs, 4 sequences each.

    Attention's partial sums are reduce-scattered in the pair (input 4 x 4096 x 2 B), 2 rows a rank gathered over all;
    after the MLP 16 rows are reduce-scattered over all, and the 2 rows a rank gathered in the pair.
    """
    schedule = build(model_named("qwen35_397b"), Workload(batch=16), Parallelism(tp=8, attention_dp=4), SGLANG)
    row = 4096 * 2
    found = Counter((op.kind.value, op.group, op.nbytes) for op in collectives(schedule) if op.name != "logits")
    assert found == {
        ("reduce_scatter", "attention_tp", 4 * row): 60,
        ("all_gather", "tp", 2 * row): 60 + 1,
        ("reduce_scatter", "tp", 16 * row): 60,
        ("all_gather", "attention_tp", 2 * row): 60,
    }


def test_prefill_under_attention_data_parallelism_fills_and_sums() -> None:
    """SUM_LEN: both ways are an all-reduce of the rows of all sequences, 8 x 512 of them."""
    work = Workload(phase=Phase.PREFILL, batch=8, context=0, new_tokens=512)
    schedule = build(model_named("qwen35_397b"), work, Parallelism(tp=8, attention_dp=8), SGLANG)
    assert sums(schedule) == {8 * 512 * 4096 * 2: 120}
    assert not collectives(schedule, CollectiveKind.REDUCE_SCATTER)


def test_attention_data_parallelism_of_vllm() -> None:
    """Rows of routed experts only: gathered with 10 weights and numbers of 4 B each, reduce-scattered back. The
    vocabulary is not cut: every rank serves its own sequences."""
    schedule = build(model_named("qwen35_397b"), Workload(batch=64), Parallelism(tp=8, ep=8, attention_dp=8), VLLM)
    found = Counter((op.kind.value, op.group, op.nbytes) for op in collectives(schedule))
    assert found == {
        ("all_gather", "ep", 8 * (4096 * 2 + 10 * 8)): 60,
        ("reduce_scatter", "ep", 64 * 4096 * 2): 60,
    }


def test_vllm_spreads_rows_over_tensor_parallel_ranks() -> None:
    """TP2 x DP4 with expert parallelism: rows are reduce-scattered after attention and gathered before the next one;
    the embedding is cut over two GPUs and summed. 16 sequences: 4 rows an attention group, 2 a rank."""
    schedule = build(model_named("qwen35_397b"), Workload(batch=16), Parallelism(tp=8, ep=8, attention_dp=4), VLLM)
    row = 4096 * 2
    found = Counter((op.kind.value, op.group, op.nbytes) for op in collectives(schedule) if op.name != "logits")
    assert found == {
        ("all_reduce", "attention_tp", 4 * row): 1,
        ("reduce_scatter", "attention_tp", 4 * row): 60,
        ("all_gather", "ep", 2 * (row + 10 * 8)): 60,
        ("reduce_scatter", "ep", 16 * row): 60,
        ("all_gather", "attention_tp", 2 * row): 60,
    }


def test_all_to_all() -> None:
    """DeepEP: FP8 rows with a scale per 128 columns to 8 (1 - (7/8)^10) = 5.895 distinct ranks, bf16 rows back. One row
    a rank of eight."""
    schedule = build(model_named("qwen35_397b"), Workload(batch=8), Parallelism(tp=8, ep=8, all_to_all=True), SGLANG)
    ranks = 8 * (1 - (7 / 8) ** 10)
    assert ranks == pytest.approx(5.895, abs=0.001)
    found = Counter(op.nbytes for op in collectives(schedule, CollectiveKind.ALL_TO_ALL))
    assert found == {round(ranks * (4096 + 32 * 4)): 60, round(ranks * 4096 * 2): 60}
    assert sums(schedule) == {8 * 8192: 1}  # the embedding
    assert Counter(op.nbytes for op in collectives(schedule, CollectiveKind.REDUCE_SCATTER)) == {8 * 8192: 60}


def test_pipeline() -> None:
    """TP2 x PP4, 8 sequences in micro-batches of 2.

    At each of three boundaries hidden state and residual, half of 2 rows from each rank, gathered on arrival; all other
    calls as without stages, of 2 rows.
    """
    schedule = build(model_named("qwen35_397b"), Workload(batch=8), Parallelism(tp=2, pp=4), SGLANG)
    half = 2 * 4096 * 2 // 2
    sent = collectives(schedule, CollectiveKind.SEND_RECV)
    assert [(op.stage, op.nbytes, op.ranks) for op in sent] == [(s, half, 2) for s in (0, 0, 1, 1, 2, 2)]
    received = [op for op in collectives(schedule, CollectiveKind.ALL_GATHER) if op.name != "logits"]
    assert [(op.stage, op.nbytes) for op in received] == [(s, half) for s in (1, 1, 2, 2, 3, 3)]
    assert sums(schedule) == {2 * 8192: 121}


def test_draft_passes_of_sglang() -> None:
    """Steps 3, a chain, one user, TP8: two draft passes and one over the 4 verified rows, each 3 all-reduces and one
    gather of one row's logits; 121 all-reduces of 4 rows: 130 in all. Sampling that is not greedy broadcasts 4, 4 and 1
    int32."""
    passes = iteration(
        model_named("qwen35_397b"), Workload(), Parallelism(tp=8), SGLANG, Speculation(drafts=3, greedy=False)
    )
    assert [(each.name, each.count) for each in passes] == [("draft", 2), ("verify", 1), ("extend", 1)]
    by_name = {each.name: each.schedule for each in passes}
    assert sums(by_name["draft"]) == {8192: 3}
    assert sums(by_name["extend"]) == {4 * 8192: 3}
    assert sums(by_name["verify"]) == {4 * 8192: 121}
    assert sum(each.count * sums(each.schedule).total() for each in passes) == 130
    gathers = {name: [op.nbytes for op in collectives(s, CollectiveKind.ALL_GATHER)] for name, s in by_name.items()}
    assert gathers == {"draft": [62080], "extend": [62080], "verify": [4 * 62080]}
    assert [op.nbytes for op in collectives(by_name["verify"], CollectiveKind.BROADCAST)] == [16, 16, 4]


def test_draft_passes_of_the_older_sglang_gather_all_logits() -> None:
    passes = iteration(
        model_named("qwen35_397b"), Workload(), Parallelism(tp=8), load_engine("sglang-0.5.9"), Speculation(drafts=3)
    )
    (gather,) = collectives(passes[-1].schedule, CollectiveKind.ALL_GATHER)
    assert gather.nbytes == 4 * 62080


def test_draft_passes_of_vllm() -> None:
    """Three drafts: one pass over the 4 verified rows first, two of one row, then verification.

    The head's projection is cut by columns, so each of these passes gathers its result too: rows x 4096 / 8 x 2 B.
    """
    passes = iteration(model_named("qwen35_397b"), Workload(), Parallelism(tp=8), VLLM, Speculation(drafts=3))
    assert [(each.name, each.count) for each in passes] == [("extend", 1), ("draft", 2), ("verify", 1)]
    gathers = [[op.nbytes for op in collectives(each.schedule, CollectiveKind.ALL_GATHER)] for each in passes]
    assert gathers == [[4 * 1024, 62080], [1024, 62080], [4 * 62080]]


def test_drafts_of_a_tree() -> None:
    """Three levels of four candidates, 16 rows verified: drafts of 4 rows a sequence."""
    passes = iteration(
        model_named("qwen35_397b"), Workload(batch=2), Parallelism(tp=8), SGLANG,
        Speculation(drafts=3, width=4, verified=16),
    )  # fmt: skip
    by_name = {each.name: each.schedule for each in passes}
    assert sums(by_name["draft"]) == {2 * 4 * 8192: 3}
    assert sums(by_name["verify"]) == {2 * 16 * 8192: 121}
