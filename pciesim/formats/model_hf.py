"""Published Hugging Face ``config.json`` to a model."""

from __future__ import annotations

from pathlib import Path

from pciesim.errors import InputError
from pciesim.model import ModelSpec

__all__ = ["read_hf_model"]


def read_hf_model(path: Path) -> ModelSpec:
    """Not yet."""
    raise InputError("config.json cannot be read yet; write a model file", where=str(path))
