"""Engine files: a serving engine and version as data, no code."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import Document, read_text, validate_document
from pciesim.model import Precision
from pciesim.schedule import (
    AttentionData,
    Backend,
    CollectiveKind,
    EngineSpec,
    ExpertBackend,
    SpeculationStyle,
    Switch,
)
from pciesim.units import parse_bytes

__all__ = [
    "BackendDocument", "EngineDocument", "ExpertBackendDocument", "SpeculationDocument", "SwitchDocument",
    "VariantDocument", "engine_names", "load_engine",
]  # fmt: skip

Place = Literal[
    "embedding", "before_mixer", "attention_prepare", "attention_gate", "latent_norm", "compress", "index_prepare",
    "delta_prepare", "delta_finish", "state_commit", "mix_streams", "post_norm", "before_mlp", "dense_activation",
    "branch_norm", "moe_route", "experts_prepare", "experts_finish", "shared_activation", "shared_gate",
    "moe_combine", "after_layer", "draft_norms", "final", "sample", "context_join", "context_layout", "context_mask",
    "context_merge", "context_output",
]  # fmt: skip

_RANGE: Final = re.compile(r"(\d+)-(\d+) by (\d+)")
_SM: Final = re.compile(r"SM(\d{2,3})")
_EXTENDS: Final = re.compile(r"^extends:", re.MULTILINE)
_DEEPEST: Final = 4


def _a_size(text: str) -> str:
    parse_bytes(text)
    return text


def _an_sm(text: str) -> str:
    if not _SM.fullmatch(text):
        raise ValueError(f"'{text}' is not an SM version; write it like 'SM120'")
    return text


def _some_rows(value: int | str) -> int | str:
    if isinstance(value, str) and not _RANGE.fullmatch(value):
        raise ValueError(f"'{value}' is neither a number nor a range like '16-256 by 8'")
    return value


Size = Annotated[str, AfterValidator(_a_size)]
Sm = Annotated[str, AfterValidator(_an_sm)]
Rows = Annotated[int | str, AfterValidator(_some_rows)]


class SwitchDocument(Document):
    """Flags and variables that turn a backend on or off, and its default."""

    names: tuple[str, ...] = Field(min_length=1)
    default: Literal["on", "off"]

    def to_domain(self) -> Switch:
        """The switch as the dispatch knows it."""
        return Switch(names=self.names, default=self.default == "on")


class BackendDocument(Document):
    """One line of the engine's dispatch; the first that refuses nothing serves."""

    name: str
    algorithm: str
    why: str = Field(min_length=3)
    kinds: tuple[CollectiveKind, ...] = (CollectiveKind.ALL_REDUCE,)
    switch: SwitchDocument | None = None
    platform: Literal["cuda", "rocm"] = "cuda"
    worlds: tuple[int, ...] = ()
    min_size: Size = "0 B"
    max_size: Size | dict[int, Size] = "0 B"
    multiple_of: int = Field(default=1, ge=1)
    precisions: tuple[Precision, ...] = ()
    groups: tuple[str, ...] = ()
    gpus: tuple[Sm, ...] = ()
    needs_p2p: bool = False
    needs_nvlink_above: int | None = None
    needs_multicast: bool = False
    one_node: bool = False
    eager: bool = True
    for_experts: bool = False

    def to_domain(self) -> Backend:
        """The backend as the dispatch knows it."""
        limits = self.max_size if isinstance(self.max_size, dict) else {0: self.max_size}
        return Backend(
            name=self.name, algorithm=self.algorithm, why=self.why, kinds=self.kinds, platform=self.platform,
            switch=None if self.switch is None else self.switch.to_domain(),
            worlds=self.worlds, min_bytes=int(parse_bytes(self.min_size)),
            size_limits=tuple((world, int(parse_bytes(size))) for world, size in limits.items()),
            multiple_of=self.multiple_of, precisions=self.precisions, groups=self.groups,
            capabilities=_capabilities(self.gpus), needs_p2p=self.needs_p2p,
            needs_nvlink_above=self.needs_nvlink_above, needs_multicast=self.needs_multicast, one_node=self.one_node,
            eager=self.eager, for_experts=self.for_experts,
        )  # fmt: skip


class ExpertBackendDocument(Document):
    """A kernel backend and what is known of it; ``runs`` says so in words."""

    name: str
    precision: str
    runs: str
    gpus: tuple[Sm, ...] = ()


class SpeculationDocument(Document):
    """How the engine drafts."""

    extend_last: bool
    extend_logits_all: bool
    gathered_projection: bool
    broadcasts: int = 0


