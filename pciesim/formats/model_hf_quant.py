"""Quantisation of published checkpoints: which precision each matrix has.

Reads ``quantization_config`` of a config, or ``hf_quant_config.json`` beside it (modelopt), as one list of rules over
the names of modules in the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from pciesim.errors import InputError, UnknownName
from pciesim.model import Precision

__all__ = ["Quantisation", "Rules", "Scheme", "read_scheme"]

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
class Rules:
    """Names of modules and what they are quantised to, sorted by how a rule names them, for quick look-up.

    ``modules`` are whole names (which cover what is below them), ``words`` one part of a name wherever it stands,
    ``globs`` and ``expressions`` patterns.
    """

    modules: Mapping[str, Precision] = field(default_factory=dict)
    words: Mapping[str, Precision] = field(default_factory=dict)
    globs: tuple[tuple[str, Precision], ...] = ()
    expressions: tuple[tuple[re.Pattern[str], Precision], ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, Precision]]) -> Rules:
        """Rules from the names in a quantisation list."""
        modules: dict[str, Precision] = {}
        words: dict[str, Precision] = {}
        globs: list[tuple[str, Precision]] = []
        expressions: list[tuple[re.Pattern[str], Precision]] = []
        for name, precision in pairs:
            if name.startswith("re:"):
                expressions.append((re.compile(name.removeprefix("re:")), precision))
                continue
            # Checkpoints differ in what stands before layers.N (model., backbone., language_model.model.).
            inside = _LAYER.search(name)
            bare = inside[1] if inside else name
            if "*" in bare:
                globs.append((bare, precision))
            else:
                (modules if "." in bare else words)[bare] = precision
        return cls(modules=modules, words=words, globs=tuple(globs), expressions=tuple(expressions))

    def find(self, path: str) -> Precision | None:
        """What the rules say of a module such as ``layers.3.mlp.gate_proj``."""
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            if (found := self.modules.get(".".join(parts[:end]))) is not None:
                return found
        for part in parts:
            if (found := self.words.get(part)) is not None:
                return found
        full = "model." + path
        for glob, precision in self.globs:
            literal = glob.partition("*")[0]
            for name in (path, full):
                if name.startswith(literal) and (fnmatchcase(name, glob) or fnmatchcase(name, glob + ".*")):
                    return precision
        return next((precision for pattern, precision in self.expressions if pattern.match(full)), None)


_LAYER: Final = re.compile(r"(?:^|\.)((?:mtp\.)?layers\..*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What ``named`` modules are quantised to; ``excluded`` ones are bf16; all other linear layers have ``default``.

    ``folders`` says where the checkpoint keeps a class of modules below a layer, where not in the usual place; ``wide``
    names matrices that are bf16 whatever the rules say. ``native`` checkpoints were quantised by whoever trained them.
    """

    default: Precision = Precision.BF16
    named: Rules = field(default_factory=Rules)
    excluded: Rules = field(default_factory=Rules)
    kv_cache: Precision = Precision.BF16
    native: bool = False
    folders: Mapping[str, str] = field(default_factory=dict)
    wide: tuple[str, ...] = ()

    def precision(self, paths: tuple[str, ...]) -> Precision:
        """Of the matrix that a checkpoint may call by any of ``paths`` (``layers.3.mlp.gate_proj``)."""
        for rules in (self.named, self.excluded):
            for path in paths:
                if (found := rules.find(path)) is not None:
                    return found
        return self.default


class _Published(BaseModel):
    """Part of a file that others define: what is not needed is skipped."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Weights(_Published):
    type: str | None = None
    num_bits: int | None = None
    group_size: int | None = None
    strategy: str | None = None


class _Group(_Published):
    targets: list[str] | None = None
    weights: _Weights | None = None


class _NamedLayer(_Published):
    quant_algo: str


class _CacheScheme(_Published):
    num_bits: int | None = None


class Quantisation(_Published):
    """A ``quantization_config``, or the ``quantization`` of ``hf_quant_config.json``."""

    quant_method: str | None = None
    quant_algo: str | None = None
    weight_block_size: list[int] | None = None
    exclude_modules: list[str] | None = None
    ignore: list[str] | None = None
    modules_to_not_convert: list[str] | None = None
    ignored_layers: list[str] | None = None
    quantized_layers: dict[str, _NamedLayer] | None = None
    config_groups: dict[str, _Group] | None = None
    kv_cache_quant_algo: str | None = None
    kv_cache_scheme: _CacheScheme | str | None = None


def read_scheme(data: object, *, where: str) -> Scheme:
    """The rules of a :class:`Quantisation`.

    Raises InputError for a method or number format that is not known, or a field of another kind than it should be.
    """
    try:
        found = Quantisation.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        message = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
        raise InputError(f"quantisation: {f'{place}: ' if place else ''}{message}", where=where) from None
    method = "modelopt" if found.quant_algo and found.quant_method is None else str(found.quant_method)
    if method not in _METHODS:
        raise UnknownName("quant_method", method, _METHODS, where=where)
    # modelopt's list says what it left alone, which in a checkpoint that was FP8 before stays FP8.
    lists = [found.modules_to_not_convert, found.ignored_layers]
    lists += [] if method == "fp8" else [found.exclude_modules, found.ignore]
    try:
        excluded = Rules.of((name, Precision.BF16) for names in lists for name in names or ())
        named = Rules.of(_named(found, where))
    except re.error as error:
        raise InputError(f"quantisation: not a regular expression: {error}", where=where) from None
    return Scheme(
        default=_default(found, method, where),
        named=named,
        excluded=excluded,
        kv_cache=_kv_cache(found),
        native=method == "fp8",
    )


def _default(found: Quantisation, method: str, where: str) -> Precision:
    match method:
        case "mxfp4":
            return Precision.MXFP4
        case "awq" | "gptq":
            return Precision.INT4_AWQ
        case "fp8":
            return Precision.FP8_BLOCK if found.weight_block_size else Precision.FP8
        case "modelopt" if found.quant_algo:
            return Precision.BF16 if found.quant_algo == "MIXED_PRECISION" else _algorithm(found.quant_algo, where)
        case _:
            whole = [group for group in (found.config_groups or {}).values() if "Linear" in (group.targets or ())]
            return _weights(whole[0], where) if whole else Precision.BF16


def _named(found: Quantisation, where: str) -> list[tuple[str, Precision]]:
    if found.quantized_layers:
        return [(name, _algorithm(each.quant_algo, where)) for name, each in found.quantized_layers.items()]
    return [
        (target, _weights(group, where))
        for group in (found.config_groups or {}).values()
        for target in group.targets or ()
        if target != "Linear"
    ]


def _algorithm(name: str, where: str) -> Precision:
    if name not in _ALGORITHMS:
        raise UnknownName("quant_algo", name, _ALGORITHMS, where=where)
    return _ALGORITHMS[name]


def _weights(group: _Group, where: str) -> Precision:
    weights = group.weights or _Weights()
    if weights.strategy == "block":
        return Precision.FP8_BLOCK
    size = weights.group_size
    key = (weights.type, weights.num_bits, size if size and size > 0 else None)
    if key not in _WEIGHTS:
        raise InputError(f"quantised weights of type, bits and group {key} are not known", where=where)
    return _WEIGHTS[key]


def _kv_cache(found: Quantisation) -> Precision:
    scheme = found.kv_cache_quant_algo or found.kv_cache_scheme
    eight = scheme.num_bits == 8 if isinstance(scheme, _CacheScheme) else scheme == "FP8"
    return Precision.FP8 if eight else Precision.BF16
