"""Published architectures whose mixers are attention: grouped-query, latent, compressed.

Each function takes the fields of a config. Shapes follow the classes of that name in transformers 5.24.
"""

from __future__ import annotations

from pciesim.errors import InputError
from pciesim.formats.model_hf_config import Fields
from pciesim.formats.model_hf_parts import (
    Architecture,
    Block,
    attention_block,
    dense_block,
    dense_then_moe,
    depth_of,
    mla_block,
    moe_block,
    next_token_modules,
    shared_width,
)

__all__ = [
    "deepseek",
    "deepseek_v4",
    "gemma4",
    "glm4_moe",
    "gpt_oss",
    "gqa_moe",
    "llama",
    "llama4",
    "mimo_v2_flash",
    "minimax_m2",
    "minimax_m3",
    "step3p7",
]


def llama(fields: Fields) -> Architecture:
    """Llama, Mistral, Qwen2, Qwen3 dense."""
    kind = str(fields.get("model_type"))
    qwen3 = kind.startswith("qwen3")
    attention = attention_block(
        fields,
        qk_norm="head" if qwen3 else "none",
        qkv_bias=fields.flag("attention_bias", default=kind.startswith("qwen2")),
        output_bias=fields.flag("attention_bias"),
        window=fields.whole("sliding_window", default=0) if kind == "mistral" else 0,
    )
    return Architecture(
        blocks={"attention": attention, "mlp": dense_block(fields)},
        layers=("attention + mlp",) * depth_of(fields),
    )


def gqa_moe(fields: Fields) -> Architecture:
    """Mixtral, Qwen3-MoE: every layer a mixture of experts."""
    qwen3 = str(fields.get("model_type")).startswith("qwen3")
    attention = attention_block(fields, qk_norm="head" if qwen3 else "none", qkv_bias=fields.flag("attention_bias"))
    if fields.whole("decoder_sparse_step", default=1) != 1 or fields.get("mlp_only_layers"):
        raise InputError("fields 'decoder_sparse_step' and 'mlp_only_layers' cannot be mapped", where=fields.where)
    return Architecture(
        blocks={"attention": attention, "moe": moe_block(fields)},
        layers=("attention + moe",) * depth_of(fields),
        folders={} if qwen3 else {"moe": "block_sparse_moe"},
    )


def minimax_m2(fields: Fields) -> Architecture:
    """MiniMax-M2 to M2.7: experts everywhere, query and key norms over the whole projection."""
    norm = "projection" if fields.get("qk_norm_type", default="per_layer") == "per_layer" else "head"
    modules = fields.whole("num_mtp_modules", default=0) if fields.flag("use_mtp") else 0
    return Architecture(
        blocks={"attention": attention_block(fields, qk_norm=norm), "moe": moe_block(fields, routing_bias=True)},
        layers=("attention + moe",) * depth_of(fields),
        mtp_layers=("attention + moe",) if modules else (),
        mtp_modules=modules,
        folders={"moe": "block_sparse_moe"},
        notes="MTP as config.json names it; whether a checkpoint holds it is not checked." if modules else "",
    )


def minimax_m3(fields: Fields) -> Architecture:
    """Block-sparse attention from some layer on; the indexer chooses blocks per KV head."""
    depth = depth_of(fields)
    sparse = fields.nested("sparse_attention_config")
    blocks = sparse.whole("sparse_topk_blocks") + sparse.whole("sparse_local_block")
    indexer = {
        "heads": sparse.whole("sparse_num_index_heads"),
        "head_dim": sparse.whole("sparse_index_dim"),
        "weighted": False,
    }
    full = attention_block(fields, qk_norm="head")
    is_sparse = sparse.sequence("sparse_attention_freq", depth)
    is_moe = fields.sequence("moe_layer_freq", depth)
    return Architecture(
        blocks={
            "full": full,
            "sparse": full | {"sparse_top_k": blocks * sparse.whole("sparse_block_size"), "indexer": indexer},
            "dense": dense_block(fields, intermediate=fields.whole("dense_intermediate_size")),
            "moe": moe_block(fields, shared_intermediate=fields.whole("shared_intermediate_size"), routing_bias=True),
        },
        layers=tuple(
            f"{'sparse' if is_sparse[index] else 'full'} + {'moe' if is_moe[index] else 'dense'}"
            for index in range(depth)
        ),
        **next_token_modules(fields, "sparse + moe"),
        folders={"moe": "block_sparse_moe", "shared": "block_sparse_moe.shared_experts"},
    )


