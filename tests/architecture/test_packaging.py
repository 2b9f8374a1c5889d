"""What a wheel and an sdist carry, and that names are found from any folder."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELVES = {
    "topologies": "topologies",
    "models": "models",
    "profiles": "calibration/profiles",
    "kernels": "calibration/kernels",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def shipped_files() -> set[str]:
    return {
        f"{kind}/{path.relative_to(ROOT / folder).as_posix()}"
        for kind, folder in SHELVES.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and not path.name.startswith(".")
    }


def test_the_wheel_carries_every_input_once(built: Path) -> None:
    names = zipfile.ZipFile(next(built.glob("*.whl"))).namelist()
    data = {name.removeprefix("pciesim/data/") for name in names if name.startswith("pciesim/data/")}
    assert data == shipped_files()
    assert "pciesim/py.typed" in names
    assert "pciesim/schemas/prediction.schema.json" in names
    assert len(names) == len(set(names))
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"pciesim"}, "nothing else lands in site-packages"


def test_the_sdist_carries_every_input(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {f"{SHELVES[kind]}/{rest}" for kind, _, rest in (name.partition("/") for name in shipped_files())}
    assert expected | {"LICENSE", "NOTICE", "README.md", "pyproject.toml"} <= names


def test_an_installed_wheel_finds_names_from_any_folder(built: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(next(built.glob("*.whl"))).extractall(site)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pciesim.formats.shipped import find_input, shipped_names\n"
        "for kind in ('topologies', 'models', 'profiles'):\n"
        "    for name in shipped_names(kind): print(find_input(kind, name))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(site)], cwd=elsewhere, capture_output=True, text=True, check=True
    )
    found = [Path(line) for line in done.stdout.splitlines()]
    assert found
    assert all(path.is_file() and path.is_relative_to(site / "pciesim" / "data") for path in found)


def test_every_dependency_is_justified() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    needed = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    for requirement in needed:
        name = requirement.partition(">=")[0]
        assert f"`{name}`" in page, f"docs/dependencies.md does not say why {name} is needed"
