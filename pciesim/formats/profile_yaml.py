"""Profile files: every parameter with value, interval, evidence and source.

``PARAMETERS`` is the one list of parameter names: what each means and the dimension its value must carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import Document, read_document
from pciesim.profile import Evidence, Parameter, Profile
from pciesim.units import US, format_rate, parse_rate, parse_seconds

__all__ = [
    "PARAMETERS", "ParameterDocument", "ProfileDocument", "parse_parameter", "profile_text", "read_profile",
    "to_parameter",
]  # fmt: skip

Dimension = Literal["seconds", "rate", "ratio"]

_NCCL: Final = {
    "base": ("seconds", "fixed cost of an NCCL call whose slowest edge is {}"),
    "step": ("seconds", "what a hop over {} costs beyond the route's own latency"),
    "ll_channel": ("rate", "payload rate one LL channel sustains over {}: 512 threads x 8 B / poll of a flag"),
    "simple_channel": ("rate", "payload rate one channel of the Simple protocol reaches over {} while it sends"),
    "simple_extra": ("seconds", "what the Simple protocol adds to the fixed cost of a call over {}"),
    "in_step": ("seconds", "what a call over {} costs more among a step's other kernels than after itself"),
    "share": ("ratio", "share of one flow's rate that NCCL reaches over {} while all ranks send and receive"),
    "ll128_extra": ("seconds", "what the LL128 protocol adds to the fixed cost of a call over {}"),
}
_TRANSPORTS: Final = {"nvl": "NVLink", "p2p": "PCIe peer-to-peer", "shm": "host memory"}

PARAMETERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "latency.poll": ("seconds", "issue of a store and the poll that sees it, outside the wire"),
        "latency.endpoint": ("seconds", "a GPU's end of a PCIe route"),
        "latency.switch": ("seconds", "a PCIe switch on the route"),
        "latency.root_complex": ("seconds", "crossing a root complex"),
        "latency.socket": ("seconds", "crossing the link between sockets"),
        "latency.nvlink_store": ("seconds", "store to visible over NVLink"),
        "latency.nvlink_load": ("seconds", "load round trip over NVLink"),
        "latency.host_store": ("seconds", "store to host memory until it can be read there"),
        "latency.host_load": ("seconds", "load round trip to host memory"),
        "latency.fence_per_load": ("ratio", "drain of a fence as a multiple of the route's load round trip"),
        "share.copy": ("ratio", "share of the PCIe line rate that copy engines fill"),
        "share.store": ("ratio", "share of the PCIe line rate that multiprocessor stores fill"),
        "share.load": ("ratio", "share of the PCIe line rate that multiprocessor loads fill"),
        "share.nvlink": ("ratio", "share of the NVLink line rate that multiprocessor stores fill"),
        **{
            f"nccl.{transport}.{name}": (dimension, about.format(title))
            for transport, title in _TRANSPORTS.items()
            for name, (dimension, about) in _NCCL.items()
        },
        "nccl.tree.thread_share": ("ratio", "rate of a tree's LL channel over a ring's (its threads are split)"),
        "nccl.tree.ll128_share": ("ratio", "rate of a tree's LL128 channel over a ring's"),
        "nccl.receive": (
            "ratio",
            "what a ring's last receive of a chunk takes of its block's time, of what a send takes",
        ),
        "nccl.cut_through": ("ratio", "share of a ring hop's latency that LL hides behind its bytes"),
        "nccl.smooth": ("ratio", "power of the smooth minimum of the channels' rate and the link's"),
        "nccl.copy_step": ("seconds", "what a hop costs more when NCCL copies through host memory by copy engine"),
        "kernel.phase": ("seconds", "what a kernel spends between two phases: reduce, synchronise, issue"),
        "collective.unmeasured": ("ratio", "factor on every collective of a box that nobody has measured"),
        "copy.step": ("seconds", "one copy-engine call and the stream wait for it, inside a graph"),
        "oneshot.host.base": ("seconds", "fixed cost of a one-shot kernel through host memory"),
        "oneshot.push.base": ("seconds", "fixed cost of a one-shot push kernel"),
        "oneshot.push.share": ("ratio", "rate of stores to several peers at once over that to one"),
        "oneshot.pull.base": ("seconds", "fixed cost of a one-shot pull kernel"),
        "oneshot.pull.share": ("ratio", "rate of loads from several peers at once over that from one"),
        "host.sglang": ("seconds", "time between two decode steps in which SGLang keeps the GPUs waiting"),
        "host.vllm": ("seconds", "time between two decode steps in which vLLM keeps the GPUs waiting"),
        "overlap.nvl": ("ratio", "rate at which a collective over NVLink and kernels beside it go on while both run"),
        "overlap.pcie": ("ratio", "the same for a collective over PCIe or host memory"),
        "draft.sglang": ("seconds", "what a pass of the draft head costs beyond its kernels under SGLang"),
        "draft.vllm": ("seconds", "what a pass of the draft head costs beyond its kernels under vLLM"),
    }
)

_PARSE: Final[Mapping[str, Callable[..., float]]] = MappingProxyType({"seconds": parse_seconds, "rate": parse_rate})


class ParameterDocument(Document):
    """One parameter as written: quantities with units, ratios as plain numbers."""

    value: str | float
    low: str | float
    high: str | float
    evidence: Evidence
    source: str = Field(min_length=3)


class ProfileDocument(Document):
    """A profile file (schema ``pciesim/profile/1``). ``runs`` are the files it was fitted to, with their SHA-256."""

    schema_: Literal["pciesim/profile/1"] = Field(alias="schema")
    name: str
    gpu: str
    description: str
    runs: dict[str, str] = Field(default_factory=dict)
    parameters: dict[str, ParameterDocument]


def read_profile(path: Path) -> Profile:
    """A profile from its file. Raises InputError with file and parameter on any fault."""
    document = read_document(path, ProfileDocument)
    return Profile(
        name=document.name,
        gpu=document.gpu,
        description=document.description,
        parameters=tuple((name, to_parameter(name, each, str(path))) for name, each in document.parameters.items()),
    )


def to_parameter(name: str, document: ParameterDocument, source: str) -> Parameter:
    """A parameter in SI units. Raises UnknownName or InputError."""
    if name not in PARAMETERS:
        raise UnknownName("parameter", name, PARAMETERS, where=source)
    where = f"{source}: {name}"
    low, value, high = (parse_parameter(name, each, where) for each in (document.low, document.value, document.high))
    if not low <= value <= high:
        raise InputError(
            f"low {document.low}, value {document.value}, high {document.high} are not in order", where=where
        )
    return Parameter(value=value, low=low, high=high, evidence=document.evidence, source=document.source)


def parse_parameter(name: str, text: str | float, where: str) -> float:
    """A figure of the dimension its parameter has, in SI units. Raises InputError when the unit is wrong."""
    dimension, _ = PARAMETERS[name]
    if dimension == "ratio":
        if isinstance(text, str):
            raise InputError(f"'{text}' should be a plain number", where=where)
        return float(text)
    if not isinstance(text, str):
        raise InputError(f"{text} has no unit; write it like '{'1.07 us' if dimension == 'seconds' else '54 GB/s'}'",
                         where=where)  # fmt: skip
    return _PARSE[dimension](text, where=where)


def profile_text(profile: Profile, header: str, runs: Iterable[tuple[str, str]] = ()) -> str:
    """The file of a profile: deterministic, so that refitting the same runs gives the same bytes.

    ``runs`` are (file, SHA-256) of what it was fitted to.
    """
    lines = [f"# {line}" for line in header.splitlines()]
    lines += ["schema: pciesim/profile/1", f"name: {profile.name}", f"gpu: {profile.gpu}",
              f"description: {_quoted(profile.description)}"]  # fmt: skip
    if hashes := sorted(runs):
        lines += ["runs:", *(f"  {_quoted(name)}: {digest}" for name, digest in hashes)]
    lines.append("parameters:")
    for name, each in profile.parameters:
        dimension, _ = PARAMETERS[name]
        value, low, high = (_written(x, dimension) for x in (each.value, each.low, each.high))
        lines.append(f"  {name}:")
        lines += [f"    value: {value}", f"    low: {low}", f"    high: {high}", f"    evidence: {each.evidence}",
                  f"    source: {_quoted(each.source)}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _written(value: float, dimension: str) -> str:
    if dimension == "seconds":
        return f"{value / US:.4g} us"
    return f"{value:.4g}" if dimension == "ratio" else format_rate(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