def glm4_moe(fields: Fields) -> Architecture:
    """GLM-4.5 to 4.7."""
    attention = attention_block(
        fields,
        qk_norm="head" if fields.flag("use_qk_norm") else "none",
        qkv_bias=fields.flag("attention_bias"),
    )
    return Architecture(
        blocks={
            "attention": attention,
            "dense": dense_block(fields),
            "moe": moe_block(fields, shared_intermediate=shared_width(fields), routing_bias=True),
        },
        layers=dense_then_moe(fields, ["attention"] * depth_of(fields)),
        **next_token_modules(fields, "attention + moe"),
    )


def gpt_oss(fields: Fields) -> Architecture:
    """gpt-oss: sliding and full attention in turn, sinks, biases everywhere."""
    bias = fields.flag("attention_bias", default=True)
    full = attention_block(fields, sinks=True, qkv_bias=bias, output_bias=bias)
    window = fields.whole("sliding_window")
    kinds = fields.sequence("layer_types", depth_of(fields))
    return Architecture(
        blocks={
            "full": full,
            "sliding": full | {"window": window},
            "moe": moe_block(fields, router_bias=True, expert_bias=True),
        },
        layers=tuple(f"{'sliding' if kind == 'sliding_attention' else 'full'} + moe" for kind in kinds),
        folders={"router": "mlp.router"},
    )


def llama4(fields: Fields) -> Architecture:
    """Three of four layers attend in chunks; every ``interleave_moe_layer_step``-th is a mixture of experts."""
    depth = depth_of(fields)
    step = fields.whole("interleave_moe_layer_step", default=1)
    full = attention_block(fields)
    width = fields.whole("intermediate_size")
    layers = tuple(
        f"{'full' if index % 4 == 3 else 'chunked'} + {'moe' if index % step == step - 1 else 'dense'}"
        for index in range(depth)
    )
    return Architecture(
        blocks={
            "full": full,
            "chunked": full | {"window": fields.whole("attention_chunk_size", default=8192)},
            "dense": dense_block(fields, intermediate=fields.whole("intermediate_size_mlp")),
            "moe": moe_block(fields, intermediate=width, shared_intermediate=width),
        },
        layers=layers,
        folders={"mlp": "feed_forward", "moe": "feed_forward", "shared": "feed_forward.shared_expert"},
    )


def mimo_v2_flash(fields: Fields) -> Architecture:
    """MiMo-V2-Flash: five sliding layers, with sinks, to a full one."""
    depth = depth_of(fields)
    full = attention_block(fields, value_dim=fields.whole("v_head_dim"))
    sliding = full | {
        "heads": fields.whole("swa_num_attention_heads"),
        "kv_heads": fields.whole("swa_num_key_value_heads"),
        "window": fields.whole("sliding_window"),
        "sinks": fields.flag("add_swa_attention_sink_bias"),
    }
    is_sliding, is_moe = fields.sequence("hybrid_layer_pattern", depth), fields.sequence("moe_layer_freq", depth)
    return Architecture(
        blocks={
            "full": full,
            "sliding": sliding,
            "dense": dense_block(fields),
            "moe": moe_block(fields, routing_bias=True),
        },
        layers=tuple(
            f"{'sliding' if is_sliding[index] else 'full'} + {'moe' if is_moe[index] else 'dense'}"
            for index in range(depth)
        ),
        notes="Its MTP modules are not in config.json and not counted.",
    )


