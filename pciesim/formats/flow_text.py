"""Flows as people write them: ``0>4``, ``0:4`` (for shells that redirect), ``host:0``, ``all-to-all``, ``stagger:2``.

An end is a GPU number, ``host`` (the memory nearest to the other end) or a device's name (``memory1``, ``mlx5_0``).
Lists (``0-3``, ``all``) give every pair. ``all-to-all:0-3`` and ``stagger:2:0-7`` name the GPUs; without, all of them.
``@10GB/s`` caps a flow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pciesim.errors import InputError, UnknownName
from pciesim.fabric import DeviceKind, Fabric
from pciesim.flows import HOST, FlowSpec, all_to_all, stagger
from pciesim.units import parse_rate

__all__ = ["parse_flows"]

ALL: Final = "all"
_ENDS: Final = (DeviceKind.GPU, DeviceKind.MEMORY, DeviceKind.NIC)
_PAIR: Final = re.compile(r"([\w,-]+?)(?:->|>|:)([\w,-]+)")
_GPUS: Final = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_FORMS: Final = "write it like '0>4', '0:4', 'host:0', 'all-to-all', 'stagger:2' or 'stagger:2:0-7'"


def parse_flows(words: Iterable[str], fabric: Fabric, *, where: str = "") -> tuple[FlowSpec, ...]:
    """The flows of all words, in order. Raises InputError for what is no flow, UnknownName for a device."""
    return tuple(flow for word in words for text in word.split() for flow in _word(text, fabric, where))


def _word(text: str, fabric: Fabric, where: str) -> tuple[FlowSpec, ...]:
    body, at, limit = text.partition("@")
    flows = _flows(body, fabric, where)
    if not flows:
        raise InputError(f"'{text}' has no flow between two devices", where=where)
    if not at:
        return flows
    return tuple(replace(flow, cap=parse_rate(limit)) for flow in flows)


def _flows(text: str, fabric: Fabric, where: str) -> tuple[FlowSpec, ...]:
    word, _, rest = text.partition(":")
    if word == "all-to-all":
        return all_to_all(_ends(rest or ALL, fabric, where))
    if word == "stagger":
        distance, _, gpus = rest.partition(":")
        if not distance.isdecimal():
            raise InputError(f"'{text}' does not say by how many; {_FORMS}", where=where)
        return stagger(_ends(gpus or ALL, fabric, where), int(distance))
    pair = _PAIR.fullmatch(text)
    if pair is None:
        raise InputError(f"'{text}' is not a flow; {_FORMS}", where=where)
    sources, targets = (_ends(each, fabric, where) for each in pair.groups())
    own = {device.name for device in fabric.devices if device.kind is not DeviceKind.MEMORY}
    if own.isdisjoint((*sources, *targets)):
        raise InputError(f"'{text}' has no GPU or NIC at either end: nothing moves the bytes", where=where)
    return tuple(FlowSpec(source=one, target=other) for one in sources for other in targets if one != other)


def _ends(text: str, fabric: Fabric, where: str) -> tuple[str, ...]:
    """Names of the devices of one end."""
    by_index = {gpu.index: gpu.name for gpu in fabric.gpus}
    if text == ALL:
        return tuple(by_index.values())
    if _GPUS.fullmatch(text):
        found: list[str] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            for index in range(int(first), int(last or first) + 1):
                if index not in by_index:
                    raise InputError(
                        f"'{text}' names GPU {index}; '{fabric.name}' has GPUs 0 to {len(by_index) - 1}", where=where
                    )
                found.append(by_index[index])
        return tuple(found)
    if text == HOST:
        return (HOST,)
    ends = [device for device in fabric.devices if device.kind in _ENDS]
    names = {device.name.lower(): device.name for device in ends}
    names |= {device.label.lower(): device.name for device in ends if device.label}
    if text.lower() not in names:
        raise UnknownName("end of a flow", text, [HOST, ALL, *names.values()], where=where)
    return (names[text.lower()],)
