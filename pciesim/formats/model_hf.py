"""Published Hugging Face configs: ``config.json``, with ``hf_quant_config.json`` beside it, to a model.

Nothing is downloaded: the file is read as it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pciesim.errors import InputError
from pciesim.formats.model_hf_config import Fields, read_json
from pciesim.formats.model_hf_families import FAMILIES
from pciesim.formats.model_hf_parts import Architecture
from pciesim.formats.model_hf_precisions import Override, block_overrides, draft_precisions, model_precisions
from pciesim.formats.model_hf_quant import Scheme, read_scheme
from pciesim.formats.model_yaml import LayersDocument, ModelDocument
from pciesim.model import ModelSpec, Precision

__all__ = ["read_hf_document", "read_hf_model"]

# Fields that say nothing about sizes; any other field of an unknown architecture might.
_HARMLESS: Final = frozenset({
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "dtype", "eos_token_id",
    "hidden_act", "hidden_dropout", "initializer_range", "max_position_embeddings", "model_type", "pad_token_id",
    "quantization_config", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta", "text_config",
    "tie_word_embeddings", "torch_dtype", "transformers_version", "use_cache", "vision_config",
})  # fmt: skip
_UNDERSTOOD: Final = frozenset({
    "attention_bias", "head_dim", "hidden_size", "intermediate_size", "mlp_bias", "num_attention_heads",
    "num_hidden_layers", "num_key_value_heads", "vocab_size",
})  # fmt: skip


def read_hf_model(path: Path) -> ModelSpec:
    """The model of a ``config.json``. Raises InputError, naming the fields that cannot be mapped."""
    return read_hf_document(path).to_domain(source=str(path))


def read_hf_document(path: Path, *, name: str = "") -> ModelDocument:
    """The same as the document of a model file, ready to be written. ``name`` defaults to the folder's or file's."""
    where = str(path)
    data = read_json(path)
    fields = Fields.of(data, where=where)
    kind = str(fields.get("model_type", default=""))
    if kind not in FAMILIES:
        raise _unknown(fields, kind)
    try:
        architecture = FAMILIES[kind](fields)
        plain = _document(fields, architecture, name or _name(path), where)
        return _quantised(plain, fields, architecture, _scheme(path, fields, architecture))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        found = fault["input"]
        shown = f", found {found!r}" if isinstance(found, int | float | str) else ""
        message = fault["msg"].removeprefix("Value error, ")
        raise InputError(f"cannot be mapped: {place}: {message[:1].lower()}{message[1:]}{shown}", where=where) from None


def _unknown(fields: Fields, kind: str) -> InputError:
    unmapped = sorted(set(fields.text) - _HARMLESS - _UNDERSTOOD)
    shown = ", ".join(unmapped[:24]) + (", ..." if len(unmapped) > 24 else "")
    what = f"the fields that cannot be mapped are {shown}" if unmapped else "write a model file for it"
    known = ", ".join(sorted(FAMILIES))
    return InputError(f"model_type '{kind}' is not known: {what} (known model_types: {known})", where=fields.where)


def _name(path: Path) -> str:
    stem = path.stem.removesuffix("config").rstrip("_-.")
    return stem.rpartition("--")[2] or path.resolve().parent.name


def _document(fields: Fields, architecture: Architecture, name: str, where: str) -> ModelDocument:
    mtp = {"modules": architecture.mtp_modules, "layers": architecture.mtp_layers} if architecture.mtp_layers else None
    return ModelDocument.model_validate(
        {
            "schema": "pciesim/model/1",
            "name": name,
            "source": Path(where).name,
            "notes": architecture.notes,
            "hidden": fields.whole("hidden_size"),
            "vocabulary": fields.whole("vocab_size"),
            "tied_embeddings": fields.flag("tie_word_embeddings"),
            "post_norms": architecture.post_norms,
            "streams": architecture.streams,
            "blocks": architecture.blocks,
            "layers": _runs(architecture.layers),
            "mtp": mtp,
            "vision_parameters": _vision_parameters(fields),
        }
    )


def _scheme(path: Path, fields: Fields, architecture: Architecture) -> Scheme:
    """The rules in the config, else those of the file beside it, which may also be alone in naming the KV cache's."""
    inside = fields.get("quantization_config")
    beside = path.with_name(path.name.replace("config.json", "hf_quant_config.json"))
    outside = read_json(beside).get("quantization") if beside != path and beside.is_file() else None
    schemes = [
        read_scheme(found, where=where) for found, where in ((inside, fields.where), (outside, str(beside))) if found
    ]
    if not schemes:
        return Scheme()
    kv_cache = next((each.kv_cache for each in schemes if each.kv_cache is not Precision.BF16), Precision.BF16)
    return replace(schemes[0], kv_cache=kv_cache, folders=architecture.folders, wide=architecture.wide)


