"""Bandwidth tools of two GPUs: p2pBandwidthLatencyTest, nvbandwidth (text and JSON), p2pmark.

Each has a metric of its own. What one flow alone reaches is a reading. Equal volumes to completion (p2pmark's rows by
distance, all-to-all) tell about sharing, not about one flow, and are only noted; so is the latency of
p2pBandwidthLatencyTest, which ends when the copy was issued and not when it can be seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pciesim.calibrate.points import Point
from pciesim.calibrate.readings import Reading, Run, What
from pciesim.errors import InputError
from pciesim.formats.runs_context import ImportContext
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, NS, US, parse_bytes

__all__ = [
    "is_bandwidth_test", "is_nvbandwidth", "is_p2pmark", "read_bandwidth_test", "read_nvbandwidth", "read_p2pmark",
]  # fmt: skip

_CUDA_SAMPLE: Final = re.compile(r"^\s*Unidirectional P2P=Enabled Bandwidth.*Matrix \(GB/s\)", re.MULTILINE)
_NVBANDWIDTH: Final[dict[str, tuple[What, float]]] = {
    "host_to_device_memcpy_ce": (What.HOST_COPY, GB), "device_to_host_memcpy_ce": (What.HOST_COPY, GB),
    "device_to_device_memcpy_read_ce": (What.PEER_COPY, GB), "device_to_device_memcpy_write_ce": (What.PEER_COPY, GB),
    "host_to_device_memcpy_sm": (What.HOST_LOADING, GB), "device_to_host_memcpy_sm": (What.HOST_STORE, GB),
    "device_to_device_memcpy_read_sm": (What.PEER_LOADING, GB),
    "device_to_device_memcpy_write_sm": (What.PEER_STORE, GB),
    "host_device_latency_sm": (What.HOST_LOAD, NS), "device_to_device_latency_sm": (What.PEER_LOAD, NS),
}  # fmt: skip
_RUNNING: Final = re.compile(r"^Running (\w+)\.\s*$", re.MULTILINE)
_MATRIX_ROW: Final = re.compile(r"^\s*(\d+)((?:\s+(?:[\d.]+|N/A))+)\s*$")
_STAGGER: Final = re.compile(r"^\s*\+(\d+)\s+([\d.]+)")
_REDUCE_ROW: Final = re.compile(r"^\s*([\d.]+\s*(?:[KMG]i?)?B)\s+([\d.]+)(?:\s*us)?\s+([\d.]+)(?:\s*us)?")
_PUSH_OR_PULL: Final = "oneshot-pull"  # p2pmark's own kernel loads from its peers


def is_bandwidth_test(text: str) -> bool:
    """Whether it is NVIDIA's p2pBandwidthLatencyTest."""
    return _CUDA_SAMPLE.search(text) is not None


def is_nvbandwidth(text: str) -> bool:
    """Whether it is NVIDIA's nvbandwidth, as text or JSON."""
    return "nvbandwidth" in text[:400].lower() and ("testcases" in text or _RUNNING.search(text) is not None)


def is_p2pmark(text: str) -> bool:
    """Whether it is p2pmark."""
    return "p2pmark" in text.lower() or ("INTERCONNECT SCORE" in text and "LINK SCORE" in text)


def read_bandwidth_test(path: Path, text: str, _context: ImportContext) -> Run:
    """The matrix of one-way copies with P2P."""
    match = _CUDA_SAMPLE.search(text)
    assert match is not None
    matrix = _matrix(text[match.end() :].splitlines()[1:])
    if not matrix:
        raise InputError("the matrix of one-way bandwidths is empty", where=str(path))
    readings = [
        _reading(What.PEER_COPY, (row, column), value * GB, path)
        for (row, column), value in matrix.items()
        if row != column
    ]
    note = f"{path.name}: its latencies are those of issuing a copy, not of seeing it; not used"
    return Run(name=path.name, points=(), readings=tuple(readings), notes=(note,) if "Latency" in text else ())


