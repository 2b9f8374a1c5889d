"""The table of rooms in pyproject.toml is complete; ``lint-imports`` checks that it is kept."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pciesim.cli import COMMANDS as COMMAND_TABLE

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}
DOOR = {
    "cli",
    "commands",
    "accuracy",
    "refit",
    "whatif",
    "api",
    "reports",
    "compare",
    "calibrate",
    "formats",
}  # what may know files and terminals


def rooms() -> set[str]:
    children = (ROOT / "pciesim").iterdir()
    return {
        path.stem for path in children if (path.suffix == ".py" or (path / "__init__.py").exists())
    } - {"__init__"}  # fmt: skip


def layer_of() -> dict[str, int]:
    return {
        room.strip(" ()"): depth
        for depth, row in enumerate(CONTRACTS["layers"]["layers"])
        for room in row.split("|")
    }  # fmt: skip


def test_every_room_below_the_door_is_kept_free_of_the_outside() -> None:
    sources = {name.removeprefix("pciesim.") for name in CONTRACTS["core"]["source_modules"]}
    assert sources == rooms() - DOOR


def test_the_order_is_that_of_the_design() -> None:
    depth = layer_of()
    for upper, lower in [
        ("cli", "api"), ("api", "reports"), ("reports", "formats"), ("formats", "predict"), ("predict", "evaluate"),
        ("evaluate", "collectives"), ("evaluate", "strategies"), ("collectives", "schedule"), ("kernels", "schedule"),
        ("schedule", "model"), ("physics", "fabric"), ("fabric", "units"), ("units", "errors"),
    ]:  # fmt: skip
        assert depth[upper] < depth[lower], f"{upper} stands above {lower}"


COMMANDS = sorted(path.stem for path in (ROOT / "pciesim" / "commands").glob("[!_]*.py"))


def test_every_command_is_in_the_table() -> None:
    assert {entry.module for entry in COMMAND_TABLE.values()} == {f"pciesim.commands.{name}" for name in COMMANDS}


@pytest.mark.parametrize("module", ["pciesim", "pciesim.cli", *(f"pciesim.commands.{name}" for name in COMMANDS)])
def test_start_up_imports_nothing_heavy(module: str) -> None:
    """``pciesim --help`` must stay under 0.3 s on a slow machine: a fresh interpreter says what was imported."""
    heavy = {"pydantic", "ruamel", "numpy", "networkx", "scipy", "matplotlib", "simpy", "rich"}
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy & set(loaded)
