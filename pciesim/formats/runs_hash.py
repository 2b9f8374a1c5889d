"""Hashes of measured files: what a profile remembers of the runs it was made from."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pciesim.errors import InputError

__all__ = ["file_hash"]


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises InputError when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
