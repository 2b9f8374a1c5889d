"""YAML at the door: a file becomes a validated pydantic document, or one line that says file, line and column.

YAML 1.2 through ruamel.yaml. Files are parsed with the plain loader; only when something is wrong are they parsed again
with positions, so a good file pays nothing for good errors. Aliases are refused and sizes bounded, so no input can
expand without limit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pciesim.errors import InputError, UnknownName
from pciesim.units import MIB

__all__ = ["Document", "read_document", "read_text", "validate_document"]

MAX_FILE: Final = 4 * MIB
_ALIAS: Final = re.compile(r"^[ \t]*(?:[^#'\"\n]*[:\-\[{,][ \t]*)?[&*][A-Za-z0-9_]", re.MULTILINE)

D = TypeVar("D", bound="Document")


class Document(BaseModel):
    """Base of every file schema: unknown keys are errors, values are not coerced across kinds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_text(path: Path) -> str:
    """The text of an input file. Raises InputError when it is missing, a folder, too large or not UTF-8 text."""
    try:
        if path.is_dir():
            raise InputError("is a folder, expected a text file", where=str(path))
        if path.stat().st_size > MAX_FILE:
            raise InputError(f"is larger than {MAX_FILE // MIB} MiB, expected a small text file", where=str(path))
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    if b"\0" in raw:
        raise InputError("is a binary file, expected text", where=str(path))
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8 text", where=f"{path}:{line}") from None


def read_document(path: Path, schema: type[D]) -> D:
    """A validated document from a YAML file.

    Raises InputError (file:line:column, what was found, what is valid) on any fault.
    """
    return validate_document(read_text(path), schema, source=str(path))


def validate_document(text: str, schema: type[D], *, source: str) -> D:
    """As :func:`read_document`, from text; ``source`` is how errors name it."""
    data = _parse(text, source, positions=False)
    if not isinstance(data, dict):
        raise InputError(f"expected a mapping with keys {', '.join(schema.model_fields)}", where=source)
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        raise _explain(error, text, schema, source) from None


def _parse(text: str, source: str, *, positions: bool) -> Any:
    from ruamel.yaml import YAML  # noqa: PLC0415  (24 ms; a command that reads no YAML need not pay)
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415

    if match := _ALIAS.search(text):
        line = text.count("\n", 0, match.end()) + 1
        raise InputError("YAML anchors and aliases are not accepted; write the value out", where=f"{source}:{line}")
    yaml = YAML(typ="rt" if positions else "safe", pure=True)
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source
        raise InputError(f"not valid YAML: {error.problem}", where=where) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"not valid YAML: {str(error).splitlines()[0]}", where=source) from None


def _explain(error: ValidationError, text: str, schema: type[BaseModel], source: str) -> InputError:
    """The first fault of a validation error as one line, with its place in the file."""
    faults = error.errors(include_url=False)
    # A misspelt key is both missing and unknown; the unknown one is the fault the writer can see.
    fault = next((each for each in faults if each["type"] == "extra_forbidden"), faults[0])
    location = fault["loc"]
    where = _locate(_parse(text, source, positions=True), location, source)
    path = ".".join(str(part) for part in location)
    if fault["type"] == "extra_forbidden":
        return UnknownName("key", path, _siblings(schema, location), where=where)
    if fault["type"] == "missing":
        return InputError(f"key '{path}' is missing", where=where)
    found = fault["input"]
    message = fault["msg"].removeprefix("Value error, ")
    shown = f", found {found!r}" if isinstance(found, str | int | float | bool) and repr(found) not in message else ""
    return InputError(f"{path}: {message[:1].lower()}{message[1:]}{shown}", where=where)


def _siblings(schema: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Full paths of the keys that would have been valid at a location."""
    prefix = location[:-1]
    parent: Any = schema
    for part in prefix:
        known = isinstance(parent, type) and issubclass(parent, BaseModel)
        field = parent.model_fields.get(str(part)) if known else None
        parent = _document_in(field.annotation) if field is not None else parent
    fields = parent.model_fields if isinstance(parent, type) and issubclass(parent, BaseModel) else {}
    return [".".join(str(part) for part in (*prefix, name)) for name in fields]


def _document_in(annotation: Any) -> Any:
    """The first document class inside an annotation such as ``dict[str, Thing] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if (found := _document_in(part)) is not None:
            return found
    return None


def _locate(data: Any, location: tuple[int | str, ...], source: str) -> str:
    """``file:line:column`` of the deepest part of a location that exists in the file."""
    line, column = 0, 0
    node = data
    for part in location:
        try:
            line, column = node.lc.item(part) if isinstance(part, int) else node.lc.key(part)
            node = node[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return f"{source}:{line + 1}:{column + 1}"