def read_nvbandwidth(path: Path, text: str, _context: ImportContext) -> Run:
    """Every test that is one flow at a time; the others are named in a note."""
    tests = _nvbandwidth_json(path, text) if text.lstrip().startswith("{") else _nvbandwidth_text(text)
    readings: list[Reading] = []
    unused: list[str] = []
    for name, matrix in tests:
        if name not in _NVBANDWIDTH:
            unused.append(name)
            continue
        what, unit = _NVBANDWIDTH[name]
        for (row, column), value in matrix.items():
            if what.value.startswith("host"):
                readings.append(_reading(what, (column,), value * unit, path))
            elif row != column:
                readings.append(_reading(what, (row, column), value * unit, path))
    notes = (f"{path.name}: not used: {', '.join(unused)}",) if unused else ()
    return Run(name=path.name, points=(), readings=tuple(readings), notes=notes)


def read_p2pmark(path: Path, text: str, context: ImportContext) -> Run:
    """The matrix of remote loads and the table of all-reduces; rows by distance are noted."""
    readings: list[Reading] = []
    points: list[Point] = []
    notes: list[str] = []
    matrix = _latency_matrix(text)
    gpus = 1 + max((index for pair in matrix for index in pair), default=-1)
    readings += [
        _reading(What.PEER_LOAD, pair, value * US, path) for pair, value in matrix.items() if pair[0] != pair[1]
    ]
    for line in text.splitlines():
        if match := _STAGGER.match(line):
            notes.append(f"{path.name}: {match[2]} GB/s a flow at distance {match[1]} (equal volumes to completion)")
        elif gpus > 1 and (match := _REDUCE_ROW.match(line)):
            nbytes = int(parse_bytes(match[1], where=str(path)))
            for algorithm, microseconds in ((_PUSH_OR_PULL, match[2]), ("nccl", match[3])):
                points.append(
                    Point(
                        dataset=f"{path.stem}/{algorithm}", topology=context.topology, nccl=context.nccl,
                        gpus=context.group(gpus), algorithm=algorithm, kind=CollectiveKind.ALL_REDUCE, nbytes=nbytes,
                        latency=float(microseconds) * US, fitted=True, source=path.name,
                    )
                )  # fmt: skip
    return Run(name=path.name, points=tuple(points), readings=tuple(readings), notes=tuple(notes))


def _latency_matrix(text: str) -> dict[tuple[int, int], float]:
    """The matrix after the first heading that speaks of latency."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if "latency" in line.lower()), len(lines))
    return _matrix(lines[start + 1 :])


def _matrix(lines: Sequence[str]) -> dict[tuple[int, int], float]:
    """The first matrix with numbered rows: ``(row, column)`` to value, without N/A."""
    found: dict[tuple[int, int], float] = {}
    for line in lines:
        match = _MATRIX_ROW.match(line)
        if match is None or (int(match[1]) == 0 and match[2].split()[:1] == ["1"]):  # a heading of column numbers
            if found:
                break
            continue
        for column, value in enumerate(match[2].split()):
            if value != "N/A":
                found[int(match[1]), column] = float(value)
    return found


def _nvbandwidth_text(text: str) -> Iterator[tuple[str, dict[tuple[int, int], float]]]:
    starts = list(_RUNNING.finditer(text))
    for match, after in zip(starts, [*starts[1:], None], strict=True):
        section = text[match.end() : after.start() if after else len(text)]
        yield match[1], _matrix(section.splitlines())


def _nvbandwidth_json(path: Path, text: str) -> Iterator[tuple[str, dict[tuple[int, int], float]]]:
    try:
        cases = json.loads(text)["nvbandwidth"]["testcases"]
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}") from None
    except (KeyError, TypeError):
        raise InputError("has no nvbandwidth.testcases", where=str(path)) from None
    for case in cases:
        rows = case.get("bandwidth_matrix") or case.get("latency_matrix") or []
        yield (
            case["name"],
            {
                (row, column): float(value)
                for row, values in enumerate(rows)
                for column, value in enumerate(values)
                if value != "N/A"
            },
        )


def _reading(what: What, gpus: tuple[int, ...], value: float, path: Path) -> Reading:
    return Reading(what=what, gpus=gpus, value=value, low=value, high=value, source=path.name)
