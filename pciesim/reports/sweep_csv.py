"""Rows of a sweep as CSV (written as they come, so that a broken run can be resumed) or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pciesim.errors import InputError

if TYPE_CHECKING:
    from pciesim.compare.configuration import Configuration

__all__ = ["SweepWriter", "done_already", "write_parquet"]

_DIGITS: Final = 9


class SweepWriter:
    """Appends rows to a CSV file. ``axes`` and ``columns`` are its header; an existing file must have the same one."""

    __slots__ = ("_axes", "_columns", "_stream", "_writer")

    def __init__(self, path: Path, axes: Sequence[str], columns: Sequence[str]) -> None:
        fresh = not path.exists() or path.stat().st_size == 0
        if not fresh and _header(path) != [*axes, *columns]:
            raise InputError("holds another sweep: its columns differ from this one's", where=str(path))
        try:
            self._stream = path.open("a", newline="", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
        self._axes, self._columns = tuple(axes), tuple(columns)
        self._writer = csv.writer(self._stream, lineterminator="\n")
        if fresh:
            self._writer.writerow([*axes, *columns])

    def add(self, configuration: Configuration, values: Any) -> None:
        """Writes one row and flushes it."""
        chosen = dict(configuration)
        self._writer.writerow([
            *(chosen.get(axis, "") for axis in self._axes),
            *(_text(values[column]) for column in self._columns),
        ])  # fmt: skip
        self._stream.flush()

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)


def _header(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as stream:
        return next(csv.reader(stream), [])


def done_already(path: Path, axes: Sequence[str]) -> set[tuple[str, ...]]:
    """The values of the axes of every whole row in a file that a sweep was writing."""
    if not path.exists():
        return set()
    with path.open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        return {tuple(row[axis] for axis in axes) for row in rows if None not in row.values() and set(axes) <= set(row)}


def write_parquet(path: Path, axes: Sequence[str], columns: Sequence[str], rows: Iterable[tuple[Any, Any]]) -> None:
    """Writes all rows at once. Raises InputError where pyarrow is not installed."""
    try:
        import pyarrow  # noqa: PLC0415  (an optional extra)
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install pyarrow, or write a .csv file", where=str(path)) from None
    listed = list(rows)
    table: dict[str, list[Any]] = {
        axis: [dict(configuration).get(axis, "") for configuration, _ in listed] for axis in axes
    }
    table |= {column: [values[column] for _, values in listed] for column in columns}
    parquet.write_table(pyarrow.table(table), str(path))
