"""nccl-tests output: the table of its text, and the JSON of ``-J``.

Its ``size`` counts what NVIDIA's documentation counts: for an all-gather the gathered tensor, of which a rank passes in
one n-th. Out-of-place times are taken; the JSON's median where it has one, else the mean (the text has no other).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pciesim.calibrate.points import Point
from pciesim.calibrate.readings import Run
from pciesim.errors import InputError
from pciesim.formats.runs_context import ImportContext
from pciesim.schedule import CollectiveKind
from pciesim.units import US

__all__ = ["is_nccl_tests_json", "is_nccl_tests_text", "read_nccl_json", "read_nccl_text"]

PROGRAMS: Final = {
    "all_reduce_perf": CollectiveKind.ALL_REDUCE, "all_gather_perf": CollectiveKind.ALL_GATHER,
    "reduce_scatter_perf": CollectiveKind.REDUCE_SCATTER, "alltoall_perf": CollectiveKind.ALL_TO_ALL,
    "broadcast_perf": CollectiveKind.BROADCAST, "sendrecv_perf": CollectiveKind.SEND_RECV,
}  # fmt: skip
_PROGRAM: Final = re.compile("|".join(PROGRAMS))
_RANK: Final = re.compile(r"^#\s+Rank\s+(\d+)\b", re.MULTILINE)
_ROW: Final = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+(\w+)\s+-?\d+\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)")
_HEADER: Final = re.compile(r"^#\s+size\s+count\s+type\s+redop\s+root\s+time\s+algbw\s+busbw", re.MULTILINE)
_TIMES: Final = ("p50_us", "median_us", "time_us", "avg_us", "time")  # in the JSON, the best first


def is_nccl_tests_text(text: str) -> bool:
    """Whether a text has the table of nccl-tests."""
    return _HEADER.search(text) is not None


def is_nccl_tests_json(text: str) -> bool:
    """Whether a text is JSON with the rows of nccl-tests."""
    return text.lstrip().startswith("{") and '"out_of_place"' in text


def read_nccl_text(path: Path, text: str, context: ImportContext) -> Run:
    """The rows of the table. Raises InputError where the file does not say over how many GPUs or what it ran."""
    count = len(set(_RANK.findall(text)))
    if count < 2:
        raise InputError("does not list its ranks (the lines '#  Rank  0 ...' of nccl-tests)", where=str(path))
    rows: list[tuple[int, float, float, float]] = []
    notes: list[str] = []
    reduces = False
    for number, line in enumerate(text.splitlines(), start=1):
        match = _ROW.match(line)
        if match is None:
            continue
        try:
            rows.append((int(match[1]), float(match[3]), float(match[4]), float(match[5])))
        except ValueError:
            raise InputError(f"'{line.strip()}' is not a row of nccl-tests", where=f"{path}:{number}") from None
        reduces = reduces or match[2] not in {"none", "-1"}
        if match[6] not in {"0", "N/A", "0e+00"}:
            notes.append(f"{path.name}:{number}: {match[6]} wrong results at {match[1]} bytes")
    kind = _kind(path, text, rows, count, reduces=reduces)
    points = _points(path, context, kind, count, [(size, time) for size, time, *_ in rows])
    return Run(name=path.name, points=tuple(points), notes=tuple(notes))


def read_nccl_json(path: Path, text: str, context: ImportContext) -> Run:
    """The results of the JSON."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}") from None
    results = list(_results(document))
    devices = document.get("devices") or document.get("ranks") or []
    count = len(devices) if isinstance(devices, list) else int(devices)
    config = document.get("config", {})
    if not count and isinstance(config, dict):
        count = int(config.get("nranks") or config.get("ngpus") or 0)
    if count < 2:
        raise InputError("does not list its devices ('devices' of nccl-tests -J)", where=str(path))
    rows: list[tuple[int, float]] = []
    notes: list[str] = []
    for row in results:
        found = next((row["out_of_place"][key] for key in _TIMES if key in row["out_of_place"]), None)
        if found is None:
            raise InputError(f"a result has none of the times {', '.join(_TIMES)}", where=str(path))
        rows.append((int(row["size"]), float(found)))
        wrong = row["out_of_place"].get("nwrong", row["out_of_place"].get("wrong", 0))
        if wrong not in (0, "0", "N/A", None, -1):
            notes.append(f"{path.name}: {wrong} wrong results at {row['size']} bytes")
    match = _PROGRAM.search(text) or _PROGRAM.search(path.name)
    if match is None:
        raise InputError("does not say which collective it ran; name the file like all_reduce_perf.json",
                         where=str(path))  # fmt: skip
    return Run(name=path.name, points=tuple(_points(path, context, PROGRAMS[match[0]], count, rows)),
               notes=tuple(notes))  # fmt: skip


def _results(node: Any) -> Iterator[dict[str, Any]]:
    """Every object with a size and an ``out_of_place`` part, wherever it stands."""
    if isinstance(node, dict):
        if "size" in node and isinstance(node.get("out_of_place"), dict):
            yield node
        else:
            for child in node.values():
                yield from _results(child)
    elif isinstance(node, list):
        for child in node:
            yield from _results(child)


def _kind(
    path: Path, text: str, rows: list[tuple[int, float, float, float]], count: int, *, reduces: bool
) -> CollectiveKind:  # fmt: skip
    """By the program's name in the text or the file's, else by what reduces and the ratio of its two bandwidths."""
    if match := _PROGRAM.search(text) or _PROGRAM.search(path.name):
        return PROGRAMS[match[0]]
    large = [(algorithm, bus) for _, _, algorithm, bus in rows if algorithm > 0.1]
    if not reduces or not large:
        raise InputError("does not say which collective it ran; name the file like all_gather_perf.txt",
                         where=str(path))  # fmt: skip
    ratio = large[-1][1] / large[-1][0]
    return CollectiveKind.ALL_REDUCE if ratio > 1.5 * (count - 1) / count else CollectiveKind.REDUCE_SCATTER


def _points(
    path: Path, context: ImportContext, kind: CollectiveKind, count: int, rows: Iterable[tuple[int, float]]
) -> Iterator[Point]:  # fmt: skip
    for size, microseconds in rows:
        nbytes = size // count if kind is CollectiveKind.ALL_GATHER else size
        if nbytes <= 0 or microseconds <= 0:
            continue
        yield Point(
            dataset=path.stem, topology=context.topology, nccl=context.nccl, gpus=context.group(count),
            algorithm=context.algorithm, kind=kind, nbytes=nbytes, latency=microseconds * US, fitted=True,
            source=path.name,
        )  # fmt: skip
