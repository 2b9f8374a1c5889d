"""Architectures of published configs: ``model_type`` to blocks and layers.

One function a family; the table is :data:`FAMILIES`. Shapes follow the classes of that name in transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pciesim.errors import InputError
from pciesim.formats.model_hf_config import Fields
from pciesim.formats.model_yaml import MAX_LAYERS

__all__ = ["FAMILIES", "Architecture"]

Block: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What a family's function makes of a config.

    ``blocks`` are those of a model file, ``layers`` its layers as texts. ``folders`` is where a checkpoint keeps a
    class of modules below ``layers.N`` (for the names in quantisation lists), where that is not the usual place;
    ``wide`` names matrices that no checkpoint of the family quantises though its lists do not say so.
    """

    blocks: Mapping[str, Block]
    layers: tuple[str, ...]
    mtp_layers: tuple[str, ...] = ()
    mtp_modules: int = 0
    post_norms: bool = False
    streams: int = 1
    folders: Mapping[str, str] = field(default_factory=dict)
    wide: tuple[str, ...] = ()
    notes: str = ""


def _head_dim(fields: Fields) -> int:
    heads = fields.whole("num_attention_heads")
    if heads == 0:
        raise InputError("field 'num_attention_heads' is 0", where=fields.where)
    return fields.whole("head_dim", default=fields.whole("hidden_size") // heads)


def _attention(fields: Fields, **more: Any) -> Block:
    return {
        "kind": "attention",
        "heads": fields.whole("num_attention_heads"),
        "kv_heads": fields.whole("num_key_value_heads", default=fields.whole("num_attention_heads")),
        "head_dim": _head_dim(fields),
    } | more


def _dense(fields: Fields, **more: Any) -> Block:
    return {"kind": "dense_mlp", "intermediate": fields.whole("intermediate_size")} | more


def _moe(fields: Fields, **more: Any) -> Block:
    return {
        "kind": "moe",
        "experts": fields.whole("n_routed_experts", "num_experts", "num_local_experts"),
        "top_k": fields.whole("num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
        "intermediate": fields.whole("moe_intermediate_size", "intermediate_size"),
    } | more


def _shared(fields: Fields) -> int:
    """Width of all shared experts of a DeepSeek-like layer together."""
    return fields.whole("n_shared_experts", "num_shared_experts", default=0) * fields.whole("moe_intermediate_size")


def _depth(fields: Fields) -> int:
    depth = fields.whole("num_hidden_layers")
    if not 1 <= depth <= MAX_LAYERS:
        raise InputError(f"field 'num_hidden_layers' is {depth}, expected 1 to {MAX_LAYERS}", where=fields.where)
    return depth


def _dense_then_moe(fields: Fields, mixers: list[str]) -> tuple[str, ...]:
    """The first ``first_k_dense_replace`` layers are dense."""
    first = fields.whole("first_k_dense_replace", default=0)
    return tuple(f"{mixer} + {'dense' if index < first else 'moe'}" for index, mixer in enumerate(mixers))


def _nextn(fields: Fields, layer: str) -> dict[str, Any]:
    modules = fields.whole("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0)
    return {"mtp_layers": (layer,), "mtp_modules": modules} if modules else {}


# -- grouped-query attention ----------------------------------------------------------------------------------------


def _llama(fields: Fields) -> Architecture:
    """Llama, Mistral, Qwen2, Qwen3 dense."""
    kind = str(fields.get("model_type"))
    qwen3 = kind.startswith("qwen3")
    attention = _attention(
        fields,
        qk_norm="head" if qwen3 else "none",
        qkv_bias=fields.flag("attention_bias", default=kind.startswith("qwen2")),
        output_bias=fields.flag("attention_bias"),
    )
    return Architecture(
        blocks={"attention": attention, "mlp": _dense(fields)},
        layers=("attention + mlp",) * _depth(fields),
    )


def _gqa_moe(fields: Fields) -> Architecture:
    """Mixtral, Qwen3-MoE: every layer a mixture of experts."""
    qwen3 = str(fields.get("model_type")).startswith("qwen3")
    attention = _attention(fields, qk_norm="head" if qwen3 else "none", qkv_bias=fields.flag("attention_bias"))
    if fields.whole("decoder_sparse_step", default=1) != 1 or fields.get("mlp_only_layers"):
        raise InputError("fields 'decoder_sparse_step' and 'mlp_only_layers' cannot be mapped", where=fields.where)
    return Architecture(
        blocks={"attention": attention, "moe": _moe(fields)},
        layers=("attention + moe",) * _depth(fields),
        folders={} if qwen3 else {"moe": "block_sparse_moe"},
    )


def _minimax_m2(fields: Fields) -> Architecture:
    norm = "projection" if fields.get("qk_norm_type", default="per_layer") == "per_layer" else "head"
    modules = fields.whole("num_mtp_modules", default=0) if fields.flag("use_mtp") else 0
    return Architecture(
        blocks={"attention": _attention(fields, qk_norm=norm), "moe": _moe(fields, routing_bias=True)},
        layers=("attention + moe",) * _depth(fields),
        mtp_layers=("attention + moe",) if modules else (),
        mtp_modules=modules,
        folders={"moe": "block_sparse_moe"},
        notes="MTP as config.json names it; whether a checkpoint holds it is not checked." if modules else "",
    )


def _minimax_m3(fields: Fields) -> Architecture:
    """Block-sparse attention from some layer on; the indexer chooses blocks per KV head."""
    depth = _depth(fields)
    sparse = fields.nested("sparse_attention_config")
    blocks = sparse.whole("sparse_topk_blocks") + sparse.whole("sparse_local_block")
    indexer = {
        "heads": sparse.whole("sparse_num_index_heads"),
        "head_dim": sparse.whole("sparse_index_dim"),
        "weighted": False,
    }
    full = _attention(fields, qk_norm="head")
    is_sparse = sparse.sequence("sparse_attention_freq", depth)
    is_moe = fields.sequence("moe_layer_freq", depth)
    return Architecture(
        blocks={
            "full": full,
            "sparse": full | {"sparse_top_k": blocks * sparse.whole("sparse_block_size"), "indexer": indexer},
            "dense": _dense(fields, intermediate=fields.whole("dense_intermediate_size")),
            "moe": _moe(fields, shared_intermediate=fields.whole("shared_intermediate_size"), routing_bias=True),
        },
        layers=tuple(
            f"{'sparse' if is_sparse[index] else 'full'} + {'moe' if is_moe[index] else 'dense'}"
            for index in range(depth)
        ),
        **_nextn(fields, "sparse + moe"),
        folders={"moe": "block_sparse_moe", "shared": "block_sparse_moe.shared_experts"},
    )


def _glm4_moe(fields: Fields) -> Architecture:
    attention = _attention(
        fields,
        qk_norm="head" if fields.flag("use_qk_norm") else "none",
        qkv_bias=fields.flag("attention_bias"),
    )
    return Architecture(
        blocks={
            "attention": attention,
            "dense": _dense(fields),
            "moe": _moe(fields, shared_intermediate=_shared(fields), routing_bias=True),
        },
        layers=_dense_then_moe(fields, ["attention"] * _depth(fields)),
        **_nextn(fields, "attention + moe"),
    )


def _gpt_oss(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", default=True)
    full = _attention(fields, sinks=True, qkv_bias=bias, output_bias=bias)
    window = fields.whole("sliding_window")
    kinds = fields.sequence("layer_types", _depth(fields))
    return Architecture(
        blocks={
            "full": full,
            "sliding": full | {"window": window},
            "moe": _moe(fields, router_bias=True, expert_bias=True),
        },
        layers=tuple(f"{'sliding' if kind == 'sliding_attention' else 'full'} + moe" for kind in kinds),
        folders={"router": "mlp.router"},
    )


def _llama4(fields: Fields) -> Architecture:
    """Three of four layers attend in chunks; every ``interleave_moe_layer_step``-th is a mixture of experts."""
    depth = _depth(fields)
    step = fields.whole("interleave_moe_layer_step", default=1)
    full = _attention(fields)
    width = fields.whole("intermediate_size")
    layers = tuple(
        f"{'full' if index % 4 == 3 else 'chunked'} + {'moe' if index % step == step - 1 else 'dense'}"
        for index in range(depth)
    )
    return Architecture(
        blocks={
            "full": full,
            "chunked": full | {"window": fields.whole("attention_chunk_size", default=8192)},
            "dense": _dense(fields, intermediate=fields.whole("intermediate_size_mlp")),
            "moe": _moe(fields, intermediate=width, shared_intermediate=width),
        },
        layers=layers,
        folders={"mlp": "feed_forward", "moe": "feed_forward", "shared": "feed_forward.shared_expert"},
    )


def _mimo_v2_flash(fields: Fields) -> Architecture:
    depth = _depth(fields)
    full = _attention(fields, value_dim=fields.whole("v_head_dim"))
    sliding = full | {
        "heads": fields.whole("swa_num_attention_heads"),
        "kv_heads": fields.whole("swa_num_key_value_heads"),
        "window": fields.whole("sliding_window"),
        "sinks": fields.flag("add_swa_attention_sink_bias"),
    }
    is_sliding, is_moe = fields.sequence("hybrid_layer_pattern", depth), fields.sequence("moe_layer_freq", depth)
    return Architecture(
        blocks={"full": full, "sliding": sliding, "dense": _dense(fields), "moe": _moe(fields, routing_bias=True)},
        layers=tuple(
            f"{'sliding' if is_sliding[index] else 'full'} + {'moe' if is_moe[index] else 'dense'}"
            for index in range(depth)
        ),
        notes="Its MTP modules are not in config.json and not counted.",
    )


def _step3p7(fields: Fields) -> Architecture:
    """Sliding layers have half as many heads again; config.json does not say so, transformers' class does."""
    full = _attention(fields, qk_norm="head", head_gate=True)
    heads = fields.whole("num_attention_heads")
    sliding = full | {"heads": heads * 3 // 2, "window": fields.whole("sliding_window")}
    kinds = fields.sequence("layer_types", _depth(fields))
    moe = _moe(fields, shared_intermediate=fields.whole("share_expert_dim"), routing_bias=True)
    return Architecture(
        blocks={"full": full, "sliding": sliding, "dense": _dense(fields), "moe": moe},
        layers=_dense_then_moe(fields, ["sliding" if kind == "sliding_attention" else "full" for kind in kinds]),
        notes="config.json names three MTP modules without their shape; they are not counted.",
    )


def _gemma4(fields: Fields) -> Architecture:
    """Sliding layers and full ones with wider heads whose values are the keys; norms before and after each half."""
    if fields.whole("hidden_size_per_layer_input", default=0) or fields.whole("num_kv_shared_layers", default=0):
        raise InputError(
            "fields 'hidden_size_per_layer_input' and 'num_kv_shared_layers' cannot be mapped", where=fields.where
        )
    sliding = _attention(fields, qk_norm="head", window=fields.whole("sliding_window"))
    full = _attention(
        fields,
        kv_heads=fields.whole("num_global_key_value_heads", "num_key_value_heads"),
        head_dim=fields.whole("global_head_dim", "head_dim"),
        shared_kv=fields.flag("attention_k_eq_v"),
        qk_norm="head",
    )
    kinds = fields.sequence("layer_types", _depth(fields))
    is_moe = fields.flag("enable_moe_block")
    mlp = _moe(fields, dense_intermediate=fields.whole("intermediate_size")) if is_moe else _dense(fields)
    name = "moe" if is_moe else "mlp"
    return Architecture(
        blocks={"sliding": sliding, "full": full, name: mlp},
        layers=tuple(f"{'sliding' if kind == 'sliding_attention' else 'full'} + {name}" for kind in kinds),
        post_norms=True,
        folders={"moe": "", "router": "router.proj"},
    )


# -- delta rules and state spaces -----------------------------------------------------------------------------------


def _qwen3_next(fields: Fields) -> Architecture:
    """Qwen3-Next and Qwen3.5: gated delta rule in most layers, gated attention in every fourth."""
    delta = {
        "kind": "gated_delta_net",
        "key_heads": fields.whole("linear_num_key_heads"),
        "value_heads": fields.whole("linear_num_value_heads"),
        "key_dim": fields.whole("linear_key_head_dim"),
        "value_dim": fields.whole("linear_value_head_dim"),
        "conv_kernel": fields.whole("linear_conv_kernel_dim"),
    }
    attention = _attention(fields, output_gate=fields.flag("attn_output_gate", default=True), qk_norm="head")
    depth = _depth(fields)
    interval = fields.whole("full_attention_interval", default=4)
    kinds = (
        fields.sequence("layer_types", depth)
        if fields.get("layer_types")
        else ["linear_attention" if (index + 1) % interval else "full_attention" for index in range(depth)]
    )
    is_moe = fields.get("num_experts") is not None
    shared = fields.whole("shared_expert_intermediate_size", default=0) if is_moe else 0
    mlp = _moe(fields, shared_intermediate=shared, shared_gate=bool(shared)) if is_moe else _dense(fields)
    name = "moe" if is_moe else "mlp"
    return Architecture(
        blocks={"gdn": delta, "attention": attention, name: mlp},
        layers=tuple(f"{'gdn' if kind == 'linear_attention' else 'attention'} + {name}" for kind in kinds),
        **_nextn(fields, f"attention + {name}"),
        folders={"shared": "mlp.shared_expert", "shared_gate": "mlp.shared_expert_gate"},
    )


def _kimi_linear(fields: Fields) -> Architecture:
    """Kimi-Linear and Kimi-K3: Kimi delta attention in most layers, latent attention in the others."""
    linear = fields.nested("linear_attn_config")
    kda_layers = linear.sequence("kda_layers", 0)  # counted from 1
    delta = {
        "kind": "kimi_delta",
        "heads": linear.whole("num_heads"),
        "head_dim": linear.whole("head_dim"),
        "conv_kernel": linear.whole("short_conv_kernel_size", default=4),
        "full_rank_gate": linear.flag("use_full_rank_gate"),
    }
    latent = fields.whole("routed_expert_hidden_size", default=0)
    moe = _moe(
        fields,
        shared_intermediate=_shared(fields),
        routing_bias=True,
        latent=latent,
        latent_norm=fields.flag("latent_moe_use_norm"),
        latent_sum=bool(latent),
    )
    mixers = ["kda" if index + 1 in kda_layers else "mla" for index in range(_depth(fields))]
    mla = _mla_block(fields) | {"output_gate": fields.flag("mla_use_output_gate")}
    return Architecture(
        blocks={"kda": delta, "mla": mla, "dense": _dense(fields), "moe": moe},
        layers=_dense_then_moe(fields, mixers),
        folders={"linear": "self_attn", "shared": "mlp.shared_experts"},
        wide=("latent_down_proj", "latent_up_proj"),
    )


def _nemotron_h(fields: Fields) -> Architecture:
    """Blocks of one half each: Mamba2, attention, or experts without a gate (squared ReLU)."""
    mamba = {
        "kind": "mamba2",
        "heads": fields.whole("mamba_num_heads"),
        "head_dim": fields.whole("mamba_head_dim"),
        "groups": fields.whole("n_groups"),
        "state": fields.whole("ssm_state_size"),
        "conv_kernel": fields.whole("conv_kernel", default=4),
    }
    blocks = {"mamba": mamba, "attention": _attention(fields)}
    letters = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
    pattern = fields.get("hybrid_override_pattern")
    names = (
        [letters.get(letter, letter) for letter in pattern]
        if pattern
        else fields.get("layers_block_type", "layer_types")
    )
    kinds = tuple(letters.values())
    if not isinstance(names, list) or not names or any(name not in kinds for name in names):
        raise InputError("fields 'hybrid_override_pattern' and 'layers_block_type' name no blocks", where=fields.where)
    if "moe" in names:
        blocks["moe"] = _moe(
            fields,
            shared_intermediate=fields.whole("moe_shared_expert_intermediate_size"),
            gated=False,
            latent=fields.whole("moe_latent_size", default=0),
            routing_bias=True,
        )
    if "mlp" in names:
        blocks["mlp"] = _dense(fields, gated=False)
    mtp = fields.get("mtp_hybrid_override_pattern")
    mtp_layers = [letters.get(letter, letter) for letter in mtp] if isinstance(mtp, str) else []
    mtp_layers = mtp_layers or [str(name) for name in fields.get("mtp_layers_block_type", default=[])]
    modules = fields.whole("num_nextn_predict_layers", default=0) if mtp_layers else 0
    return Architecture(
        blocks=blocks,
        layers=tuple(names),
        mtp_layers=tuple(mtp_layers) if modules else (),
        mtp_modules=modules,
        folders=dict.fromkeys(("attention", "linear", "mlp", "moe"), "mixer")
        | {"shared": "mixer.shared_experts", "router": "mixer.gate"},
    )


# -- latent and compressed attention --------------------------------------------------------------------------------


def _mla_block(fields: Fields) -> Block:
    return {
        "kind": "mla",
        "heads": fields.whole("num_attention_heads"),
        "q_latent": fields.whole("q_lora_rank", default=0),
        "kv_latent": fields.whole("kv_lora_rank"),
        "nope_dim": fields.whole("qk_nope_head_dim"),
        "rope_dim": fields.whole("qk_rope_head_dim"),
        "value_dim": fields.whole("v_head_dim"),
    }


def _deepseek(fields: Fields) -> Architecture:
    """DeepSeek-V3 to V3.2, Kimi-K2, GLM-5: latent attention, with a sparse indexer in the later ones."""
    depth = _depth(fields)
    mla = _mla_block(fields)
    blocks: dict[str, Block] = {"mla": mla}
    mixers = ["mla"] * depth
    if fields.get("index_topk") is not None:
        indexer = {"heads": fields.whole("index_n_heads"), "head_dim": fields.whole("index_head_dim")}
        mla["sparse_top_k"] = fields.whole("index_topk")
        indexed = mla | {"indexer": indexer}
        if fields.get("indexer_types"):
            kinds = fields.sequence("indexer_types", depth)
            blocks = {"indexed": indexed, "mla": mla}
            mixers = ["indexed" if kind == "full" else "mla" for kind in kinds]
        else:
            blocks = {"mla": indexed}
    blocks["dense"] = _dense(fields)
    blocks["moe"] = _moe(fields, shared_intermediate=_shared(fields), routing_bias=True)
    return Architecture(blocks=blocks, layers=_dense_then_moe(fields, mixers), **_nextn(fields, f"{mixers[0]} + moe"))


def _deepseek_v4(fields: Fields) -> Architecture:
    depth = _depth(fields)
    plain = {
        "kind": "compressed_attention",
        "heads": fields.whole("num_attention_heads"),
        "head_dim": fields.whole("head_dim"),
        "q_latent": fields.whole("q_lora_rank"),
        "output_groups": fields.whole("o_groups"),
        "output_latent": fields.whole("o_lora_rank"),
        "local_window": fields.whole("sliding_window"),
    }
    indexer = {"heads": fields.whole("index_n_heads"), "head_dim": fields.whole("index_head_dim")}
    blocks: dict[str, Block] = {
        "window": plain,
        "sparse": plain | {"ratio": 4, "sparse_top_k": fields.whole("index_topk"), "indexer": indexer},
        "heavy": plain | {"ratio": 128},
        "moe": _moe(fields, shared_intermediate=_shared(fields), routing_bias=True),
    }
    names = {0: "window", 4: "sparse", 128: "heavy"}
    ratios = fields.sequence("compress_ratios", depth)
    if any(ratio not in (0, 4, 128) for ratio in ratios):
        raise InputError("field 'compress_ratios' has other entries than 0, 4 and 128", where=fields.where)
    return Architecture(
        blocks=blocks,
        layers=tuple(f"{names[ratio]} + moe" for ratio in ratios),
        **_nextn(fields, "window + moe"),
        streams=fields.whole("hc_mult", default=1),
        folders={"attention": "attn", "moe": "ffn", "shared": "ffn.shared_experts", "router": "ffn.gate"},
    )


FAMILIES: Final[Mapping[str, Callable[[Fields], Architecture]]] = {
    "deepseek_ref": _deepseek_v4,
    "deepseek_v3": _deepseek,
    "deepseek_v32": _deepseek,
    "deepseek_v4": _deepseek_v4,
    "gemma4": _gemma4,
    "gemma4_text": _gemma4,
    "glm4_moe": _glm4_moe,
    "glm_moe_dsa": _deepseek,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek,
    "kimi_linear": _kimi_linear,
    "llama": _llama,
    "llama4_text": _llama4,
    "mimo_v2_flash": _mimo_v2_flash,
    "minimax_m2": _minimax_m2,
    "minimax_m3": _minimax_m3,
    "minimax_m3_vl": _minimax_m3,
    "mistral": _llama,
    "mixtral": _gqa_moe,
    "nemotron_h": _nemotron_h,
    "qwen2": _llama,
    "qwen3": _llama,
    "qwen3_5_moe_text": _qwen3_next,
    "qwen3_5_text": _qwen3_next,
    "qwen3_moe": _gqa_moe,
    "qwen3_next": _qwen3_next,
    "qwen3_vl_moe_text": _gqa_moe,
    "qwen3_vl_text": _llama,
    "step3p7": _step3p7,
}
