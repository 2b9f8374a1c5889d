"""The shipped models against known totals, and the all-reduces of a pass against counts done by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pciesim import model_size
from pciesim.formats.model import load_model
from pciesim.units import GB, MB

MODELS = Path(__file__).parents[2] / "models"

# Exact counts of published checkpoints, embeddings and head included, MTP and vision not.
EXACT = {
    "llama31_8b": 8_030_261_248,
    "llama31_70b": 70_553_706_496,
    "llama31_405b": 405_853_388_800,
    "qwen3_30b": 30_532_122_624,
    "qwen3_32b": 32_762_123_264,
    "qwen3_235b": 235_093_634_560,
    "mixtral_8x7b": 46_702_792_704,
    "mixtral_8x22b": 140_620_634_112,
    "gpt_oss_20b": 20_914_757_184,
    "gpt_oss_120b": 116_829_156_672,
}

# Totals in billions from a count by formula that agrees with transformers' classes, and active parameters where known.
FORMULA = {
    "qwen35_397b": (396.35, 17.35), "qwen35_122b": (122.11, 9.77), "qwen35_35b": (34.66, 3.45),
    "qwen36_35b": (34.66, 3.45), "qwen35_27b": (26.90, 26.90), "qwen36_27b": (26.90, 26.90),
    "qwen3_235b": (235.09, 22.19), "qwen3_235b_fp8": (235.09, 22.19), "qwen3_next_80b": (79.67, 3.87),
    "deepseek_v3": (671.03, 37.55), "deepseek_v31": (671.03, 37.55), "deepseek_v32": (671.88, None),
    "deepseek_v4_flash": (284.33, 13.80), "deepseek_v4_pro": (1573, 49.8), "kimi_k2": (1026.4, 32.9),
    "kimi_k25": (1026.4, 32.9), "kimi_k26": (1026.4, 32.9), "kimi_k3": (2779, 105), "glm47": (352.80, 33.6),
    "glm47_fp8": (352.80, 33.6), "glm45_air": (106.85, 13.4), "glm5": (743.91, 41.8), "glm51": (743.91, 41.8),
    "minimax_m2": (228.69, 11.0), "minimax_m25": (228.69, 11.0), "minimax_m27": (228.69, 11.0),
    "minimax_m3": (426.17, 26.0), "gpt_oss_120b": (116.83, 5.71), "gpt_oss_20b": (20.91, 4.19),
    "llama4_maverick": (400.71, 17.2), "mimo_v2_flash": (308.78, 15.5), "step37_flash": (196.96, 12.0),
    "nemotron3_super": (120.67, 12.8), "nemotron3_nano": (31.58, None), "nemotron3_ultra": (549.31, None),
    "gemma4_26b": (25.23, None), "gemma4_31b": (30.70, None),
}  # fmt: skip

# What the name or the publisher says, in billions, and how far off it may be. Wider ones: GLM's 355 counts the MTP
# layer, Gemma's 26 and 31 the vision tower, V4-Pro's 1600 and Nano's 30 are round.
NAMES = {
    "qwen35_397b": (397, 0.01), "qwen35_122b": (122, 0.01), "qwen35_35b": (35, 0.01), "qwen35_27b": (27, 0.01),
    "qwen3_235b": (235, 0.01), "qwen3_30b": (30.5, 0.01), "qwen3_32b": (32.8, 0.01),
    "qwen3_coder_480b_fp8": (480, 0.01), "qwen3_next_80b": (80, 0.01), "deepseek_v3": (671, 0.01),
    "deepseek_v32": (671, 0.01), "deepseek_v4_flash": (284, 0.01), "deepseek_v4_pro": (1600, 0.02),
    "kimi_k2": (1026, 0.01), "glm47": (355, 0.01), "glm45_air": (106, 0.01), "glm5": (744, 0.01),
    "minimax_m2": (230, 0.01), "minimax_m3": (428, 0.01), "gpt_oss_120b": (116.8, 0.01), "gpt_oss_20b": (20.9, 0.01),
    "llama31_8b": (8, 0.01), "llama31_70b": (70, 0.01), "llama31_405b": (405, 0.01), "mixtral_8x7b": (46.7, 0.01),
    "mixtral_8x22b": (141, 0.01), "llama4_maverick": (400, 0.01), "llama4_scout": (109, 0.012),
    "mimo_v2_flash": (309, 0.01), "step37_flash": (196, 0.01), "nemotron3_super": (120, 0.01),
    "nemotron3_nano": (30, 0.06), "nemotron3_ultra": (550, 0.01), "gemma4_26b": (26, 0.03), "gemma4_31b": (31, 0.01),
}  # fmt: skip

# All-reduces of one pass under plain tensor parallelism, and bytes a token of those of the hidden state:
# one after the embedding, then two a layer, unless said otherwise.
ALL_REDUCES = {
    "qwen35_397b": (1 + 2 * 60, 8192), "qwen35_122b": (1 + 2 * 48, 6144), "qwen35_35b": (1 + 2 * 40, 4096),
    "qwen35_27b": (1 + 2 * 64, 10240), "qwen3_235b": (1 + 2 * 94, 8192), "qwen3_next_80b": (1 + 2 * 48, 4096),
    "deepseek_v3": (1 + 2 * 61, 14336), "deepseek_v32": (1 + 2 * 61, 14336), "kimi_k2": (1 + 2 * 61, 14336),
    "kimi_k25": (1 + 2 * 61, 14336), "deepseek_v4_pro": (1 + 2 * 61, 14336), "deepseek_v4_flash": (1 + 2 * 43, 8192),
    "kimi_k3": (1 + 2 * 93, 14336), "glm5": (1 + 2 * 78, 12288), "glm51": (1 + 2 * 78, 12288),
    "glm52": (1 + 2 * 78, 12288), "glm53": (1 + 2 * 78, 12288), "glm47": (1 + 2 * 92, 10240),
    "glm45_air": (1 + 2 * 46, 8192),
    "minimax_m2": (1 + 3 * 62, 6144),  # q/k norms over the whole projection: one more, of 8 B
    "minimax_m27": (1 + 3 * 62, 6144), "minimax_m3": (1 + 2 * 60, 12288), "gpt_oss_120b": (1 + 2 * 36, 5760),
    "gpt_oss_20b": (1 + 2 * 24, 5760), "llama31_8b": (1 + 2 * 32, 8192), "llama31_70b": (1 + 2 * 80, 16384),
    "llama31_405b": (1 + 2 * 126, 32768), "mixtral_8x7b": (1 + 2 * 32, 8192), "mixtral_8x22b": (1 + 2 * 56, 12288),
    "llama4_maverick": (1 + 2 * 48, 10240), "llama4_scout": (1 + 2 * 48, 10240),
    "nemotron3_super": (1 + 88, 8192),  # one a block
    "nemotron3_nano": (1 + 52, 5376), "nemotron3_ultra": (1 + 108, 16384),
    "gemma4_26b": (1 + 3 * 30, 5632),  # attention, dense MLP, experts
    "gemma4_31b": (1 + 2 * 60, 10752),
}  # fmt: skip


@pytest.mark.parametrize(("name", "total"), EXACT.items())
def test_exact_totals(name: str, total: int) -> None:
    assert model_size.total_parameters(load_model(MODELS / f"{name}.yaml")) == total


@pytest.mark.parametrize(("name", "expected"), FORMULA.items())
def test_totals_and_active_parameters_by_formula(name: str, expected: tuple[float, float | None]) -> None:
    """Totals within 0.1 %; active ones, given with three digits, within 0.5 %."""
    model = load_model(MODELS / f"{name}.yaml")
    total, active = expected
    assert model_size.total_parameters(model) / GB == pytest.approx(total, rel=1e-3)
    if active is not None:
        assert model_size.active_parameters(model) / GB == pytest.approx(active, rel=5e-3)


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_totals_by_name(name: str, expected: tuple[float, float]) -> None:
    billions, tolerance = expected
    model = load_model(MODELS / f"{name}.yaml")
    assert model_size.total_parameters(model) / GB == pytest.approx(billions, rel=tolerance)


@pytest.mark.parametrize(("name", "expected"), ALL_REDUCES.items())
def test_all_reduces_of_a_pass(name: str, expected: tuple[int, int]) -> None:
    calls = model_size.all_reduce_calls(load_model(MODELS / f"{name}.yaml"))
    assert sum(count for _, count in calls) == expected[0]
    assert calls[0][0].bytes_per_token == expected[1]


def test_minimax_norms_are_summed_in_8_bytes() -> None:
    calls = model_size.all_reduce_calls(load_model(MODELS / "minimax_m27.yaml"))
    assert [(each.bytes_per_token, count) for each, count in calls if each.after == "qk_norm"] == [(8, 62)]


def test_kimi_k3_sums_latent_and_shared_side_by_side() -> None:
    """Columns 3584 of the latent and 7168 of the shared experts, in each of its 92 layers of experts."""
    calls = model_size.all_reduce_calls(load_model(MODELS / "kimi_k3.yaml"))
    assert [(each.columns, count) for each, count in calls if each.after == "experts"] == [(3584 + 7168, 92)]


def test_qwen35_397b_draft_pass() -> None:
    """One MTP forward at TP 8, batch 1, in MB: fc 67 (replicated), qkv 21, o 8, router 4, shared 3, ten experts 31,
    lm_head 254; together 390 with the shared expert's gate and the norms."""
    model = load_model(MODELS / "qwen35_397b.yaml")
    assert model.mtp is not None
    layer, hidden = model.mtp.layers[0], model.hidden
    read = {linear.name: linear.local_bytes(8) / MB for linear in layer.linears(hidden)}
    assert model.mtp.projection(hidden).local_bytes(8) / MB == pytest.approx(67, abs=0.5)
    assert read["q_proj"] + read["k_proj"] + read["v_proj"] == pytest.approx(21, abs=0.5)
    assert read["o_proj"] == pytest.approx(8, abs=0.5)
    assert read["router"] == pytest.approx(4, abs=0.5)
    assert read["shared_gate_up_proj"] + read["shared_down_proj"] == pytest.approx(3, abs=0.5)
    assert layer.moe is not None
    experts = layer.moe.expert_bytes(hidden) * layer.moe.top_k / 8 / MB
    assert experts == pytest.approx(31, abs=0.5)
    total = model.mtp.projection(hidden).local_bytes(8) / MB + sum(read.values()) + experts
    assert total + model.head.local_bytes(8) / MB == pytest.approx(390, abs=2)


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("gpt_oss_120b", 65.2), ("gpt_oss_20b", 13.8), ("kimi_k25", 594), ("minimax_m2", 230)]
)
def test_checkpoint_sizes(name: str, gigabytes: float) -> None:
    """Sizes of the published weight files, as their repositories list them; these hold no MTP."""
    model = load_model(MODELS / f"{name}.yaml")
    assert model_size.weight_bytes_per_gpu(model, tp=1) / GB == pytest.approx(gigabytes, rel=5e-3)


