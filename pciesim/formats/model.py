"""A model from whatever file describes it."""

from __future__ import annotations

from pathlib import Path

from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.model import ModelSpec

__all__ = ["load_model"]


def load_model(path: Path) -> ModelSpec:
    """The model of a pciesim model file (YAML), a published ``config.json``, or a folder that holds one.

    Told apart by content. Raises InputError (file:line:column where it can) on any fault.
    """
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError("is a folder without config.json", where=str(path))
        path = path / "config.json"
    text = read_text(path)
    if text.lstrip().startswith("{") and '"model_type"' in text:
        from pciesim.formats.model_hf import read_hf_model  # noqa: PLC0415  (most runs read YAML)

        return read_hf_model(path)
    from pciesim.formats.model_yaml import parse_model  # noqa: PLC0415

    return parse_model(text, source=str(path))
