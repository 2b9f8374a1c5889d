"""A model file as text: what ``pciesim model import`` writes and people then edit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pciesim.formats.model_yaml import ModelDocument

__all__ = ["write_model"]

_WIDTH: Final = 118
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_ ./+()-]*[A-Za-z0-9_)]|[A-Za-z_]")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def write_model(document: ModelDocument) -> str:
    """YAML that reads back as the same document. Values that are defaults are left out."""
    data = document.model_dump(by_alias=True, mode="json", exclude_defaults=True)
    lines = ["schema: pciesim/model/1"]
    for key in ("name", "source", "notes", "hidden", "vocabulary", "tied_embeddings", "post_norms", "streams"):
        if key in data:
            lines.append(f"{key}: {_scalar(data[key])}")
    if "vision_parameters" in data:
        lines.append(f"vision_parameters: {_scalar(data['vision_parameters'])}")
    if data.get("precision"):
        lines += _flow("precision: ", data["precision"], indent=2)
    lines.append("blocks:")
    for name, block in data["blocks"].items():
        own = {key: value for key, value in block.items() if key != "precision"}
        lines += _flow(
            f"  {name}: ", own | {"precision": block["precision"]} if "precision" in block else own, indent=4
        )
    lines.append("layers:")
    for run in data["layers"]:
        lines += _flow("  - ", {"repeat": run.get("repeat", 1), "pattern": run["pattern"]}, indent=4)
    if document.mtp is not None:
        lines += _flow("mtp: ", {key: value for key, value in data["mtp"].items() if value != {}}, indent=2)
    return "\n".join(lines) + "\n"


def _flow(head: str, mapping: Mapping[str, Any], *, indent: int) -> list[str]:
    """``head{key: value, ...}``, broken after commas where it is longer than a line."""
    line, lines = "", []
    for part in (head + _inline(mapping)).replace(", ", ",\0").split("\0"):
        if len(line) + len(part) + 1 > _WIDTH:
            lines.append(line)
            line = " " * indent + part
        else:
            line = f"{line} {part}" if line else part
    return [*lines, line]


def _inline(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_inline(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_items(value)) + "]"
        case _:
            return _scalar(value)


def _items(values: Iterable[Any]) -> list[str]:
    return [_inline(value) for value in values]


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