def test_latent_attention_caches_are_whole_on_every_rank() -> None:
    """DeepSeek-V3.1 with an FP8 cache: 61 layers x (512 + 64) B, whatever TP is. V3.2 adds 128 + 4 B a layer."""
    v31, v32 = (load_model(MODELS / f"{name}.yaml") for name in ("deepseek_v31", "deepseek_v32"))
    assert {model_size.kv_bytes_per_token(v31, tp=tp) for tp in (1, 8, 16)} == {61 * 576}
    assert model_size.kv_bytes_per_token(v32, tp=8) == 61 * (576 + 132)


def test_gpt_oss_windows_bound_half_of_the_cache() -> None:
    """18 full layers and 18 with a window of 128; per layer and token 2 x 8 heads x 64 x 2 B."""
    model = load_model(MODELS / "gpt_oss_120b.yaml")
    per_layer = 2 * 8 * 64 * 2
    assert model_size.kv_bytes_per_sequence(model, tp=1, context=10_000) == 18 * per_layer * (10_000 + 128)


def test_nemotron_super_state() -> None:
    """40 Mamba2 blocks, TP 4: 32 heads x 64 x 128 fp32, and (8192 / 4 + 2 x 2 x 128) channels x 3 in bf16."""
    model = load_model(MODELS / "nemotron3_super.yaml")
    expected = 40 * (32 * 64 * 128 * 4 + (2048 + 512) * 3 * 2)
    assert model_size.state_bytes_per_sequence(model, tp=4) == expected
