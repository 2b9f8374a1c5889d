"""Measured collectives and decode steps as CSV: one row a point, its source in the row."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from pciesim.calibrate.points import Point
from pciesim.calibrate.steps import IterationPoint, StepPoint
from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import read_text
from pciesim.schedule import CollectiveKind
from pciesim.units import US

__all__ = ["POINT_COLUMNS", "points_text", "read_iterations", "read_points", "read_steps"]

POINT_COLUMNS: Final = (
    "dataset",
    "topology",
    "nccl",
    "gpus",
    "algorithm",
    "kind",
    "bytes",
    "latency_us",
    "use",
    "source",
)
_STEP: Final = ("dataset", "topology", "nccl", "gpus", "model", "engine", "allreduce", "batch", "context",
                "tokens_per_s_user", "use", "source")  # fmt: skip
_ITERATION: Final = (*_STEP[:9], "drafts", "tokens_per_iteration", *_STEP[9:])
_USES: Final = ("fit", "check", "excluded")

T = TypeVar("T")


def read_points(path: Path) -> tuple[Point, ...]:
    """Collectives, without the excluded ones. Raises InputError with the line on any fault."""
    return _read(path, POINT_COLUMNS, _point)


def read_steps(path: Path) -> tuple[StepPoint, ...]:
    """Decode steps, without the excluded ones. Raises InputError with the line on any fault."""
    return _read(path, _STEP, _step)


def read_iterations(path: Path) -> tuple[IterationPoint, ...]:
    """Decode iterations with drafts, without the excluded ones. Raises InputError with the line on any fault."""
    return _read(path, _ITERATION, _iteration)


def _read(path: Path, columns: tuple[str, ...], parse: Callable[[dict[str, str], str], T]) -> tuple[T, ...]:
    rows = csv.DictReader(read_text(path).splitlines())
    if tuple(rows.fieldnames or ()) != columns:
        raise InputError(f"expected the columns {','.join(columns)}", where=f"{path}:1")
    found: list[T] = []
    for number, row in enumerate(rows, start=2):
        where = f"{path}:{number}"
        if None in row or None in row.values():
            raise InputError(f"expected {len(columns)} columns", where=where)
        if row["use"] not in _USES:
            raise UnknownName("use", row["use"], _USES, where=where)
        if row["use"] == "excluded":
            continue
        try:
            found.append(parse(row, where))
        except ValueError as error:
            raise InputError(f"not a number: {error}", where=where) from None
    return tuple(found)


def _point(row: dict[str, str], where: str) -> Point:
    if row["kind"] not in list(CollectiveKind):
        raise UnknownName("collective", row["kind"], list(CollectiveKind), where=where)
    return Point(
        dataset=row["dataset"],
        topology=row["topology"],
        nccl=_variables(row["nccl"], where),
        gpus=_gpus(row["gpus"]),
        algorithm=row["algorithm"],
        kind=CollectiveKind(row["kind"]),
        nbytes=int(row["bytes"]),
        latency=_positive(row, "latency_us", where) * US,
        fitted=row["use"] == "fit",
        source=row["source"],
    )


def _step(row: dict[str, str], where: str) -> StepPoint:
    return StepPoint(
        dataset=row["dataset"],
        topology=row["topology"],
        nccl=_variables(row["nccl"], where),
        gpus=_gpus(row["gpus"]),
        model=row["model"],
        engine=row["engine"],
        allreduce=row["allreduce"],
        batch=int(row["batch"]),
        context=int(row["context"]),
        tokens_per_second=_positive(row, "tokens_per_s_user", where),
        fitted=row["use"] == "fit",
        source=row["source"],
    )


def _iteration(row: dict[str, str], where: str) -> IterationPoint:
    return IterationPoint(
        step=_step(row, where), drafts=int(row["drafts"]), tokens=_positive(row, "tokens_per_iteration", where)
    )


def _positive(row: dict[str, str], column: str, where: str) -> float:
    value = float(row[column])
    if not value > 0:
        raise InputError(f"{column} must be positive, found {row[column]}", where=where)
    return value


def _gpus(text: str) -> tuple[int, ...]:
    """``0-3``, ``2`` or ``0 2 5``."""
    if " " in text:
        return tuple(int(each) for each in text.split())
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last or first) + 1))


def _variables(text: str, where: str) -> tuple[tuple[str, str], ...]:
    """``A=1;B=2`` -> pairs."""
    pairs = [each.partition("=") for each in text.split(";") if each]
    if any(not equals for _, equals, _ in pairs):
        raise InputError(f"'{text}' is not KEY=VALUE;KEY=VALUE", where=where)
    return tuple((key, value) for key, _, value in pairs)


def points_text(points: Iterable[Point], use: Callable[[Point], str]) -> str:
    """The CSV of some points; ``use`` says fit, check or excluded of each."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(POINT_COLUMNS)
    for point in points:
        variables = ";".join(f"{name}={value}" for name, value in point.nccl)
        gpus = (
            "-".join(map(str, (point.gpus[0], point.gpus[-1])))
            if _is_range(point.gpus)
            else " ".join(map(str, point.gpus))
        )
        rows.writerow([point.dataset, point.topology, variables, gpus, point.algorithm, str(point.kind), point.nbytes,
                       f"{point.latency / US:.5g}", use(point), point.source])  # fmt: skip
    return out.getvalue()


def _is_range(gpus: tuple[int, ...]) -> bool:
    return len(gpus) > 1 and gpus == tuple(range(gpus[0], gpus[-1] + 1))
