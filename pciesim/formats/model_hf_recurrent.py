"""Published architectures with recurrent mixers: delta rules and state spaces.

Each function takes the fields of a config. Shapes follow the classes of that name in transformers 5.24.
"""

from __future__ import annotations

from pciesim.errors import InputError
from pciesim.formats.model_hf_config import Fields
from pciesim.formats.model_hf_parts import (
    Architecture,
    attention_block,
    dense_block,
    dense_then_moe,
    depth_of,
    mla_block,
    moe_block,
    next_token_modules,
    shared_width,
)

__all__ = ["kimi_linear", "nemotron_h", "qwen3_next"]


def qwen3_next(fields: Fields) -> Architecture:
    """Qwen3-Next and Qwen3.5: gated delta rule in most layers, gated attention in every fourth."""
    delta = {
        "kind": "gated_delta_net",
        "key_heads": fields.whole("linear_num_key_heads"),
        "value_heads": fields.whole("linear_num_value_heads"),
        "key_dim": fields.whole("linear_key_head_dim"),
        "value_dim": fields.whole("linear_value_head_dim"),
        "conv_kernel": fields.whole("linear_conv_kernel_dim"),
    }
    attention = attention_block(fields, output_gate=fields.flag("attn_output_gate", default=True), qk_norm="head")
    depth = depth_of(fields)
    interval = fields.whole("full_attention_interval", default=4)
    kinds = (
        fields.sequence("layer_types", depth)
        if fields.get("layer_types")
        else ["linear_attention" if (index + 1) % interval else "full_attention" for index in range(depth)]
    )
    is_moe = fields.get("num_experts") is not None
    shared = fields.whole("shared_expert_intermediate_size", default=0) if is_moe else 0
    mlp = moe_block(fields, shared_intermediate=shared, shared_gate=bool(shared)) if is_moe else dense_block(fields)
    name = "moe" if is_moe else "mlp"
    return Architecture(
        blocks={"gdn": delta, "attention": attention, name: mlp},
        layers=tuple(f"{'gdn' if kind == 'linear_attention' else 'attention'} + {name}" for kind in kinds),
        **next_token_modules(fields, f"attention + {name}"),
        folders={"shared": "mlp.shared_expert", "shared_gate": "mlp.shared_expert_gate"},
    )


def kimi_linear(fields: Fields) -> Architecture:
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
    moe = moe_block(
        fields,
        shared_intermediate=shared_width(fields),
        routing_bias=True,
        latent=latent,
        latent_norm=fields.flag("latent_moe_use_norm"),
        latent_sum=bool(latent),
    )
    mixers = ["kda" if index + 1 in kda_layers else "mla" for index in range(depth_of(fields))]
    mla = mla_block(fields) | {"output_gate": fields.flag("mla_use_output_gate")}
    return Architecture(
        blocks={"kda": delta, "mla": mla, "dense": dense_block(fields), "moe": moe},
        layers=dense_then_moe(fields, mixers),
        folders={"linear": "self_attn", "shared": "mlp.shared_experts"},
        wide=("latent_down_proj", "latent_up_proj"),
    )


def nemotron_h(fields: Fields) -> Architecture:
    """Blocks of one half each: Mamba2, attention, or experts without a gate (squared ReLU)."""
    mamba = {
        "kind": "mamba2",
        "heads": fields.whole("mamba_num_heads"),
        "head_dim": fields.whole("mamba_head_dim"),
        "groups": fields.whole("n_groups"),
        "state": fields.whole("ssm_state_size"),
        "conv_kernel": fields.whole("conv_kernel", default=4),
    }
    blocks = {"mamba": mamba, "attention": attention_block(fields)}
    letters = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
    pattern = fields.get("hybrid_override_pattern")
    if pattern is not None and not isinstance(pattern, str):
        raise InputError("field 'hybrid_override_pattern' is not a string such as 'MEM*'", where=fields.where)
    names = (
        [letters.get(letter, letter) for letter in pattern]
        if pattern
        else fields.get("layers_block_type", "layer_types")
    )
    kinds = tuple(letters.values())
    if not isinstance(names, list) or not names or any(name not in kinds for name in names):
        raise InputError("fields 'hybrid_override_pattern' and 'layers_block_type' name no blocks", where=fields.where)
    if "moe" in names:
        blocks["moe"] = moe_block(
            fields,
            shared_intermediate=fields.whole("moe_shared_expert_intermediate_size"),
            gated=False,
            latent=fields.whole("moe_latent_size", default=0),
            routing_bias=True,
        )
    if "mlp" in names:
        blocks["mlp"] = dense_block(fields, gated=False)
    mtp = fields.get("mtp_hybrid_override_pattern")
    mtp_layers = [letters.get(letter, letter) for letter in mtp] if isinstance(mtp, str) else []
    if not mtp_layers and isinstance(listed := fields.get("mtp_layers_block_type"), list):
        mtp_layers = [str(name) for name in listed]
    modules = fields.whole("num_nextn_predict_layers", default=0) if mtp_layers else 0
    return Architecture(
        blocks=blocks,
        layers=tuple(names),
        mtp_layers=tuple(mtp_layers) if modules else (),
        mtp_modules=modules,
        folders=dict.fromkeys(("attention", "linear", "mlp", "moe"), "mixer")
        | {"shared": "mixer.shared_experts", "router": "mixer.gate"},
    )
