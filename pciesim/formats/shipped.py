"""Inputs that travel with pciesim: where they are, and how a short name becomes a file.

A wheel carries the checkout's input folders as ``pciesim/data/<kind>``; in a checkout (and an editable install) the
folders themselves are read. There is one copy in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, Literal, TypeAlias

from pciesim.errors import InputError, UnknownName

__all__ = ["ShippedKind", "find_input", "shipped_folder", "shipped_names"]

ShippedKind: TypeAlias = Literal["topologies", "models", "profiles", "kernels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shelf:
    """One kind of input: its folder in the checkout, its word in messages, its extensions with the preferred first.

    No extension: every input is a folder.
    """

    folder: PurePath
    word: str
    extensions: tuple[str, ...]


_SHELVES: Final[dict[str, _Shelf]] = {
    "topologies": _Shelf(folder=PurePath("topologies"), word="topology", extensions=(".txt", ".xml")),
    "models": _Shelf(folder=PurePath("models"), word="model", extensions=(".yaml", ".json")),
    "profiles": _Shelf(folder=PurePath("calibration/profiles"), word="profile", extensions=(".yaml",)),
    "kernels": _Shelf(folder=PurePath("calibration/kernels"), word="GPU with kernel tables", extensions=()),
}
_PACKAGE: Final = Path(__file__).resolve().parent.parent


def shipped_folder(kind: ShippedKind) -> Path:
    """The folder that holds the shipped inputs of a kind. Raises InputError when the installation lacks it."""
    packaged = _PACKAGE / "data" / kind
    if packaged.is_dir():
        return packaged
    checkout = _PACKAGE.parent / _SHELVES[kind].folder
    if checkout.is_dir():
        return checkout
    raise InputError(f"this installation of pciesim has no {kind}; install it again")


def shipped_names(kind: ShippedKind) -> tuple[str, ...]:
    """Short names of the shipped inputs of a kind, sorted: ``rtx6000x8`` for ``topologies/rtx6000x8.txt``."""
    return tuple(sorted(_files(kind)))


def find_input(kind: ShippedKind, text: str) -> Path:
    """The file that a user means: an existing file, else a shipped input, else an existing folder.

    A shipped input is named with or without its folder and extension: ``rtx6000x8``, ``rtx6000x8.txt``,
    ``topologies/rtx6000x8.txt``. Raises UnknownName with the nearest shipped name, or InputError for a path into some
    other folder.
    """
    path = Path(text)
    if path.is_file() or (path / "config.json").is_file():
        return path
    shelf = _SHELVES[kind]
    files = _files(kind)
    named = PurePath(text)
    if not path.is_dir() and named.parent not in (PurePath(), PurePath(kind), shelf.folder):
        raise InputError(f"no such file (shipped {kind}: {', '.join(sorted(files))})", where=text)
    if (found := files.get(_stem(named.name, shelf))) is not None and found.name.startswith(named.name):
        return found
    if text and path.is_dir():
        return path  # what reads it will say what it expected
    bare = text == _stem(named.name, shelf)
    raise UnknownName(shelf.word if bare else f"file or shipped {shelf.word}", named.name, files)


def _files(kind: ShippedKind) -> dict[str, Path]:
    """Short name to file. Where one name has several files, the preferred extension wins."""
    shelf = _SHELVES[kind]
    found: dict[str, Path] = {}
    entries = sorted(shipped_folder(kind).iterdir())
    if not shelf.extensions:
        return {path.name: path for path in entries if path.is_dir() and not path.name.startswith((".", "_"))}
    for extension in reversed(shelf.extensions):
        found |= {_stem(path.name, shelf): path for path in entries if path.name.endswith(extension)}
    return found


def _stem(name: str, shelf: _Shelf) -> str:
    for extension in shelf.extensions:
        if name.endswith(extension):
            return name.removesuffix(extension)
    return name