def step3p7(fields: Fields) -> Architecture:
    """Sliding layers have half as many heads again; config.json does not say so, transformers' class does."""
    full = attention_block(fields, qk_norm="head", head_gate=True)
    heads = fields.whole("num_attention_heads")
    sliding = full | {"heads": heads * 3 // 2, "window": fields.whole("sliding_window")}
    kinds = fields.sequence("layer_types", depth_of(fields))
    moe = moe_block(fields, shared_intermediate=fields.whole("share_expert_dim"), routing_bias=True)
    return Architecture(
        blocks={"full": full, "sliding": sliding, "dense": dense_block(fields), "moe": moe},
        layers=dense_then_moe(fields, ["sliding" if kind == "sliding_attention" else "full" for kind in kinds]),
        notes="config.json names three MTP modules without their shape; they are not counted.",
    )


def gemma4(fields: Fields) -> Architecture:
    """Sliding layers and full ones with wider heads whose values are the keys; norms before and after each half."""
    if fields.whole("hidden_size_per_layer_input", default=0) or fields.whole("num_kv_shared_layers", default=0):
        raise InputError(
            "fields 'hidden_size_per_layer_input' and 'num_kv_shared_layers' cannot be mapped", where=fields.where
        )
    sliding = attention_block(fields, qk_norm="head", window=fields.whole("sliding_window"))
    full = attention_block(
        fields,
        kv_heads=fields.whole("num_global_key_value_heads", "num_key_value_heads"),
        head_dim=fields.whole("global_head_dim", "head_dim"),
        shared_kv=fields.flag("attention_k_eq_v"),
        qk_norm="head",
    )
    kinds = fields.sequence("layer_types", depth_of(fields))
    is_moe = fields.flag("enable_moe_block")
    mlp = moe_block(fields, dense_intermediate=fields.whole("intermediate_size")) if is_moe else dense_block(fields)
    name = "moe" if is_moe else "mlp"
    return Architecture(
        blocks={"sliding": sliding, "full": full, name: mlp},
        layers=tuple(f"{'sliding' if kind == 'sliding_attention' else 'full'} + {name}" for kind in kinds),
        post_norms=True,
        folders={"moe": "", "router": "router.proj"},
    )


def deepseek(fields: Fields) -> Architecture:
    """DeepSeek-V3 to V3.2, Kimi-K2, GLM-5: latent attention, with a sparse indexer in the later ones."""
    depth = depth_of(fields)
    mla = mla_block(fields)
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
    blocks["dense"] = dense_block(fields)
    blocks["moe"] = moe_block(fields, shared_intermediate=shared_width(fields), routing_bias=True)
    return Architecture(
        blocks=blocks, layers=dense_then_moe(fields, mixers), **next_token_modules(fields, f"{mixers[0]} + moe")
    )


def deepseek_v4(fields: Fields) -> Architecture:
    """DeepSeek-V4: compressed attention at two ratios, several residual streams."""
    depth = depth_of(fields)
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
        "moe": moe_block(fields, shared_intermediate=shared_width(fields), routing_bias=True),
    }
    names = {0: "window", 4: "sparse", 128: "heavy"}
    ratios = fields.sequence("compress_ratios", depth)
    if any(ratio not in (0, 4, 128) for ratio in ratios):
        raise InputError("field 'compress_ratios' has other entries than 0, 4 and 128", where=fields.where)
    return Architecture(
        blocks=blocks,
        layers=tuple(f"{names[ratio]} + moe" for ratio in ratios),
        **next_token_modules(fields, "window + moe"),
        streams=fields.whole("hc_mult", default=1),
        folders={"attention": "attn", "moe": "ffn", "shared": "ffn.shared_experts", "router": "ffn.gate"},
    )
