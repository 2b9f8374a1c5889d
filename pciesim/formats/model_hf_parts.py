"""What the readers of published architectures share: the result, and the usual blocks from the usual fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pciesim.errors import InputError
from pciesim.formats.model_hf_config import Fields
from pciesim.formats.model_yaml import MAX_LAYERS

__all__ = [
    "Architecture",
    "Block",
    "attention_block",
    "dense_block",
    "dense_then_moe",
    "depth_of",
    "mla_block",
    "moe_block",
    "next_token_modules",
    "shared_width",
]

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


def attention_block(fields: Fields, **more: Any) -> Block:
    """Grouped-query attention; ``more`` adds to or replaces what the usual fields say."""
    return {
        "kind": "attention",
        "heads": fields.whole("num_attention_heads"),
        "kv_heads": fields.whole("num_key_value_heads", default=fields.whole("num_attention_heads")),
        "head_dim": _head_dim(fields),
    } | more


def dense_block(fields: Fields, **more: Any) -> Block:
    """A gated MLP."""
    return {"kind": "dense_mlp", "intermediate": fields.whole("intermediate_size")} | more


def moe_block(fields: Fields, **more: Any) -> Block:
    """Gated routed experts."""
    return {
        "kind": "moe",
        "experts": fields.whole("n_routed_experts", "num_experts", "num_local_experts"),
        "top_k": fields.whole("num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
        "intermediate": fields.whole("moe_intermediate_size", "intermediate_size"),
    } | more


def shared_width(fields: Fields) -> int:
    """Width of all shared experts of a DeepSeek-like layer together."""
    return fields.whole("n_shared_experts", "num_shared_experts", default=0) * fields.whole("moe_intermediate_size")


def depth_of(fields: Fields) -> int:
    """Number of layers."""
    depth = fields.whole("num_hidden_layers")
    if not 1 <= depth <= MAX_LAYERS:
        raise InputError(f"field 'num_hidden_layers' is {depth}, expected 1 to {MAX_LAYERS}", where=fields.where)
    return depth


def dense_then_moe(fields: Fields, mixers: list[str]) -> tuple[str, ...]:
    """The first ``first_k_dense_replace`` layers are dense."""
    first = fields.whole("first_k_dense_replace", default=0)
    return tuple(f"{mixer} + {'dense' if index < first else 'moe'}" for index, mixer in enumerate(mixers))


def next_token_modules(fields: Fields, layer: str) -> dict[str, Any]:
    """The MTP modules that a config names, each of one layer like ``layer``; none where it names none."""
    modules = fields.whole("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0)
    return {"mtp_layers": (layer,), "mtp_modules": modules} if modules else {}


def mla_block(fields: Fields) -> Block:
    """Latent attention."""
    return {
        "kind": "mla",
        "heads": fields.whole("num_attention_heads"),
        "q_latent": fields.whole("q_lora_rank", default=0),
        "kv_latent": fields.whole("kv_lora_rank"),
        "nope_dim": fields.whole("qk_nope_head_dim"),
        "rope_dim": fields.whole("qk_rope_head_dim"),
        "value_dim": fields.whole("v_head_dim"),
    }
