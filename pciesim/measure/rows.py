"""The files of a run while it grows: one JSON object a line, so that nothing is lost when something hangs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

__all__ = ["STATUS", "append", "finding", "now", "read", "states"]

STATUS: Final = "status.jsonl"  # what was started, finished, found


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a row and pushes it to the file at once."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All whole rows of a file; a line that was cut off in the middle is left out. A missing file has none."""
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def finding(out: Path, experiment: str, text: str) -> None:
    """Something about the machine that the manifest must say."""
    append(out / STATUS, {"experiment": experiment, "state": "finding", "text": text, "at": now()})


def states(out: Path) -> dict[str, str]:
    """The last state of every experiment: started, finished, failed, hung or skipped."""
    return {row["experiment"]: row["state"] for row in read(out / STATUS) if row["state"] != "finding"}


def now() -> str:
    """This moment, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
