"""Published configs: what is mapped, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pciesim.errors import InputError
from pciesim.formats.model import load_model
from pciesim.formats.model_hf import read_hf_document, read_hf_model
from pciesim.formats.model_write import write_model
from pciesim.formats.model_yaml import parse_model
from pciesim.model import Attention, Mla, ModelSpec, Precision, QkNorm
from pciesim.model_size import total_parameters

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8,
    "num_key_value_heads": 2, "num_hidden_layers": 4, "vocab_size": 1000, "tie_word_embeddings": True,
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 1024, "moe_intermediate_size": 128,
    "n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "num_attention_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "num_hidden_layers": 3, "num_nextn_predict_layers": 1, "vocab_size": 1000,
}  # fmt: skip
QWEN35_TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text", "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
    "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_hidden_layers": 8, "full_attention_interval": 4,
    "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    "vocab_size": 1000, "mtp_num_hidden_layers": 1,
}  # fmt: skip


def write(folder: Path, config: object, quantisation: object = None) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    if quantisation is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": quantisation}))
    return path


def precisions(model: ModelSpec, layer: int) -> dict[str, str]:
    found = {linear.name: str(linear.precision) for linear in model.layers[layer].linears(model.hidden)}
    moe = model.layers[layer].moe
    return found | ({"experts": str(moe.precision)} if moe else {})


def test_a_dense_model(tmp_path: Path) -> None:
    model = read_hf_model(write(tmp_path, LLAMA))
    assert len(model.layers) == 4
    mixer = model.layers[0].mixer
    assert isinstance(mixer, Attention)
    assert (mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.qk_norm) == (8, 2, 32, QkNorm.NONE)
    attention = 256 * 256 * 2 + 2 * 256 * 64
    assert total_parameters(model) == 1000 * 256 + 4 * (attention + 3 * 256 * 1024 + 2 * 256) + 256


def test_a_folder_is_as_good_as_the_file_in_it(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    assert load_model(tmp_path) == load_model(tmp_path / "config.json")


def test_the_folder_names_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "Tiny-1B"
    folder.mkdir()
    assert load_model(write(folder, LLAMA)).name == "Tiny-1B"


def test_nested_text_config(tmp_path: Path) -> None:
    config = {"model_type": "qwen3_5_moe", "tie_word_embeddings": False, "text_config": QWEN35_TEXT,
              "vision_config": {"depth": 1}}  # fmt: skip
    document = read_hf_document(write(tmp_path, config))
    assert [(run.repeat, run.pattern) for run in document.layers] == [
        (2, ("gdn + moe", "gdn + moe", "gdn + moe", "attention + moe"))
    ]
    assert document.mtp is not None
    assert document.mtp.layers == ("attention + moe",)
    assert document.vision_parameters is None  # a tower, but not one whose size can be told


def test_modelopt_exclusions_beside_the_config(tmp_path: Path) -> None:
    """As nvidia's NVFP4 checkpoints of DeepSeek-V3: o_proj and all MLPs 4-bit, the other projections and MTP not."""
    excluded = ["lm_head", "model.layers.3*"] + [
        f"model.layers.{layer}.self_attn.{name}"
        for layer in range(3)
        for name in ("kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj")
    ]
    quantisation = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": excluded}
    model = read_hf_model(write(tmp_path, DEEPSEEK, quantisation))
    assert isinstance(model.layers[0].mixer, Mla)
    assert precisions(model, 0) == {
        "q_a_proj": "bf16", "kv_a_proj": "bf16", "q_b_proj": "bf16", "kv_b_proj": "bf16", "o_proj": "nvfp4",
        "gate_up_proj": "nvfp4", "down_proj": "nvfp4",
    }  # fmt: skip
    assert precisions(model, 1)["experts"] == "nvfp4"
    assert precisions(model, 1)["router"] == "bf16"
    assert (model.kv_precision, model.head_precision) == (Precision.FP8, Precision.BF16)
    assert model.mtp is not None
    assert {linear.precision for linear in model.mtp.layers[0].linears(256)} == {Precision.BF16}


