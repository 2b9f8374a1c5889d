"""Commands and Python in the documentation do what they say: they run."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "getting-started.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page.name, body)
        for page in PAGES
        for found, body in BLOCK.findall(page.read_text(encoding="utf-8"))
        if found == language
    ]


COMMANDS = [
    (page, line)
    for page, body in blocks("sh")
    for line in body.splitlines()
    if line.removeprefix(".venv/bin/").startswith("pciesim ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}" for page, line in COMMANDS])
def test_commands_run(
    page: str, line: str, pciesim: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names are found from any folder
    done = pciesim(*shlex.split(line, comments=True)[1:])
    assert (done.code, done.err) == (0, ""), page
    assert done.out


@pytest.mark.parametrize(("page", "body"), blocks("python"), ids=[page for page, _ in blocks("python")])
def test_python_runs(page: str, body: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(body, page, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_into_the_checkout_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
