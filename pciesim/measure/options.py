"""What a measuring run was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pciesim.units import Seconds

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``gpus`` None is all of the machine; ``only`` None is every experiment of the size; ``limit`` None is no end.

    ``commit`` names the version of the tool where the folder it runs from cannot say.
    """

    out: Path
    full: bool
    only: tuple[str, ...] | None = None
    gpus: tuple[int, ...] | None = None
    limit: Seconds | None = None
    commit: str = ""
    command: str = ""