def test_native_fp8_blocks_reach_mtp(tmp_path: Path) -> None:
    config = DEEPSEEK | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    model = read_hf_model(write(tmp_path, config))
    assert set(precisions(model, 1).values()) == {"fp8_block", "bf16"}
    assert precisions(model, 1)["router"] == "bf16"
    assert model.mtp is not None
    moe = model.mtp.layers[0].moe
    assert moe is not None
    assert moe.precision is Precision.FP8_BLOCK


def test_compressed_tensors_with_expressions(tmp_path: Path) -> None:
    """As Kimi-K2.5: int4 in groups of 32, attention, shared experts and dense layers left wide."""
    scheme = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {"type": "int", "num_bits": 4, "group_size": 32}}
        },
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
    }
    model = read_hf_model(write(tmp_path, DEEPSEEK | {"quantization_config": scheme}))
    assert set(precisions(model, 0).values()) == {"bf16"}
    assert {name: value for name, value in precisions(model, 1).items() if value != "bf16"} == {"experts": "int4"}


def test_layers_that_differ_become_blocks_of_their_own(tmp_path: Path) -> None:
    excluded = ["model.layers.0.self_attn*", "model.layers.3.mlp.down_proj", "lm_head"]
    document = read_hf_document(write(tmp_path, LLAMA, {"quant_algo": "FP8", "exclude_modules": excluded}))
    model = document.to_domain()
    assert [run.pattern for run in document.layers] == [
        ("attention_bf16 + mlp",), ("attention + mlp",), ("attention + mlp_bf16",)
    ]  # fmt: skip
    assert [precisions(model, layer)["q_proj"] for layer in range(4)] == ["bf16", "fp8", "fp8", "fp8"]
    assert [precisions(model, layer)["down_proj"] for layer in range(4)] == ["fp8", "fp8", "fp8", "bf16"]
    assert [precisions(model, layer)["gate_up_proj"] for layer in range(4)] == ["fp8"] * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "rwkv9", "rwkv_rank": 7},
            "'rwkv9' is not known: the fields that cannot be mapped are rwkv_rank",
        ),
        ({"num_attention_heads": None}, "field 'num_attention_heads' is missing, which model_type 'llama' needs"),
        ({"hidden_size": "wide"}, "field 'hidden_size' is 'wide', expected a whole number"),
        ({"num_hidden_layers": 0}, "field 'num_hidden_layers' is 0, expected 1 to 2000"),
        (
            {"num_key_value_heads": 3},
            "blocks.attention.attention: kv_heads 3 does not divide heads 8",
        ),
        ({"vocab_size": 0}, "cannot be mapped: vocabulary: input should be greater than 0, found 0"),
        ({"quantization_config": {"quant_method": "fp8x"}}, "unknown quant_method 'fp8x'; did you mean 'fp8'"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP5"}}, "unknown quant_algo 'NVFP5'"),
        ({"quantization_config": 5}, "quantisation: input should be a valid dictionary"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": 5}}, "quantisation: ignore: input should be a"),
    ],
)
def test_refusals_are_one_clear_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path, LLAMA | change)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_broken_json_has_a_place(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama",\n "hidden_size": }')
    with pytest.raises(InputError, match=r"config\.json:2:17: not valid JSON"):
        load_model(path)


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without config"):
        load_model(tmp_path)


@pytest.mark.parametrize("config", [LLAMA, DEEPSEEK, QWEN35_TEXT], ids=["llama", "deepseek", "qwen"])
def test_what_import_writes_reads_back_the_same(tmp_path: Path, config: dict[str, Any]) -> None:
    document = read_hf_document(write(tmp_path, config), name="A: name with #, that needs quotes")
    text = write_model(document)
    assert parse_model(text, source="written.yaml") == document.to_domain()
    assert all(len(line) <= 120 for line in text.splitlines())


def test_wrong_kind_of_list(tmp_path: Path) -> None:
    config = QWEN35_TEXT | {"layer_types": ["linear_attention"]}
    with pytest.raises(InputError, match="field 'layer_types' has 1 entries, expected one for each of 8 layers"):
        load_model(write(tmp_path, config))
