"""Measured latencies as curves: one axis to interpolate along, every other column an exact key.

A :class:`CurveTable` is one file of ``calibration/kernels``; a :class:`KernelTables` is the folder of one GPU. Both are
lazy, because one prediction needs a few dozen of several thousand rows: a file is read at its first lookup, a row's
numbers are parsed at its first use. How a file is read is not known here (``formats.kernel_tables``).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pciesim.hardware import GpuType
from pciesim.kernels.constants import KernelConstants
from pciesim.units import US, Seconds

__all__ = ["Curve", "CurveTable", "Donor", "KernelTables", "Key", "log_between"]

Key = tuple[str, ...]


def log_between(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    """The power law through two points, at x. All arguments positive."""
    if x0 == x1:
        return y0
    weight = math.log(x / x0) / math.log(x1 / x0)
    return math.exp((1 - weight) * math.log(y0) + weight * math.log(y1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Latency (s) over increasing points of one axis."""

    points: tuple[float, ...]
    seconds: tuple[Seconds, ...]

    def covers(self, point: float) -> bool:
        """Whether the point lies between the first and the last row."""
        return self.points[0] <= point <= self.points[-1]

    def measured(self, point: float) -> bool:
        """Whether there is a row exactly here."""
        index = bisect_left(self.points, point)
        return index < len(self.points) and self.points[index] == point

    def around(self, point: float) -> tuple[tuple[float, Seconds], tuple[float, Seconds]]:
        """The rows on both sides; the same one twice where the point is a row or lies outside."""
        index = bisect_left(self.points, point)
        above = min(index, len(self.points) - 1)
        outside = index in (0, len(self.points))
        below = above if outside or self.points[above] == point else index - 1
        return (self.points[below], self.seconds[below]), (self.points[above], self.seconds[above])

    def at(self, point: float) -> Seconds:
        """Interpolated as a power law between neighbours; the end value outside."""
        (x0, y0), (x1, y1) = self.around(point)
        return log_between(point, x0, y0, x1, y1)


@dataclass(slots=True, kw_only=True)
class CurveTable:
    """Rows of one file. ``lines`` maps a row's key (as written) to its cells (as written), microseconds by point."""

    name: str
    columns: tuple[str, ...]
    axis: str
    points: tuple[float, ...]
    lines: Mapping[Key, str]
    _curves: dict[Key, Curve] = field(default_factory=dict, repr=False)
    _values: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def curve(self, *key: int | str) -> Curve | None:
        """The curve of one key, or None where nothing was measured."""
        text = tuple(map(str, key))
        found = self._curves.get(text)
        if found is None and (line := self.lines.get(text)) is not None:
            cells = [(x, float(cell) * US) for x, cell in zip(self.points, line.split(","), strict=True) if cell]
            found = Curve(points=tuple(x for x, _ in cells), seconds=tuple(y for _, y in cells))
            self._curves[text] = found
        return found

    def values(self, column: int) -> tuple[int, ...]:
        """The distinct whole numbers of a key column, increasing."""
        if column not in self._values:
            self._values[column] = tuple(sorted({int(key[column]) for key in self.lines}))
        return self._values[column]

    def without(self, keys: Iterable[Key]) -> CurveTable:
        """The same table with some rows held out."""
        dropped = frozenset(keys)
        return CurveTable(
            name=self.name,
            columns=self.columns,
            axis=self.axis,
            points=self.points,
            lines={key: line for key, line in self.lines.items() if key not in dropped},
        )


@dataclass(slots=True, kw_only=True)
class KernelTables:
    """All that was measured on one GPU. ``names`` are its files without ending (``gemm/bf16``), sorted."""

    gpu: str
    names: tuple[str, ...]
    read_table: Callable[[str], CurveTable]
    read_constants: Callable[[], KernelConstants]
    _tables: dict[str, CurveTable] = field(default_factory=dict, repr=False)
    _constants: KernelConstants | None = field(default=None, repr=False)

    def table(self, name: str) -> CurveTable | None:
        """One file, read at the first call, or None where there is no such file."""
        if name not in self._tables:
            if name not in self.names:
                return None
            self._tables[name] = self.read_table(name)
        return self._tables[name]

    @property
    def constants(self) -> KernelConstants:
        """Achieved rates, launch floors and small kernels, read at the first use."""
        if self._constants is None:
            self._constants = self.read_constants()
        return self._constants

    def replaced(self, table: CurveTable) -> KernelTables:
        """The same tables with one of them exchanged (for held-out checks)."""
        copy = KernelTables(
            gpu=self.gpu, names=self.names, read_table=self.read_table, read_constants=self.read_constants
        )
        copy._tables = {**self._tables, table.name: table}
        copy._constants = self._constants
        return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Donor:
    """A GPU with measured kernels, which answers for itself or lends its times to another."""

    gpu: GpuType
    tables: KernelTables

    @property
    def constants(self) -> KernelConstants:
        """What its kernels achieve."""
        return self.tables.constants
