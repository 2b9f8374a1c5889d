"""Writing results: never half a file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pciesim.errors import InputError

__all__ = ["write_text"]


def write_text(path: Path, text: str) -> None:
    """Writes beside the target, then renames: a reader sees the old file or the new one. Raises InputError."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as beside:
            beside.write(text)
        Path(beside.name).chmod(0o644)
        Path(beside.name).replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