class EngineDocument(Document):
    """An engine file (schema ``pciesim/engine/1``)."""

    schema_: Literal["pciesim/engine/1"] = Field(alias="schema")
    title: str
    version: str
    source: str
    collectives: tuple[BackendDocument, ...] = Field(min_length=1)
    attention_data: AttentionData = AttentionData.GATHER
    small_kernels: dict[Place, tuple[str, ...]]
    expert_backends: dict[Precision, str]
    known_backends: tuple[ExpertBackendDocument, ...] = ()
    attention_backend: str
    kernel_rows: str
    side_stream: bool
    side_stream_rows: int = 0
    graph_rows: tuple[Rows, ...] = ()
    prefill_chunk: int = 8192
    speculation: SpeculationDocument | None = None
    embedding_sum: bool = True
    whole: bool = True
    ranks_route_alone: bool = False
    host_parameter: str

    def to_domain(self, name: str) -> EngineSpec:
        """The engine as the schedule knows it."""
        style = self.speculation or SpeculationDocument(
            extend_last=True, extend_logits_all=False, gathered_projection=False
        )
        return EngineSpec(
            name=name,
            title=self.title,
            version=self.version,
            backends=tuple(backend.to_domain() for backend in self.collectives),
            attention_data=self.attention_data,
            small_kernels=MappingProxyType({str(place): kinds for place, kinds in self.small_kernels.items()}),
            expert_backends=MappingProxyType({str(each): backend for each, backend in self.expert_backends.items()}),
            known_backends=tuple(
                ExpertBackend(name=each.name, precision=each.precision, runs=each.runs,
                              capabilities=_capabilities(each.gpus))
                for each in self.known_backends
            ),
            attention_backend=self.attention_backend,
            kernel_rows=self.kernel_rows,
            side_stream=self.side_stream,
            side_stream_rows=self.side_stream_rows,
            graph_rows=_rows(self.graph_rows),
            prefill_chunk=self.prefill_chunk,
            speculation=SpeculationStyle(**style.model_dump()),
            embedding_sum=self.embedding_sum,
            whole=self.whole,
            ranks_route_alone=self.ranks_route_alone,
            host_parameter=self.host_parameter,
            source=self.source,
        )  # fmt: skip


class VariantDocument(Document):
    """An engine file that says only how it differs from another (``extends``); small kernels by place."""

    schema_: Literal["pciesim/engine/1"] = Field(alias="schema")
    extends: str
    title: str | None = None
    version: str | None = None
    source: str | None = None
    collectives: tuple[BackendDocument, ...] | None = None
    small_kernels: dict[Place, tuple[str, ...]] | None = None
    expert_backends: dict[Precision, str] | None = None
    known_backends: tuple[ExpertBackendDocument, ...] | None = None
    attention_backend: str | None = None
    graph_rows: tuple[Rows, ...] | None = None
    prefill_chunk: int | None = None
    speculation: SpeculationDocument | None = None
    host_parameter: str | None = None

    def over(self, base: EngineDocument) -> EngineDocument:
        """The base with what this file states."""
        changed = {name: getattr(self, name) for name in type(self).model_fields if name not in ("schema_", "extends")}
        if self.small_kernels is not None:
            changed["small_kernels"] = {**base.small_kernels, **self.small_kernels}
        return base.model_copy(update={name: value for name, value in changed.items() if value is not None})


def _capabilities(gpus: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(gpu.removeprefix("SM")) for gpu in gpus)


def _rows(entries: tuple[int | str, ...]) -> tuple[int, ...]:
    """``(1, 2, '8-24 by 8')`` -> ``(1, 2, 8, 16, 24)``."""
    found: set[int] = set()
    for entry in entries:
        match = _RANGE.fullmatch(entry) if isinstance(entry, str) else None
        found |= {int(entry)} if match is None else set(range(int(match[1]), int(match[2]) + 1, int(match[3])))
    return tuple(sorted(found))


def _folder() -> Path:
    return Path(__file__).parents[1] / "catalogue" / "engines"


def engine_names() -> list[str]:
    """The engines that ship with pciesim. A name without a version is the newest behaviour that was read."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def load_engine(name: str) -> EngineSpec:
    """An engine by name, or by the path of a YAML file. Raises UnknownName with the nearest valid one."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else _shipped(name)
    return _document(path).to_domain(path.stem)


def _shipped(name: str) -> Path:
    path = _folder() / f"{name}.yaml"
    if not path.is_file():
        raise UnknownName("engine", name, engine_names())
    return path


def _document(path: Path, depth: int = 0) -> EngineDocument:
    text = read_text(path)
    if not _EXTENDS.search(text):
        return validate_document(text, EngineDocument, source=str(path))
    variant = validate_document(text, VariantDocument, source=str(path))
    if depth == _DEEPEST:
        raise InputError("engines extend each other in a circle", where=str(path))
    return variant.over(_document(_shipped(variant.extends), depth + 1))
