"""Sizes and latencies as a CSV with units: one's own all-reduce kernel, or any curve.

Two columns, a heading, a unit in every value (``8 KiB, 6.4 us``) or in the heading (``bytes, latency_us``).
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Final

from pciesim.calibrate.points import Point
from pciesim.calibrate.readings import Run
from pciesim.collectives.curve import Curve
from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.formats.runs_context import ImportContext
from pciesim.schedule import CollectiveKind
from pciesim.units import parse_bytes, parse_seconds

__all__ = ["is_curve", "read_curve", "read_curve_points"]

_SIZE: Final = re.compile(r"^(?:bytes|size|nbytes)(?:[_ (\[]*([KMG]i?B|B)[)\]]?)?$", re.IGNORECASE)
_TIME: Final = re.compile(r"^(?:latency|time|duration)(?:[_ (\[]*(ns|us|ms|s)[)\]]?)?$", re.IGNORECASE)


def is_curve(text: str) -> bool:
    """Whether the heading names a size and a latency and nothing else."""
    heading = _cells(text.splitlines()[0]) if text.strip() else []
    return len(heading) == 2 and bool(_SIZE.match(heading[0])) and bool(_TIME.match(heading[1]))


def read_curve(path: Path) -> Curve:
    """A curve of latency by size. Raises InputError with the line on any fault."""
    lines = read_text(path).splitlines()
    heading = _cells(lines[0]) if lines else []
    size, time = (pattern.match(cell) for pattern, cell in zip((_SIZE, _TIME), [*heading, "", ""], strict=False))
    if len(heading) != 2 or size is None or time is None:
        raise InputError("expected the columns bytes,latency (units in the values) or bytes,latency_us",
                         where=f"{path}:1")  # fmt: skip
    found: dict[int, float] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = _cells(line)
        where = f"{path}:{number}"
        if len(cells) != 2:
            raise InputError(f"expected two values, found {len(cells)}", where=where)
        nbytes = int(parse_bytes(_with_unit(cells[0], size[1] or "B"), where=where))
        latency = parse_seconds(_with_unit(cells[1], time[1] or ""), where=where)
        if nbytes <= 0 or latency <= 0 or nbytes in found:
            raise InputError("sizes and latencies are positive, each size once", where=where)
        found[nbytes] = latency
    if not found:
        raise InputError("has no rows", where=str(path))
    return Curve(name=path.stem, points=tuple(sorted(found.items())))


def read_curve_points(path: Path, _text: str, context: ImportContext) -> Run:
    """A curve as points of an all-reduce over the GPUs of the context."""
    if context.gpus is None:
        raise InputError("a curve does not say over which GPUs it was measured; give --gpus", where=str(path))
    points = tuple(
        Point(
            dataset=path.stem, topology=context.topology, nccl=context.nccl, gpus=context.gpus,
            algorithm=context.algorithm, kind=CollectiveKind.ALL_REDUCE, nbytes=nbytes, latency=latency, fitted=True,
            source=path.name,
        )
        for nbytes, latency in read_curve(path).points
    )  # fmt: skip
    return Run(name=path.name, points=points)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]))]


def _with_unit(cell: str, unit: str) -> str:
    return f"{cell} {unit}" if cell.replace(".", "").replace("e", "").replace("-", "").isdigit() else cell
