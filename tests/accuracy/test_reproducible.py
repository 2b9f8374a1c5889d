"""Shipped profiles are what their runs give, and the docs show what they predict."""

from pathlib import Path

import pytest

from pciesim.accuracy.document import accuracy_page, readme_table, replace_block
from pciesim.refit import refit

RECIPES = Path(__file__).resolve().parents[2] / "calibration" / "recipes"
PROFILES = sorted(path.stem for path in RECIPES.glob("*.yaml"))


@pytest.mark.parametrize("name", PROFILES)
def test_refitting_gives_the_shipped_profile_byte_for_byte(root, name):
    made = refit(root / "calibration" / "recipes" / f"{name}.yaml", root / "calibration" / "runs")
    assert made.text == (root / "calibration" / "profiles" / f"{name}.yaml").read_text()


def test_every_shipped_profile_has_a_recipe(root):
    folder = root / "calibration"
    assert {p.stem for p in (folder / "profiles").glob("*.yaml")} == {p.stem for p in (folder / "recipes").glob("*")}


def test_the_docs_show_the_present_accuracy(root):
    runs = root / "calibration" / "runs"
    for path, block in ((root / "docs" / "accuracy.md", accuracy_page(runs)), (root / "README.md", readme_table(runs))):
        text = path.read_text()
        assert replace_block(text, block) == text, f"{path.name} is out of date: run 'pciesim calibrate accuracy'"
