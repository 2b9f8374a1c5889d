"""Every op of a predicted step as a file: JSON (schema ``pciesim/layers/1``) or CSV, one row an op in issue order."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Final

from pciesim.errors import InputError
from pciesim.prediction import OpLine, Prediction

__all__ = ["SCHEMA", "layers_csv", "layers_json", "write_layers"]

SCHEMA: Final = "pciesim/layers/1"
_DIGITS: Final = 9


def write_layers(prediction: Prediction, path: Path) -> None:
    """Writes the ops in the format of the ending. Raises InputError for another ending or an unwritable file."""
    formats = {".json": layers_json, ".csv": layers_csv}
    if path.suffix not in formats:
        raise InputError(f"--layers-out writes .json or .csv, not '{path.suffix or path.name}'", where=str(path))
    try:
        path.write_text(formats[path.suffix](prediction), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None


def layers_json(prediction: Prediction) -> str:
    """The ops as JSON text."""
    rows = [_row(line) for line in prediction.ops]
    return json.dumps({"schema": SCHEMA, "ops": rows}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def layers_csv(prediction: Prediction) -> str:
    """The ops as CSV text, with a header."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for line in prediction.ops:
        row = _row(line)
        if writer is None:
            writer = csv.DictWriter(out, fieldnames=list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    return out.getvalue()


def _row(line: OpLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "category": str(line.category),
        "kind": str(line.kind),
        "stage": line.stage,
        "stream": line.stream,
        "group": line.group,
        "ranks": line.ranks,
        "bytes": _rounded(line.nbytes),
        "flop": _rounded(line.flop),
        "start_s": _rounded(line.start),
        "duration_s": _rounded(line.duration),
        "source": str(line.source),
        "detail": line.detail,
    }


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")
