"""Every config of the shared collection is read, and gives the shapes that are shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pciesim.formats.model import load_model
from pciesim.formats.model_hf import read_hf_model
from pciesim.model import Layer, ModelSpec
from pciesim.model_size import all_reduce_calls, total_parameters

MODELS = Path(__file__).parents[2] / "models"
CONFIGS = Path(__file__).parents[3] / "shared" / "reference" / "model_configs.json"
SHIPPED = {
    "Qwen3.5-397B-A17B": "qwen35_397b", "Qwen3.5-122B-A10B": "qwen35_122b", "Qwen3.5-35B-A3B": "qwen35_35b",
    "Qwen3.5-27B": "qwen35_27b", "Qwen3.6-35B-A3B-NVFP4": "qwen36_35b", "Qwen3.6-27B-NVFP4": "qwen36_27b",
    "Qwen3-235B-A22B": "qwen3_235b", "Qwen3-30B-A3B": "qwen3_30b", "Qwen3-Coder-480B-A35B": "qwen3_coder_480b_fp8",
    "Qwen3-32B": "qwen3_32b", "Qwen3-Next-80B-A3B": "qwen3_next_80b", "DeepSeek-V3": "deepseek_v3",
    "DeepSeek-R1": "deepseek_v3", "DeepSeek-V3.2": "deepseek_v32", "DeepSeek-V4-Flash": "deepseek_v4_flash",
    "DeepSeek-V4-Pro": "deepseek_v4_pro", "Kimi-K2": "kimi_k2", "Kimi-K2.5": "kimi_k25", "Kimi-K3": "kimi_k3",
    "GLM-4.7": "glm47", "GLM-4.6": "glm47", "GLM-4.5": "glm47", "GLM-4.5-Air": "glm45_air", "GLM-5": "glm5",
    "GLM-5.1": "glm51", "GLM-5.2": "glm52", "GLM-5.3": "glm53", "MiniMax-M2.5": "minimax_m25",
    "MiniMax-M2": "minimax_m2", "MiniMax-M2.7": "minimax_m27", "MiniMax-M3": "minimax_m3",
    "gpt-oss-120b": "gpt_oss_120b", "gpt-oss-20b": "gpt_oss_20b", "Llama-3.1-8B": "llama31_8b",
    "Llama-3.1-70B": "llama31_70b", "Llama-3.1-405B": "llama31_405b", "Mixtral-8x7B": "mixtral_8x7b",
    "Mixtral-8x22B": "mixtral_8x22b", "Llama-4-Maverick": "llama4_maverick", "Llama-4-Scout": "llama4_scout",
    "MiMo-V2-Flash": "mimo_v2_flash", "Step-3.7-Flash": "step37_flash",
    "Nemotron-3-Super-120B-A12B": "nemotron3_super", "Nemotron-3-Nano-30B-A3B": "nemotron3_nano",
    "Nemotron-3-Ultra-550B-A55B": "nemotron3_ultra", "Gemma-4-26B-A4B": "gemma4_26b", "Gemma-4-31B": "gemma4_31b",
}  # fmt: skip
# Copies of quantisation lists there are cut short, so only shapes are compared.
CUT = ("_quantization_config", "quantization_config")


def shapes(model: ModelSpec) -> list[list[tuple[str, int, int]]]:
    """Name, inputs and outputs of every matrix of every layer."""
    return [_shapes(layer, model.hidden) for layer in model.layers]


def _shapes(layer: Layer, hidden: int) -> list[tuple[str, int, int]]:
    found = [(linear.name, linear.inputs, linear.outputs) for linear in layer.linears(hidden)]
    return found + ([("expert", layer.moe.experts, layer.moe.expert_parameters(hidden))] if layer.moe else [])


@pytest.mark.corpus
@pytest.mark.skipif(not CONFIGS.is_file(), reason="the shared collection is not here")
@pytest.mark.parametrize(("name", "shipped"), SHIPPED.items())
def test_config_gives_the_shipped_shapes(name: str, shipped: str, tmp_path: Path) -> None:
    config: dict[str, Any] = json.loads(CONFIGS.read_text())[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if key not in CUT}))
    model, ours = read_hf_model(path), load_model(MODELS / f"{shipped}.yaml")
    assert shapes(model) == shapes(ours)
    assert total_parameters(model) == total_parameters(ours)
    assert all_reduce_calls(model) == all_reduce_calls(ours)


@pytest.mark.corpus
@pytest.mark.skipif(not CONFIGS.is_file(), reason="the shared collection is not here")
def test_every_config_of_the_collection_is_shipped() -> None:
    assert set(json.loads(CONFIGS.read_text())) == set(SHIPPED)
