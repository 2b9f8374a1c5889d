"""Reads the measured kernels of one GPU: a folder of compressed CSV files and its ``constants.yaml``.

Files are plain text split by hand: a prediction reads some hundred kilobytes of numbers and uses a few dozen, so only
the lines are cut here, and :class:`~pciesim.kernels.tables.CurveTable` parses the cells it is asked for.
"""

from __future__ import annotations

import gzip
import zlib
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from pciesim.errors import InputError, UnknownName
from pciesim.formats.catalogue import TimeQuantity
from pciesim.formats.documents import Document, read_document
from pciesim.formats.shipped import shipped_folder
from pciesim.kernels.constants import KernelConstants, SmallKernel
from pciesim.kernels.tables import CurveTable, KernelTables, Key
from pciesim.kernels.times import KernelSource

__all__ = ["load_kernel_tables", "measured_gpus", "read_curve_table", "read_kernel_constants"]

SCHEMA: Final = "pciesim/kernel-constants/1"
_ENDING: Final = ".csv.gz"
_CONSTANTS: Final = "constants.yaml"
_UNIT: Final = "us@"

Fraction = Annotated[float, Field(gt=0)]


class _Small(Document):
    value: TimeQuantity
    low: TimeQuantity
    high: TimeQuantity
    source: KernelSource
    detail: str

    def to_domain(self) -> SmallKernel:
        return SmallKernel(value=self.value, low=self.low, high=self.high, source=self.source, detail=self.detail)


class _Achieved(Document):
    launch: TimeQuantity
    bandwidth_fraction: Fraction
    flops_fraction: dict[str, Fraction]
    l2_rate: Fraction


class _Constants(Document):
    schema_: Literal["pciesim/kernel-constants/1"] = Field(alias="schema")
    l2_resident: float
    achieved: _Achieved
    gap: _Small
    small: dict[str, _Small]
    experts_cold: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)

    def to_domain(self) -> KernelConstants:
        return KernelConstants(
            bandwidth_fraction=self.achieved.bandwidth_fraction,
            flops_fraction=self.achieved.flops_fraction,
            launch=self.achieved.launch,
            l2_rate=self.achieved.l2_rate,
            l2_resident=self.l2_resident,
            gap=self.gap.to_domain(),
            small={kind: small.to_domain() for kind, small in self.small.items()},
            experts_cold=self.experts_cold,
        )


def measured_gpus(folder: Path | None = None) -> tuple[str, ...]:
    """Catalogue keys of the GPUs that have measured kernels, sorted."""
    folder = folder or shipped_folder("kernels")
    return tuple(sorted(path.parent.name for path in folder.glob(f"*/{_CONSTANTS}")))


def load_kernel_tables(gpu: str, folder: Path | None = None) -> KernelTables:
    """The measured kernels of a GPU, nothing read yet. ``folder`` holds one folder per GPU (default: the shipped one).

    Raises UnknownName when that GPU was not measured.
    """
    root = (folder or shipped_folder("kernels")) / gpu
    if not (root / _CONSTANTS).is_file():
        raise UnknownName("GPU with measured kernels", gpu, measured_gpus(folder))
    names = sorted(str(path.relative_to(root).as_posix()).removesuffix(_ENDING) for path in root.rglob(f"*{_ENDING}"))
    return KernelTables(
        gpu=gpu,
        names=tuple(names),
        read_table=partial(_read_named, root),
        read_constants=partial(read_kernel_constants, root / _CONSTANTS),
    )


def read_kernel_constants(path: Path) -> KernelConstants:
    """Achieved fractions and small kernels. Raises InputError with file, line and column on any fault."""
    return read_document(path, _Constants).to_domain()


def read_curve_table(path: Path, name: str) -> CurveTable:
    """One file: key columns, then ``us@<axis>=<point>`` columns. Raises InputError when it is not that."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode("ascii").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a compressed table: {error}", where=str(path)) from None
    header = lines[0].split(",") if lines else []
    columns = tuple(title for title in header if not title.startswith(_UNIT))
    titles = [title.removeprefix(_UNIT).split("=") for title in header[len(columns) :]]
    if not columns or not titles or any(len(title) != 2 or title[0] != titles[0][0] for title in titles):
        raise InputError("expected key columns, then 'us@<axis>=<point>' columns", where=f"{path}:1")
    keyed: dict[Key, str] = {}
    count = len(columns)
    for number, line in enumerate(lines[1:], start=2):
        *key, cells = line.split(",", count)
        if len(key) != count or cells.count(",") != len(titles) - 1:
            raise InputError(f"expected {len(header)} columns", where=f"{path}:{number}")
        keyed[tuple(key)] = cells
    return CurveTable(
        name=name,
        columns=columns,
        axis=titles[0][0],
        points=tuple(float(point) for _, point in titles),
        lines=keyed,
    )


def _read_named(root: Path, name: str) -> CurveTable:
    return read_curve_table(root / f"{name}{_ENDING}", name)
