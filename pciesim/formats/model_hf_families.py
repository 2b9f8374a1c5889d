"""The table of published architectures: ``model_type`` to the function that reads its config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pciesim.formats import model_hf_attention as attention
from pciesim.formats import model_hf_recurrent as recurrent
from pciesim.formats.model_hf_config import Fields
from pciesim.formats.model_hf_parts import Architecture

__all__ = ["FAMILIES"]

FAMILIES: Final[Mapping[str, Callable[[Fields], Architecture]]] = {
    "deepseek_ref": attention.deepseek_v4,
    "deepseek_v3": attention.deepseek,
    "deepseek_v32": attention.deepseek,
    "deepseek_v4": attention.deepseek_v4,
    "gemma4": attention.gemma4,
    "gemma4_text": attention.gemma4,
    "glm4_moe": attention.glm4_moe,
    "glm_moe_dsa": attention.deepseek,
    "gpt_oss": attention.gpt_oss,
    "kimi_k2": attention.deepseek,
    "kimi_linear": recurrent.kimi_linear,
    "llama": attention.llama,
    "llama4_text": attention.llama4,
    "mimo_v2_flash": attention.mimo_v2_flash,
    "minimax_m2": attention.minimax_m2,
    "minimax_m3": attention.minimax_m3,
    "minimax_m3_vl": attention.minimax_m3,
    "mistral": attention.llama,
    "mixtral": attention.gqa_moe,
    "nemotron_h": recurrent.nemotron_h,
    "qwen2": attention.llama,
    "qwen3": attention.llama,
    "qwen3_5_moe_text": recurrent.qwen3_next,
    "qwen3_5_text": recurrent.qwen3_next,
    "qwen3_moe": attention.gqa_moe,
    "qwen3_next": recurrent.qwen3_next,
    "qwen3_vl_moe_text": attention.gqa_moe,
    "qwen3_vl_text": attention.llama,
    "step3p7": attention.step3p7,
}
