"""The hardware catalogue: YAML entries to GPU, host and switch types.

A command asks for one or two entries, and parsing a whole file costs tens of milliseconds. So the file is cut at its
top-level keys by a text scan, and only the entry asked for is parsed and validated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import Document, validate_document
from pciesim.hardware import GpuType, HostType, SwitchType
from pciesim.units import parse_bytes, parse_flops, parse_rate, parse_seconds

__all__ = [
    "ByteQuantity", "FlopRate", "Rate", "TimeQuantity", "gpu_names", "gpu_type", "host_by_cpuid", "host_names",
    "host_type", "quantity", "switch_names", "switch_type",
]  # fmt: skip

UNKNOWN_HOST: Final = "unknown"
_TOP: Final = re.compile(r"^([A-Za-z0-9_]+):[ \t]*$", re.MULTILINE)
_NAME: Final = re.compile(r"^  name: (.*)$", re.MULTILINE)
_LIST: Final = re.compile(r"^  (aliases|patterns): \[(.*)\]$", re.MULTILINE)
_CPUID: Final = re.compile(r"^  cpuid: \{family: (\d+), model: (\d+)\}$", re.MULTILINE)


def quantity(parse: Callable[[str], float], example: str) -> BeforeValidator:
    """A validator that turns text with a unit into a float, and refuses bare numbers."""

    def read(value: Any) -> float:
        if not isinstance(value, str):
            raise ValueError(f"needs a unit; write it like '{example}'")
        try:
            return parse(value)
        except InputError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read, json_schema_input_type=str)


ByteQuantity = Annotated[float, quantity(parse_bytes, "96 GiB"), Field(gt=0)]
Rate = Annotated[float, quantity(parse_rate, "54 GB/s"), Field(gt=0)]
FlopRate = Annotated[float, quantity(parse_flops, "468 TFLOP/s"), Field(gt=0)]
TimeQuantity = Annotated[float, quantity(parse_seconds, "105 ns"), Field(ge=0)]


class _Pcie(Document):
    generation: int
    width: int


class _NvLink(Document):
    links: int
    bandwidth: Rate


class _Gpu(Document):
    name: str
    compute_capability: int
    multiprocessors: int
    memory: ByteQuantity
    memory_bandwidth: Rate
    l2: ByteQuantity
    dense: dict[str, FlopRate]
    pcie: _Pcie
    nvlink: _NvLink | None = None
    pcie_p2p: bool = True
    source: str
    aliases: tuple[str, ...] = ()

    def to_domain(self, key: str) -> GpuType:
        return GpuType(
            key=key,
            name=self.name,
            compute_capability=self.compute_capability,
            multiprocessors=self.multiprocessors,
            memory=self.memory,
            memory_bandwidth=self.memory_bandwidth,
            l2=self.l2,
            dense_flops=dict(self.dense),
            pcie_generation=self.pcie.generation,
            pcie_width=self.pcie.width,
            nvlink=self.nvlink is not None,
            nvlinks=self.nvlink.links if self.nvlink else 0,
            nvlink_bandwidth=self.nvlink.bandwidth if self.nvlink else 0.0,
            pcie_p2p=self.pcie_p2p,
            source=self.source,
            aliases=self.aliases,
        )


class _Cpuid(Document):
    family: int
    model: int


class _SocketLink(Document):
    links: int
    bandwidth: Rate


class _Nccl(Document):
    socket: Rate
    p2p_overhead: float = 1.0


class _Host(Document):
    name: str
    vendor: str
    cpuid: _Cpuid
    pcie_generation: int
    memory_bandwidth: Rate
    max_sockets: int
    socket_link: _SocketLink | None = None
    nccl: _Nccl
    source: str
    patterns: tuple[str, ...] = ()

    def to_domain(self, key: str) -> HostType:
        return HostType(
            key=key,
            name=self.name,
            vendor=self.vendor,
            pcie_generation=self.pcie_generation,
            memory_bandwidth=self.memory_bandwidth,
            max_sockets=self.max_sockets,
            socket_links=self.socket_link.links if self.socket_link else 0,
            socket_link_bandwidth=self.socket_link.bandwidth if self.socket_link else 0.0,
            nccl_socket_bandwidth=self.nccl.socket,
            nccl_p2p_overhead=self.nccl.p2p_overhead,
            family=self.cpuid.family,
            model=self.cpuid.model,
            source=self.source,
            aliases=self.patterns,
        )


class _Switch(Document):
    name: str
    vendor: str
    pcie_generation: int
    lanes: int
    hop: TimeQuantity
    write_collapse: int | None = None
    source: str
    aliases: tuple[str, ...] = ()

    def to_domain(self, key: str) -> SwitchType:
        return SwitchType(
            key=key,
            name=self.name,
            vendor=self.vendor,
            pcie_generation=self.pcie_generation,
            lanes=self.lanes,
            hop=self.hop,
            write_collapse=self.write_collapse,
            source=self.source,
            aliases=self.aliases,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Book:
    """One catalogue file, cut into entries: key to (first line, text)."""

    source: str
    entries: dict[str, tuple[int, str]]

    @classmethod
    @cache  # packaged files do not change while the program runs
    def open(cls, name: str) -> _Book:
        text = files("pciesim.catalogue").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        starts = [(match.start(), match[1]) for match in _TOP.finditer(text)]
        ends = [start for start, _ in starts[1:]] + [len(text)]
        return cls(
            source=f"{name}.yaml",
            entries={
                key: (text.count("\n", 0, start), text[text.index("\n", start) + 1 : end])
                for (start, key), end in zip(starts, ends, strict=True)
            },
        )

    def find(self, kind: str, name: str, where: str) -> str:
        """The key that a spelling means: key, name, alias, or a pattern that fits it. Raises UnknownName."""
        wanted = _plain(name)
        if wanted in self.entries:
            return wanted
        for key, (_, body) in self.entries.items():
            called = _NAME.search(body)
            if called is not None and _plain(called[1]) == wanted:
                return key
            for match in _LIST.finditer(body):
                words = [word.strip(" '") for word in match[2].split(", ")]
                if match[1] == "aliases" and wanted in words:
                    return key
                if match[1] == "patterns" and any(re.fullmatch(word, wanted) for word in words):
                    return key
        raise UnknownName(kind, name, self.entries, where=where)

    def read(self, key: str, schema: type[Any]) -> Any:
        """One entry, validated. Line numbers of errors are those of the file."""
        line, body = self.entries[key]
        return validate_document("\n" * (line + 1) + body, schema, source=self.source)


def _plain(name: str) -> str:
    """``'AMD EPYC 9575F 64-Core Processor'`` -> ``'epyc_9575f'``: lower case, without vendor and trimmings."""
    words = re.sub(r"\((r|tm)\)", " ", name.lower()).split("@")[0]
    words = re.sub(r"\b\d+-cores?\b|\bprocessors?\b|\bcpu\b|^\s*(amd|intel|nvidia)\b", " ", words)
    return re.sub(r"[^a-z0-9]+", "_", words.replace("+", "p")).strip("_")


@cache
def _gpu(key: str) -> GpuType:
    found: GpuType = _Book.open("gpus").read(key, _Gpu).to_domain(key)
    return found


@cache
def _host(key: str) -> HostType:
    found: HostType = _Book.open("hosts").read(key, _Host).to_domain(key)
    return found


@cache
def _switch(key: str) -> SwitchType:
    found: SwitchType = _Book.open("switches").read(key, _Switch).to_domain(key)
    return found


def gpu_type(name: str, *, where: str = "") -> GpuType:
    """A GPU by key or alias (nvidia-smi's product name is one). Raises UnknownName."""
    book = _Book.open("gpus")
    return _gpu(book.find("GPU model", name, where))


def host_type(name: str, *, where: str = "") -> HostType:
    """A CPU family by key or by the name of one of its members (``EPYC 9575F``). Raises UnknownName."""
    book = _Book.open("hosts")
    return _host(book.find("CPU", name, where))


def host_by_cpuid(vendor: str, family: int, model: int) -> HostType | None:
    """The CPU family of a CPUID (as NCCL's topology XML has it), None where the catalogue has none."""
    book = _Book.open("hosts")
    for key, (_, body) in book.entries.items():
        match = _CPUID.search(body)
        if match and (int(match[1]), int(match[2])) == (family, model) and f"vendor: {vendor}" in body:
            return _host(key)
    return None


def switch_type(name: str, *, where: str = "") -> SwitchType:
    """A switch chip by key or alias. Raises UnknownName."""
    book = _Book.open("switches")
    return _switch(book.find("switch model", name, where))


def gpu_names() -> tuple[str, ...]:
    """Keys of the GPU catalogue, in its order."""
    return tuple(_Book.open("gpus").entries)


def host_names() -> tuple[str, ...]:
    """Keys of the CPU catalogue, in its order."""
    return tuple(_Book.open("hosts").entries)


def switch_names() -> tuple[str, ...]:
    """Keys of the switch catalogue, in its order."""
    return tuple(_Book.open("switches").entries)
