"""The table of formats in which measurements come, and which of them a file is.

A format looks at the first bytes of a file and says whether it is its own; the first that does reads it. A folder is
either one of ``pciesim measure`` or a heap of files, each read by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pciesim.calibrate.readings import Run
from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.formats.points_csv import POINT_COLUMNS, read_points
from pciesim.formats.runs_context import ImportContext
from pciesim.formats.runs_csv import is_curve, read_curve_points
from pciesim.formats.runs_hash import file_hash
from pciesim.formats.runs_measure import is_measure_folder, read_measure_folder
from pciesim.formats.runs_nccl_tests import is_nccl_tests_json, is_nccl_tests_text, read_nccl_json, read_nccl_text
from pciesim.formats.runs_p2p import (
    is_bandwidth_test,
    is_nvbandwidth,
    is_p2pmark,
    read_bandwidth_test,
    read_nvbandwidth,
    read_p2pmark,
)

__all__ = ["RUN_FORMATS", "RunFormat", "import_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFormat:
    """``is_mine`` looks at a text; ``read`` gives what it says, or raises InputError with file and line."""

    title: str
    is_mine: Callable[[str], bool]
    read: Callable[[Path, str, ImportContext], Run]


def _read_points(path: Path, _text: str, _context: ImportContext) -> Run:
    return Run(name=path.name, points=read_points(path))


RUN_FORMATS: Final[Mapping[str, RunFormat]] = {
    "points": RunFormat(
        title="CSV of points (calibration/runs)",
        is_mine=lambda text: text.startswith(",".join(POINT_COLUMNS)),
        read=_read_points,
    ),
    "nccl-tests-json": RunFormat(title="nccl-tests -J", is_mine=is_nccl_tests_json, read=read_nccl_json),
    "nccl-tests": RunFormat(title="nccl-tests text", is_mine=is_nccl_tests_text, read=read_nccl_text),
    "nvbandwidth": RunFormat(title="nvbandwidth", is_mine=is_nvbandwidth, read=read_nvbandwidth),
    "p2pbandwidthlatencytest": RunFormat(
        title="p2pBandwidthLatencyTest", is_mine=is_bandwidth_test, read=read_bandwidth_test
    ),
    "p2pmark": RunFormat(title="p2pmark", is_mine=is_p2pmark, read=read_p2pmark),
    "curve": RunFormat(title="CSV of sizes and latencies with units", is_mine=is_curve, read=read_curve_points),
}


def import_runs(path: Path, context: ImportContext) -> Run:
    """What a folder or file says. Raises InputError when no format knows it, or on any fault in it."""
    if path.is_dir():
        if is_measure_folder(path):
            return read_measure_folder(path, context.topology)
        files = sorted(each for each in path.iterdir() if each.suffix in {".txt", ".json", ".csv", ".log", ".out"})
        runs = [import_runs(each, context) for each in files if _format(read_text(each)) is not None]
        if not runs:
            raise InputError(f"holds no measurements in a known format ({_titles()})", where=str(path))
        return Run(
            name=path.name,
            points=tuple(point for run in runs for point in run.points),
            readings=tuple(reading for run in runs for reading in run.readings),
            hashes=tuple(pair for run in runs for pair in run.hashes),
            notes=tuple(note for run in runs for note in run.notes),
        )
    text = read_text(path)
    found = _format(text)
    if found is None:
        raise InputError(f"is no measurement in a known format ({_titles()})", where=str(path))
    return replace(found.read(path, text, context), hashes=((path.name, file_hash(path)),))


def _format(text: str) -> RunFormat | None:
    return next((each for each in RUN_FORMATS.values() if each.is_mine(text)), None)


def _titles() -> str:
    return "a folder of pciesim measure, " + ", ".join(each.title for each in RUN_FORMATS.values())
