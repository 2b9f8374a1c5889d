"""What holds for every source file: read as text or syntax, nothing is run."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pciesim"
MODULES = sorted(PACKAGE.rglob("*.py"))
PURE = {"context", "tolerance"}  # tokens, not bytes; a ratio, not a time
NEWLINE = ord("\n")
POWERS_OF_TEN = {1e3, 1e6, 1e9, 1e12, 1e-3, 1e-6, 1e-9, 1024}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


every_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def pure_numbers(tree: ast.Module) -> Iterator[int]:
    """Ids of literals that are the default of something in ``PURE``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in PURE:
            yield id(node.value)
        elif isinstance(node, ast.FunctionDef):
            arguments = node.args
            positional = arguments.posonlyargs + arguments.args
            pairs = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
            pairs += list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
            yield from (id(default) for argument, default in pairs if argument.arg in PURE)


@every_module
def test_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{name_of(path)} does not say what it is for"


@every_module
def test_powers_of_ten_live_in_units(path: Path) -> None:
    if path.name == "units.py":
        return
    tree = tree_of(path)
    exempt = set(pure_numbers(tree))
    found = [
        f"{name_of(path)}:{node.lineno}: {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
        and node.value in POWERS_OF_TEN
        and id(node) not in exempt
    ]
    assert not found, "use the constants of pciesim.units: " + "; ".join(found)


@every_module
def test_all_is_complete(path: Path) -> None:
    """``__all__`` is there, sorted, and names every public function, class and constant that others may use.

    Capitalised module constants may stay out of it (they are tuning of the module's own).
    """
    tree = tree_of(path)
    declared = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]
    ]
    if path.name == "__init__.py" and not any(isinstance(node, ast.ImportFrom | ast.ClassDef) for node in tree.body):
        return  # a package that only holds modules
    assert declared, f"{name_of(path)} has no __all__"
    names = set(declared[0])
    assert len(names) == len(declared[0]), "a name stands twice in __all__"
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in defined if not name.startswith("_")}
    missing = public - names
    # A command is found through its app, not by import.
    assert not missing or path.parent.name == "commands", f"{name_of(path)}: __all__ lacks {sorted(missing)}"
    bound = defined | {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    }
    bound |= {
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    assert names <= bound, f"{name_of(path)}: __all__ names what is not there: {sorted(names - bound)}"


def tracked_files() -> list[Path]:
    """Files under version control, or every file where git is not there."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        ).stdout.split("\0")  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and not {".git", ".venv"} & set(path.parts)]
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def test_no_paths_of_one_machine() -> None:
    """Nothing in the project names a folder that only one machine has."""
    absolute = re.compile(rb"(?<![\w.~$}])/(?:home|root|Users|work|mnt|scratch)/[A-Za-z0-9_.-]+")
    text_of = {path: path.read_bytes() for path in tracked_files() if path.suffix not in {".gz", ".png", ".svg"}}
    found = [
        f"{name_of(path)}:{raw[: match.start()].count(NEWLINE) + 1}"
        for path, raw in text_of.items()
        if path != Path(__file__) and b"\0" not in raw
        for match in absolute.finditer(raw)
    ]
    assert not found, "paths of one machine: " + ", ".join(found)
