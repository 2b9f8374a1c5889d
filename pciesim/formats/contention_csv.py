"""Published copy tests as CSV: flows, what was timed, the figure, and what it is used for."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from pciesim.calibrate.contention import CONSTANTS, FlowRow
from pciesim.errors import InputError, UnknownName
from pciesim.flows import Metric
from pciesim.formats.documents import read_text
from pciesim.units import GB

__all__ = ["read_flow_rows"]

_COLUMNS: Final = (
    "box", "topology", "overlay", "variant", "flows", "metric", "low_GB_per_s", "high_GB_per_s", "use", "collapse",
    "note",
)  # fmt: skip
_VARIANTS: Final = ("", "acs", "p2p_off")
_USES: Final = ("check", "odd", "above line rate", "contradicted", "chosen by", "fit acs_redirect")


def read_flow_rows(path: Path) -> tuple[FlowRow, ...]:
    """All rows. Raises InputError with the line on any fault."""
    table = csv.DictReader(read_text(path).splitlines())
    if tuple(table.fieldnames or ()) != _COLUMNS:
        raise InputError(f"expected the columns {','.join(_COLUMNS)}", where=f"{path}:1")
    return tuple(_row(row, f"{path}:{number}") for number, row in enumerate(table, start=2))


def _row(row: dict[str, str], where: str) -> FlowRow:
    if None in row or None in row.values():
        raise InputError(f"expected {len(_COLUMNS)} columns", where=where)
    uses = [*_USES, *(f"fit {name}" for name in CONSTANTS)]
    for kind, valid in (("metric", list(Metric)), ("variant", _VARIANTS), ("use", uses), ("collapse", ("", "yes"))):
        if row[kind] not in valid:
            raise UnknownName(kind, row[kind], valid, where=where)
    try:
        low, high = (float(row[key]) * GB for key in ("low_GB_per_s", "high_GB_per_s"))
    except ValueError as error:
        raise InputError(f"not a number: {error}", where=where) from None
    if not 0 < low <= high:
        raise InputError("expected 0 < low_GB_per_s <= high_GB_per_s", where=where)
    return FlowRow(
        box=row["box"],
        topology=row["topology"],
        overlay=row["overlay"],
        variant=row["variant"],
        flows=row["flows"],
        metric=Metric(row["metric"]),
        low=low,
        high=high,
        use=row["use"],
        collapse=row["collapse"] == "yes",
        note=row["note"],
    )
