"""Engine files: a serving engine and version as data, no code."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from pciesim.errors import UnknownName
from pciesim.formats.documents import Document, read_document
from pciesim.model import Precision
from pciesim.schedule import AllReduceRule, EngineSpec

__all__ = ["EngineDocument", "RuleDocument", "engine_names", "load_engine"]

Place = Literal[
    "embedding", "before_mixer", "attention_prepare", "attention_gate", "delta_prepare", "delta_finish", "before_mlp",
    "dense_activation", "moe_route", "shared_activation", "shared_gate", "moe_combine", "final", "sample",
]  # fmt: skip


class RuleDocument(Document):
    """One line of the engine's all-reduce dispatch."""

    algorithm: str
    worlds: tuple[int, ...] = ()
    max_bytes: int = 0
    needs_p2p: bool = False
    needs_nvlink: bool = False
    why: str = Field(min_length=3)


class EngineDocument(Document):
    """An engine file (schema ``pciesim/engine/1``)."""

    schema_: Literal["pciesim/engine/1"] = Field(alias="schema")
    title: str
    version: str
    source: str
    all_reduce: tuple[RuleDocument, ...] = Field(min_length=1)
    small_kernels: dict[Place, tuple[str, ...]]
    expert_backends: dict[Precision, str]
    attention_backend: str
    side_stream: bool
    host_parameter: str

    def to_domain(self, name: str) -> EngineSpec:
        """The engine as the schedule knows it."""
        return EngineSpec(
            name=name,
            title=self.title,
            version=self.version,
            all_reduce=tuple(AllReduceRule(**rule.model_dump()) for rule in self.all_reduce),
            small_kernels=MappingProxyType({str(place): kinds for place, kinds in self.small_kernels.items()}),
            expert_backends=MappingProxyType({str(each): backend for each, backend in self.expert_backends.items()}),
            attention_backend=self.attention_backend,
            side_stream=self.side_stream,
            host_parameter=self.host_parameter,
            source=self.source,
        )


def _folder() -> Path:
    return Path(__file__).parents[1] / "catalogue" / "engines"


def engine_names() -> list[str]:
    """The engines that ship with pciesim."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def load_engine(name: str) -> EngineSpec:
    """An engine by name, or by the path of a YAML file. Raises UnknownName with the nearest valid one."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else _folder() / f"{name}.yaml"
    if not path.is_file() and path.parent == _folder():
        raise UnknownName("engine", name, engine_names())
    return read_document(path, EngineDocument).to_domain(path.stem)
