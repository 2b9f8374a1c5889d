"""No file, however broken, makes the readers do anything but answer or refuse in one line."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pciesim.errors import InputError
from pciesim.formats.model import load_model
from pciesim.formats.model_hf_families import FAMILIES
from pciesim.formats.model_yaml import parse_model
from pciesim.model_size import legal_tp, total_parameters

MODELS = Path(__file__).parents[2] / "models"
# One config with the fields of many families; sizes small enough to multiply.
EVERYTHING: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "intermediate_size_mlp": 128, "dense_intermediate_size": 128,
    "moe_intermediate_size": 32, "shared_intermediate_size": 32, "share_expert_dim": 32,
    "moe_shared_expert_intermediate_size": 32, "moe_latent_size": 32, "num_attention_heads": 8,
    "num_key_value_heads": 2, "num_global_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
    "v_head_dim": 16, "swa_num_attention_heads": 8, "swa_num_key_value_heads": 4, "num_hidden_layers": 4,
    "vocab_size": 100, "num_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "o_groups": 4,
    "o_lora_rank": 16, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8, "sliding_window": 4,
    "compress_ratios": [0, 4, 128, 4], "moe_layer_freq": [0, 1, 1, 1], "hybrid_layer_pattern": [0, 1, 1, 1],
    "layer_types": ["sliding_attention", "linear_attention", "full_attention", "full_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16,
    "hybrid_override_pattern": "ME*E", "hc_mult": 2, "num_nextn_predict_layers": 1,
    "linear_attn_config": {"num_heads": 4, "head_dim": 16, "kda_layers": [1, 2, 3]},
    "sparse_attention_config": {
        "sparse_topk_blocks": 2, "sparse_local_block": 1, "sparse_num_index_heads": 2, "sparse_index_dim": 16,
        "sparse_attention_freq": [0, 1, 1, 1], "sparse_block_size": 4,
    },
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
values = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**6), st.floats(), st.text(max_size=6),
    st.lists(st.integers(0, 4), max_size=5), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_family_reads_the_full_config(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(EVERYTHING | {"model_type": kind}))
    assert total_parameters(load_model(path)) > 0


@given(kind=st.sampled_from(sorted(FAMILIES)), field=st.sampled_from(sorted(EVERYTHING)), value=values)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_field_may_be_anything(kind: str, field: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(EVERYTHING | {"model_type": kind, field: value}))
        _answer_or_refuse(lambda: load_model(path))


@given(
    name=st.sampled_from(["qwen35_397b", "deepseek_v4_flash", "nemotron3_nano", "kimi_k3"]),
    start=st.integers(0, 1500),
    length=st.integers(0, 12),
    inserted=st.text(max_size=8),
)
@settings(deadline=None)
def test_any_part_of_a_file_may_be_anything(name: str, start: int, length: int, inserted: str) -> None:
    text = (MODELS / f"{name}.yaml").read_text()
    broken = text[:start] + inserted + text[start + length :]
    _answer_or_refuse(lambda: parse_model(broken, source="broken.yaml"))


def _answer_or_refuse(load: Any) -> None:
    with contextlib.suppress(InputError):
        model = load()
        total_parameters(model)
        legal_tp(model)
