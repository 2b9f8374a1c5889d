"""The page on topologies: its overlay is valid, its Python runs, its drawing is what the command draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pciesim.formats.catalogue import gpu_type
from pciesim.formats.documents import validate_document
from pciesim.formats.topology import load_fabric
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.reports.topology_plot import to_svg

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "topologies.md").read_text(encoding="utf-8")


def test_overlay_states_every_section_of_the_schema() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    overlay = validate_document(example, OverlayDocument, source="docs/topologies.md")
    assert set(OverlayDocument.model_fields) - overlay.model_fields_set == {"notes", "concurrency"}


def test_python_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/topologies.md", "exec"), {})
    assert capsys.readouterr().out.startswith("SYS 2 2 1\n")


def test_drawing_is_current() -> None:
    """Made by: pciesim topo show asus_esc8000a_e13p --plot docs/img/asus_esc8000a_e13p.svg"""
    fabric = load_fabric(ROOT / "topologies" / "asus_esc8000a_e13p.txt")
    drawn = to_svg(fabric, gpu_name=gpu_type(fabric.gpu_model).name)
    assert (ROOT / "docs" / "img" / "asus_esc8000a_e13p.svg").read_text(encoding="utf-8") == drawn
