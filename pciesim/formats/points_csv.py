"""Measured collectives as CSV: one row a point, its source in the row."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from pciesim.calibrate.points import Point
from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import read_text
from pciesim.schedule import CollectiveKind
from pciesim.units import US

__all__ = ["read_points"]

_COLUMNS: Final = ("dataset", "topology", "nccl", "gpus", "algorithm", "kind", "bytes", "latency_us", "use", "source")
_USES: Final = ("fit", "check", "excluded")


def read_points(path: Path) -> tuple[Point, ...]:
    """The points of a file, without the excluded ones. Raises InputError with the line on any fault."""
    rows = csv.DictReader(read_text(path).splitlines())
    if tuple(rows.fieldnames or ()) != _COLUMNS:
        raise InputError(f"expected the columns {','.join(_COLUMNS)}", where=f"{path}:1")
    points = [_point(row, f"{path}:{number}") for number, row in enumerate(rows, start=2) if row["use"] != "excluded"]
    return tuple(points)


def _point(row: dict[str, str], where: str) -> Point:
    if row["use"] not in _USES:
        raise UnknownName("use", row["use"], _USES, where=where)
    if row["kind"] not in list(CollectiveKind):
        raise UnknownName("collective", row["kind"], list(CollectiveKind), where=where)
    try:
        first, _, last = row["gpus"].partition("-")
        gpus = tuple(range(int(first), int(last or first) + 1))
        nbytes, latency = int(row["bytes"]), float(row["latency_us"]) * US
    except ValueError as error:
        raise InputError(f"not a number: {error}", where=where) from None
    if not latency > 0:
        raise InputError("latency_us must be positive", where=where)
    return Point(
        dataset=row["dataset"],
        topology=row["topology"],
        nccl=_variables(row["nccl"], where),
        gpus=gpus,
        algorithm=row["algorithm"],
        kind=CollectiveKind(row["kind"]),
        nbytes=nbytes,
        latency=latency,
        fitted=row["use"] == "fit",
        source=row["source"],
    )


def _variables(text: str, where: str) -> tuple[tuple[str, str], ...]:
    """``A=1;B=2`` -> pairs."""
    pairs = [each.partition("=") for each in text.split(";") if each]
    if any(not equals for _, equals, _ in pairs):
        raise InputError(f"'{text}' is not KEY=VALUE;KEY=VALUE", where=where)
    return tuple((key, value) for key, _, value in pairs)
