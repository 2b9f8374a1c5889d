"""Which precision each matrix of a published checkpoint has: our names of matrices, put to the checkpoint's rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from pciesim.formats.model_hf_quant import Scheme
from pciesim.model import DenseAndMoe, Layer, Linear, Mixer, Mlp, ModelSpec, Module, Moe, Precision

__all__ = ["Override", "block_overrides", "draft_precisions", "model_precisions"]

Override: TypeAlias = dict[str, Precision]
"""Precision by class of modules or by matrix, as in a model file."""

_Half: TypeAlias = dict[tuple[Module, str], Precision]
"""Precision of every matrix of one half of a layer; routed experts have the name ''."""

_FOLDERS: Final = {
    "attention": "self_attn", "linear": "linear_attn", "mlp": "mlp", "moe": "mlp", "shared": "mlp.shared_experts",
    "shared_gate": "mlp.shared_expert_gate", "router": "mlp.gate",
}  # fmt: skip
_CLASS: Final = {
    Module.ATTENTION: "attention", Module.INDEXER: "attention", Module.LINEAR_ATTENTION: "linear",
    Module.DENSE_MLP: "mlp", Module.SHARED_EXPERTS: "shared", Module.ROUTER: "router",
}  # fmt: skip
_LEAVES: Final[Mapping[str, tuple[str, ...]]] = {
    "kv_a_proj": ("kv_a_proj_with_mqa",),
    "index_q_proj": ("indexer.wq_b", "index_q_proj"),
    "index_k_proj": ("indexer.wk", "index_k_proj"),
    "index_weights_proj": ("indexer.weights_proj",),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_qkvz"),
    "in_proj_ba": ("in_proj_b", "in_proj_ba"),
    "in_proj_zx": ("in_proj",), "in_proj_bc": ("in_proj",), "in_proj_dt": ("in_proj",),
    "gate_up_proj": ("gate_proj", "gate_up_proj"),
    "shared_gate_up_proj": ("gate_proj", "gate_up_proj"),
    "shared_up_proj": ("up_proj",),
    "shared_down_proj": ("down_proj",),
}  # fmt: skip
_EXPERTS: Final = ("experts", "experts.0.gate_proj", "experts.0.up_proj", "experts.0.w1")


def _paths(linear: Linear, prefix: str, folders: Mapping[str, str]) -> tuple[str, ...]:
    """Names below a layer's ``prefix`` that a checkpoint may use for a matrix."""
    places = {**_FOLDERS, **folders}
    if linear.name in ("router", "shared_gate"):
        return (f"{prefix}.{places[linear.name]}",)
    if linear.name.startswith("latent_"):
        leaf = "fc1_latent_proj" if linear.name == "latent_down_proj" else "fc2_latent_proj"
        return (f"{prefix}.{places['moe']}.{leaf}",)
    if linear.module not in _CLASS:
        return (f"{prefix}.{linear.name}",)
    folder = places[_CLASS[linear.module]]
    return tuple(f"{prefix}.{folder}.{leaf}" for leaf in _LEAVES.get(linear.name, (linear.name,)))


def _expert_paths(prefix: str, folders: Mapping[str, str]) -> tuple[str, ...]:
    folder = {**_FOLDERS, **folders}["moe"]
    return tuple(".".join(part for part in (prefix, folder, leaf) if part) for leaf in _EXPERTS)


def _half(part: Mixer | Mlp, hidden: int, prefixes: tuple[str, ...], scheme: Scheme) -> _Half:
    found: _Half = {}
    for linear in part.linears(hidden):
        if linear.name in ("router", "shared_gate"):
            continue
        paths = tuple(path for prefix in prefixes for path in _paths(linear, prefix, scheme.folders))
        wide = linear.name in scheme.wide
        found[linear.module, linear.name] = Precision.BF16 if wide else scheme.precision(paths)
    if isinstance(part, Moe | DenseAndMoe):
        paths = tuple(path for prefix in prefixes for path in _expert_paths(prefix, scheme.folders))
        found[Module.ROUTED_EXPERTS, ""] = scheme.precision(paths)
    return found


def _halves(layer: Layer, hidden: int, prefixes: tuple[str, ...], scheme: Scheme) -> list[_Half]:
    parts: dict[str, Mixer | Mlp] = {"mixer": layer.mixer, "mlp": layer.mlp}
    return [_half(parts[name], hidden, prefixes, scheme) for name in layer.halves]


def model_precisions(spec: ModelSpec, scheme: Scheme) -> Override:
    """The most frequent precision of every class and matrix of a model. ``spec`` gives the shapes only."""
    found = _summary(
        half
        for index, layer in enumerate(spec.layers)
        for half in _halves(layer, spec.hidden, (f"layers.{index}",), scheme)
    )
    if (head := scheme.named.find("lm_head")) is not None:
        found[Module.LM_HEAD.value] = head
    if scheme.kv_cache is not Precision.BF16:
        found["kv_cache"] = scheme.kv_cache
    return found


def block_overrides(spec: ModelSpec, scheme: Scheme, common: Override) -> tuple[tuple[Override, ...], ...]:
    """For each layer, for each of its halves, what differs from ``common`` (see :func:`model_precisions`)."""
    return tuple(
        tuple(_difference(half, common) for half in _halves(layer, spec.hidden, (f"layers.{index}",), scheme))
        for index, layer in enumerate(spec.layers)
    )


def draft_precisions(spec: ModelSpec, scheme: Scheme) -> Override:
    """Precisions of the MTP modules, which checkpoints keep under ``mtp`` or as layers after the last.

    Only checkpoints quantised by whoever trained them quantise those: tools leave them out, and SGLang and vLLM load
    them as bf16.
    """
    if spec.mtp is None or not scheme.native:
        return {}
    prefixes = ("mtp.layers.0", f"layers.{len(spec.layers)}")
    return _summary(half for layer in spec.mtp.layers for half in _halves(layer, spec.hidden, prefixes, scheme))


def _summary(halves: Iterable[_Half]) -> Override:
    """A class's most frequent precision where it is not bf16, then the matrices that differ from it."""
    votes: defaultdict[tuple[Module, str], Counter[Precision]] = defaultdict(Counter)
    for half in halves:
        for key, precision in half.items():
            votes[key][precision] += 1
    chosen = {key: counts.most_common(1)[0][0] for key, counts in votes.items()}
    found: Override = {}
    for module in dict.fromkeys(module for module, _ in chosen):
        members = _members(chosen, module)
        most = Counter(members.values()).most_common(1)[0][0]
        if most is not Precision.BF16:
            found[module.value] = most
        found |= {name: precision for name, precision in members.items() if precision is not most}
    return found


def _difference(half: _Half, common: Override) -> Override:
    """What a half needs on top of ``common``: by class where a whole class differs, else by matrix."""
    found: Override = {}
    for module in dict.fromkeys(module for module, _ in half):
        members = _members(half, module)
        usual = common.get(module.value, Precision.BF16)
        other = {name: each for name, each in members.items() if each is not common.get(name, usual)}
        if other and len(set(members.values())) == 1 and not members.keys() & common.keys():
            found[module.value] = next(iter(members.values()))
        else:
            found |= {name or module.value: each for name, each in other.items()}
    return found


def _members(half: Mapping[tuple[Module, str], Precision], module: Module) -> dict[str, Precision]:
    return {name: precision for (each, name), precision in half.items() if each is module}
