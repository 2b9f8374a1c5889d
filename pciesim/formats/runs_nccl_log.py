"""NCCL's own log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING): what it found and what it chose."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.schedule import CollectiveKind
from pciesim.units import Bytes

__all__ = ["NcclChoice", "NcclLog", "read_nccl_log"]

_VERSION: Final = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_RANKS: Final = re.compile(r"\bnranks (\d+)\b")
_RING: Final = re.compile(r"Channel 0*0/\d+\s*:\s+((?:\d+\s*)+)$", re.MULTILINE)
_EDGE: Final = re.compile(r"Channel \d+/\d+ : (\d+)\[\w+\] -> (\d+)\[\w+\](?: \[\w+\])? via (\w+)")
_CHANNELS: Final = re.compile(r"(\d+) coll channels")
_CHOICE: Final = re.compile(
    r"(AllReduce|AllGather|ReduceScatter|Broadcast): (\d+) Bytes -> Algo (\w+) [Pp]roto (\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)
_KINDS: Final = MappingProxyType({
    "AllReduce": CollectiveKind.ALL_REDUCE, "AllGather": CollectiveKind.ALL_GATHER,
    "ReduceScatter": CollectiveKind.REDUCE_SCATTER, "Broadcast": CollectiveKind.BROADCAST,
})  # fmt: skip
_ALGORITHMS: Final = MappingProxyType({"0": "Tree", "1": "Ring", "TREE": "Tree", "RING": "Ring"})
_PROTOCOLS: Final = MappingProxyType({"0": "LL", "1": "LL128", "2": "Simple", "SIMPLE": "Simple"})
_TRANSPORTS: Final = MappingProxyType({"P2P": "P2P", "SHM": "SHM", "NET": "NET", "direct": "P2P"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclChoice:
    """One operation as NCCL ran it; ``channels`` None where the log does not say. ``nbytes`` is NCCL's count."""

    kind: CollectiveKind
    nbytes: Bytes
    algorithm: str
    protocol: str
    channels: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLog:
    """``ring`` is the rank order of channel 0; ``transports`` the words for the ways between ranks, each once."""

    version: str
    ranks: int
    ring: tuple[int, ...]
    channels: int | None
    transports: tuple[str, ...]
    choices: tuple[NcclChoice, ...]


def read_nccl_log(path: Path) -> NcclLog:
    """What the last communicator of a log was. Raises InputError where it is none, or says too little."""
    text = read_text(path)
    version = _VERSION.search(text)
    if version is None:
        raise InputError("is no NCCL log (no line 'NCCL version ...'); NCCL_DEBUG=INFO writes one", where=str(path))
    ranks = [int(each) for each in _RANKS.findall(text)]
    ring = _RING.findall(text)
    channels = _CHANNELS.findall(text)
    choices = {
        (match[1], match[2]): NcclChoice(
            kind=_KINDS[match[1]],
            nbytes=int(match[2]),
            algorithm=_ALGORITHMS.get(match[3], match[3].title()),
            protocol=_PROTOCOLS.get(match[4], match[4]),
            channels=int(match[6]) - int(match[5]) + 1 if match[5] is not None else None,
        )
        for match in _CHOICE.finditer(text)
    }
    return NcclLog(
        version=version[1],
        ranks=max(ranks, default=0),
        ring=tuple(int(each) for each in ring[-1].split()) if ring else (),
        channels=int(channels[-1]) if channels else None,
        transports=tuple(sorted({_TRANSPORTS.get(way, way) for _, _, way in _EDGE.findall(text)})),
        choices=tuple(choices.values()),
    )
