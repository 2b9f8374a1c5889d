"""Published times to the first token as CSV: one row a prompt, its source in the row."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import read_text
from pciesim.units import Seconds

__all__ = ["PromptPoint", "read_prompts"]

COLUMNS: Final = ("dataset", "topology", "nccl", "model", "engine", "tp", "prompt", "ttft_s", "use", "source")
_USES: Final = ("check", "excluded")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPoint:
    """``prompt`` tokens of one user, nothing cached, and the seconds to the first token. ``nccl`` are variables."""

    dataset: str
    topology: str
    nccl: tuple[tuple[str, str], ...]
    model: str
    engine: str
    tp: int
    prompt: int
    first_token: Seconds
    scored: bool
    source: str


def read_prompts(path: Path) -> tuple[PromptPoint, ...]:
    """Every row, the excluded ones too. Raises InputError with the line on any fault."""
    rows = csv.DictReader(read_text(path).splitlines())
    if tuple(rows.fieldnames or ()) != COLUMNS:
        raise InputError(f"expected the columns {','.join(COLUMNS)}", where=f"{path}:1")
    return tuple(_point(row, f"{path}:{number}") for number, row in enumerate(rows, start=2))


def _point(row: dict[str, str], where: str) -> PromptPoint:
    if None in row or None in row.values():
        raise InputError(f"expected {len(COLUMNS)} columns", where=where)
    if row["use"] not in _USES:
        raise UnknownName("use", row["use"], _USES, where=where)
    variables = [each.partition("=") for each in row["nccl"].split(";") if each]
    try:
        return PromptPoint(
            dataset=row["dataset"], topology=row["topology"], nccl=tuple((name, value) for name, _, value in variables),
            model=row["model"], engine=row["engine"], tp=int(row["tp"]), prompt=int(row["prompt"]),
            first_token=float(row["ttft_s"]), scored=row["use"] == "check", source=row["source"],
        )  # fmt: skip
    except ValueError as error:
        raise InputError(f"not a number: {error}", where=where) from None
