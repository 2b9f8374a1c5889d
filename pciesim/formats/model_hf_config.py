"""The fields of a published ``config.json``: nested ``text_config``, several names for one thing, clear refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pciesim.errors import InputError
from pciesim.formats.documents import read_text

__all__ = ["Fields", "read_json"]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises InputError (file:line:column) when it is none."""
    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}") from None
    except RecursionError:
        raise InputError("not valid JSON: nested too deeply", where=str(path)) from None
    if not isinstance(data, dict):
        raise InputError(f"expected a JSON object, found a {type(data).__name__}", where=str(path))
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The language model's fields of a config: those of ``text_config`` first, then the outer ones."""

    text: Mapping[str, Any]
    outer: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, data: Mapping[str, Any], *, where: str) -> Fields:
        """The fields of a parsed config."""
        text = data.get("text_config")
        return cls(text=text if isinstance(text, dict) else data, outer=data, where=where)

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these fields that is there and not null."""
        for name in names:
            for fields in (self.text, self.outer):
                if fields.get(name) is not None:
                    return fields[name]
        return default

    def whole(self, *names: str, default: int | None = None) -> int:
        """A field that is a whole number >= 0. Raises InputError when it is missing (and has no default) or is not."""
        value = self.get(*names, default=default)
        if value is None:
            kind = self.get("model_type")
            needed = f", which model_type '{kind}' needs" if kind else ""
            raise InputError(f"field '{names[0]}' is missing{needed}", where=self.where)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"field '{names[0]}' is {value!r}, expected a whole number", where=self.where)
        return value

    def flag(self, *names: str, default: bool = False) -> bool:
        """A field that is true or false."""
        return bool(self.get(*names, default=default))

    def sequence(self, name: str, length: int) -> list[Any]:
        """A list with at least ``length`` entries; longer ones (which also describe MTP layers) are cut."""
        value = self.get(name)
        if not isinstance(value, list) or len(value) < length:
            found = f"{len(value)} entries" if isinstance(value, list) else repr(value)
            raise InputError(f"field '{name}' has {found}, expected one for each of {length} layers", where=self.where)
        return value[:length] if length else value

    def nested(self, name: str) -> Fields:
        """The fields of an object inside; empty where it is missing."""
        value = self.get(name, default={})
        if not isinstance(value, dict):
            raise InputError(f"field '{name}' is {value!r}, expected an object", where=self.where)
        return Fields(text=value, outer=value, where=self.where)
