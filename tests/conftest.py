"""What every test can use: Hypothesis profiles, the folders of the checkout, and the rule for ``corpus`` tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# `dev` by default; CI=1 takes `ci`: derandomised, so that a red build is red again when it is looked at.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=200, print_blob=True)
settings.register_profile("fast", deadline=None, max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``corpus`` read ``../shared``; elsewhere they are skipped."""
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason="../shared is not there")
    for item in items:
        if item.get_closest_marker("corpus"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared measurements beside the checkout; for tests marked ``corpus``."""
    return SHARED