def _quantised(plain: ModelDocument, fields: Fields, architecture: Architecture, scheme: Scheme) -> ModelDocument:
    """The document with its precisions; blocks that differ between layers become blocks of their own."""
    spec = plain.to_domain()
    common, draft = model_precisions(spec, scheme), draft_precisions(spec, scheme)
    variants: dict[tuple[str, frozenset[tuple[str, Precision]]], str] = {}
    layers = []
    for text, overrides in zip(architecture.layers, block_overrides(spec, scheme, common), strict=True):
        names = []
        for name, override in zip(text.split(" + "), overrides, strict=True):
            key = (name, frozenset(override.items()))
            if key not in variants:
                variants[key] = _variant(name, override, set(variants.values()))
            names.append(variants[key])
        layers.append(" + ".join(names))
    if fields.get("expert_dtype") == "fp4":  # DeepSeek-V4: said here and not in the quantisation's config
        for each in (common, draft):
            if each.get("routed_experts") is Precision.FP8_BLOCK:
                each["routed_experts"] = Precision.MXFP4
    drafted = {name for text in (plain.mtp.layers if plain.mtp else ()) for name in text.split(" + ")}
    blocks = {name: block for name, block in plain.blocks.items() if name in drafted}
    for (name, own), variant in variants.items():
        blocks[variant] = plain.blocks[name].model_copy(update={"precision": dict(sorted(own))})
    update: dict[str, Any] = {
        "precision": common,
        "blocks": {name: blocks[name] for name in sorted(blocks, key=lambda each: _place(each, plain.blocks))},
        "layers": tuple(LayersDocument.model_validate(run) for run in _runs(tuple(layers))),
        "mtp": None if plain.mtp is None else plain.mtp.model_copy(update={"precision": draft}),
    }
    return plain.model_copy(update=update)


def _variant(name: str, override: Override, taken: set[str]) -> str:
    """A name for a block with precisions of its own: ``mamba_bf16``."""
    if not override:
        return name
    base = f"{name}_{'_'.join(sorted(set(override.values())))}"
    return base if base not in taken else f"{base}_{len(taken)}"


def _place(variant: str, blocks: Mapping[str, object]) -> tuple[int, str]:
    """Variants stand after the block they come from."""
    origins = [index for index, name in enumerate(blocks) if variant == name or variant.startswith(name + "_")]
    return max(origins, default=0), variant


def _runs(layers: tuple[str, ...]) -> list[dict[str, Any]]:
    """Layers as few runs of repeated patterns: at each place, the pattern (up to 12 layers) that covers most."""
    runs: list[dict[str, Any]] = []
    start = 0
    while start < len(layers):
        period, repeat = max(
            ((size, _repeats(layers, start, size)) for size in range(1, 13)),
            key=lambda each: (each[0] * each[1] if each[1] > 1 else 1, -each[0]),
        )
        pattern = layers[start : start + period] if repeat > 1 else layers[start : start + 1]
        if repeat == 1 and runs and runs[-1]["repeat"] == 1:
            runs[-1]["pattern"] += pattern
        else:
            runs.append({"repeat": repeat, "pattern": pattern})
        start += len(pattern) * repeat
    return runs


def _repeats(layers: tuple[str, ...], start: int, size: int) -> int:
    """How often the ``size`` layers from ``start`` on come one after another."""
    count = 1
    while layers[start : start + size] == layers[start + count * size : start + (count + 1) * size]:
        count += 1
    return count if start + size <= len(layers) else 1


def _vision_parameters(fields: Fields) -> int | None:
    """Of a Qwen vision tower; 0 without a tower; None for a tower of another kind."""
    vision = fields.outer.get("vision_config")
    if not isinstance(vision, dict):
        return 0
    try:
        tower = _VisionTower.model_validate(vision)
    except ValidationError:
        return None
    depth, hidden, inner, out = tower.depth, tower.hidden_size, tower.intermediate_size, tower.out_hidden_size
    block = 4 * hidden**2 + 4 * hidden + 2 * hidden * inner + inner + hidden + 4 * hidden
    merged = hidden * tower.spatial_merge_size**2
    merger = 2 * hidden + merged**2 + merged + merged * out + out
    # Qwen3-VL also feeds some layers to the language model, each through a merger whose norm is over merged patches.
    deep = len(tower.deepstack_visual_indexes) * (merger + 2 * merged - 2 * hidden)
    patches = tower.in_channels * tower.temporal_patch_size * tower.patch_size**2 * hidden + hidden
    return depth * block + patches + tower.num_position_embeddings * hidden + merger + deep


class _VisionTower(BaseModel):
    """The tower of Qwen3-VL and Qwen3.5."""

    model_config = ConfigDict(extra="ignore", strict=True)

    depth: int
    hidden_size: int
    intermediate_size: int
    out_hidden_size: int
    num_position_embeddings: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    in_channels: int
    deepstack_visual_indexes: list[int] = Field(default_factory=list)
