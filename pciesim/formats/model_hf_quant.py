"""Quantisation of published checkpoints: which precision each matrix has.

Reads ``quantization_config`` of a config, or ``hf_quant_config.json`` beside it (modelopt), as one list of rules over
the names of modules in the checkpoint.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from pciesim.errors import InputError, UnknownName
from pciesim.model import Layer, Linear, ModelSpec, Module, Precision

__all__ = ["Scheme", "layer_precisions", "model_precisions", "read_scheme"]

_ALGORITHMS: Final = {
    "FP8": Precision.FP8,
    "FP8_PB_WO": Precision.FP8_BLOCK,
    "INT4_AWQ": Precision.INT4_AWQ,
    "MXFP4": Precision.MXFP4,
    "MXFP8": Precision.MXFP8,
    "NVFP4": Precision.NVFP4,
    "NVFP4_AWQ": Precision.NVFP4,
    "W4A16_AWQ": Precision.INT4_AWQ,
    "W4A16_NVFP4": Precision.NVFP4,
}
# (type, bits, group size) of compressed-tensors weights.
_WEIGHTS: Final = {
    ("float", 4, 16): Precision.NVFP4,
    ("float", 4, 32): Precision.MXFP4,
    ("float", 8, 32): Precision.MXFP8,
    ("float", 8, None): Precision.FP8,
    ("int", 4, 32): Precision.INT4,
    ("int", 4, 128): Precision.INT4_AWQ,
}
_METHODS: Final = ("awq", "compressed-tensors", "fp8", "gptq", "modelopt", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """``named`` matrices have their own precision, ``excluded`` ones bf16, all other linear layers ``default``.

    ``folders`` says where the checkpoint keeps a class of modules below a layer, where not in the usual place.
    """

    default: Precision = Precision.BF16
    named: tuple[tuple[str, Precision], ...] = ()
    excluded: tuple[str, ...] = ()
    kv_cache: Precision = Precision.BF16
    folders: Mapping[str, str] = field(default_factory=dict)

    def precision(self, paths: tuple[str, ...]) -> Precision:
        """Of the matrix that a checkpoint may call by any of ``paths`` (``layers.3.mlp.gate_proj``)."""
        for pattern, precision in self.named:
            if any(_matches(pattern, path) for path in paths):
                return precision
        if any(_matches(pattern, path) for pattern in self.excluded for path in paths):
            return Precision.BF16
        return self.default


def _matches(pattern: str, path: str) -> bool:
    """Whether a rule covers a module: an expression (``re:``), a glob, a module above it, or one part of its name."""
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), "model." + path) is not None
    if "*" in pattern:
        return any(fnmatchcase(*pair) for pair in ((path, pattern), ("model." + path, pattern), (path, pattern + ".*")))
    if "." not in pattern:
        return pattern in path.split(".")
    return path == pattern or path.startswith(pattern + ".")


def _bare(pattern: str) -> str:
    """A rule without what stands before ``layers.N``: checkpoints differ in it (``model.``, ``backbone.``)."""
    inside = None if pattern.startswith("re:") else re.search(r"(?:^|\.)((?:mtp\.)?layers\..*)", pattern)
    return inside[1] if inside else pattern


def read_scheme(quantisation: Mapping[str, Any] | None, *, where: str) -> Scheme:
    """The rules of a ``quantization_config``, or of the ``quantization`` of ``hf_quant_config.json``.

    Raises InputError for a method or number format that is not known.
    """
    if not quantisation:
        return Scheme()
    method = str(quantisation.get("quant_method") or ("modelopt" if quantisation.get("quant_algo") else ""))
    if method not in _METHODS:
        raise UnknownName("quant_method", method, _METHODS, where=where)
    excluded = tuple(
        _bare(str(name))
        for key in ("exclude_modules", "ignore", "modules_to_not_convert", "ignored_layers")
        for name in quantisation.get(key) or ()
    )
    return Scheme(
        default=_default(quantisation, method, where),
        named=_named(quantisation, where),
        excluded=excluded,
        kv_cache=_kv_cache(quantisation),
    )


def _default(quantisation: Mapping[str, Any], method: str, where: str) -> Precision:
    match method:
        case "mxfp4":
            return Precision.MXFP4
        case "awq" | "gptq":
            return Precision.INT4_AWQ
        case "fp8":
            return Precision.FP8_BLOCK if quantisation.get("weight_block_size") else Precision.FP8
        case "modelopt":
            algorithm = str(quantisation.get("quant_algo"))
            return Precision.BF16 if algorithm == "MIXED_PRECISION" else _algorithm(algorithm, where)
        case _:
            groups = list((quantisation.get("config_groups") or {}).values())
            whole = [group for group in groups if "Linear" in (group.get("targets") or ())]
            return _weights(whole[0], where) if whole else Precision.BF16


def _named(quantisation: Mapping[str, Any], where: str) -> tuple[tuple[str, Precision], ...]:
    layers = quantisation.get("quantized_layers")
    if layers and isinstance(layers, dict):
        return tuple((_bare(name), _algorithm(str(each.get("quant_algo")), where)) for name, each in layers.items())
    found = []
    for group in (quantisation.get("config_groups") or {}).values():
        targets = [_bare(str(target)) for target in group.get("targets") or () if target != "Linear"]
        found += [(target, _weights(group, where)) for target in targets]
    return tuple(found)


def _algorithm(name: str, where: str) -> Precision:
    if name not in _ALGORITHMS:
        raise UnknownName("quant_algo", name, _ALGORITHMS, where=where)
    return _ALGORITHMS[name]


def _weights(group: Mapping[str, Any], where: str) -> Precision:
    weights = group.get("weights") or {}
    size = weights.get("group_size")
    key = (weights.get("type"), weights.get("num_bits"), size if size and size > 0 else None)
    if weights.get("strategy") == "block":
        return Precision.FP8_BLOCK
    if key not in _WEIGHTS:
        raise InputError(f"quantised weights of type, bits and group {key} are not known", where=where)
    return _WEIGHTS[key]


def _kv_cache(quantisation: Mapping[str, Any]) -> Precision:
    scheme = quantisation.get("kv_cache_quant_algo") or quantisation.get("kv_cache_scheme")
    bits = scheme.get("num_bits") if isinstance(scheme, dict) else (8 if scheme == "FP8" else None)
    return Precision.FP8 if bits == 8 else Precision.BF16


# -- names of matrices in a checkpoint ------------------------------------------------------------------------------

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


_Votes = defaultdict[tuple[Module, str], Counter[Precision]]


def _vote(votes: _Votes, layer: Layer, hidden: int, prefix: str, scheme: Scheme) -> None:
    for linear in layer.linears(hidden):
        if linear.module is Module.RESIDUAL or linear.name in ("router", "shared_gate"):
            continue
        votes[linear.module, linear.name][scheme.precision(_paths(linear, prefix, scheme.folders))] += 1
    if layer.moe is not None:
        votes[Module.ROUTED_EXPERTS, ""][scheme.precision(_expert_paths(prefix, scheme.folders))] += 1


def model_precisions(spec: ModelSpec, scheme: Scheme) -> tuple[dict[str, Precision], str]:
    """Precision by class and matrix of a whole model, and a note where layers differ (the most frequent one stands).

    ``spec`` gives the layers; its own precisions do not matter.
    """
    votes: _Votes = defaultdict(Counter)
    for index, layer in enumerate(spec.layers):
        _vote(votes, layer, spec.hidden, f"layers.{index}", scheme)
    found = _summary(votes)
    if any(_matches(pattern, "lm_head") for pattern, _ in scheme.named):
        found[Module.LM_HEAD] = scheme.precision(("lm_head",))
    if scheme.kv_cache is not Precision.BF16:
        found["kv_cache"] = scheme.kv_cache
    mixed = [
        f"{name or module} ({', '.join(f'{count} layers {precision}' for precision, count in counts.most_common())})"
        for (module, name), counts in votes.items()
        if len(counts) > 1
    ]
    return found, f"Precision differs between layers: {'; '.join(mixed)}." if mixed else ""


def layer_precisions(
    layers: tuple[Layer, ...], hidden: int, prefixes: tuple[str, ...], scheme: Scheme
) -> dict[str, Precision]:
    """As :func:`model_precisions`, for layers outside the stack (MTP); bf16 if excluded under any of ``prefixes``."""
    votes: _Votes = defaultdict(Counter)
    for layer in layers:
        for prefix in prefixes:
            if scheme.precision((f"{prefix}.input_layernorm",)) is Precision.BF16:
                return {}
        _vote(votes, layer, hidden, prefixes[0], scheme)
    return _summary(votes)


def _summary(votes: _Votes) -> dict[str, Precision]:
    """A class's most frequent precision where it is not bf16, then the matrices that differ from it."""
    chosen = {key: counts.most_common(1)[0][0] for key, counts in votes.items()}
    found: dict[str, Precision] = {}
    for module in dict.fromkeys(module for module, _ in chosen):
        members = {name: precision for (each, name), precision in chosen.items() if each is module}
        common = Counter(members.values()).most_common(1)[0][0]
        if common is not Precision.BF16:
            found[module] = common
        found |= {name: precision for name, precision in members.items() if precision is not common}
    return found
