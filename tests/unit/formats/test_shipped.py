from __future__ import annotations

from pathlib import Path

import pytest

from pciesim.errors import InputError, UnknownName
from pciesim.formats import shipped
from pciesim.formats.shipped import find_input, shipped_folder, shipped_names


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a few inputs; the tests run in an empty folder beside it."""
    for name in ("topologies/box8.txt", "topologies/box8.yaml", "topologies/box4.txt", "models/big.yaml",
                 "calibration/profiles/warm.yaml", "calibration/kernels/gpu_a/gemm.csv.gz"):  # fmt: skip
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "checkout" / "pciesim")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return tmp_path / "checkout"


@pytest.mark.parametrize("text", ["box8", "box8.txt", "topologies/box8.txt", "topologies/box8"])
def test_a_shipped_topology_by_any_of_its_names(text: str, checkout: Path) -> None:
    assert find_input("topologies", text) == checkout / "topologies" / "box8.txt"


def test_the_other_kinds(checkout: Path) -> None:
    assert find_input("models", "models/big.yaml") == checkout / "models" / "big.yaml"
    assert find_input("profiles", "calibration/profiles/warm.yaml") == checkout / "calibration/profiles/warm.yaml"
    assert find_input("profiles", "warm") == checkout / "calibration/profiles/warm.yaml"
    assert find_input("kernels", "gpu_a") == checkout / "calibration/kernels/gpu_a"


def test_an_existing_file_wins() -> None:
    Path("box8").write_text("mine")
    assert find_input("topologies", "box8") == Path("box8")


def test_a_folder_that_happens_to_have_the_name_does_not(checkout: Path) -> None:
    Path("box8").mkdir()
    assert find_input("topologies", "box8") == checkout / "topologies" / "box8.txt"


def test_a_model_folder_is_an_input() -> None:
    Path("big").mkdir()
    Path("big/config.json").write_text("{}")
    assert find_input("models", "big") == Path("big")


def test_an_overlay_is_not_a_topology() -> None:
    assert shipped_names("topologies") == ("box4", "box8")
    with pytest.raises(UnknownName):
        find_input("topologies", "box8.yaml")


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        find_input("topologies", "topologies/box9.txt")
    assert str(caught.value).startswith("unknown file or shipped topology 'box9.txt'; did you mean 'box")
    assert caught.value.nearest in {"box4", "box8"}


@pytest.mark.parametrize("text", ["some/folder/box8.txt", "/box8.txt", "../box8.txt"])
def test_a_path_elsewhere_is_not_replaced_by_a_shipped_file(text: str) -> None:
    with pytest.raises(InputError, match="no such file") as caught:
        find_input("topologies", text)
    assert caught.value.where == text


@pytest.mark.parametrize("text", ["", "box8.txt.gz", "box"])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(UnknownName):
        find_input("topologies", text)


def test_a_folder_is_left_to_the_reader_to_refuse() -> None:
    assert find_input("topologies", "..") == Path("..")


def test_the_packaged_folder_comes_first(checkout: Path) -> None:
    packaged = checkout / "pciesim" / "data" / "topologies"
    packaged.mkdir(parents=True)
    assert shipped_folder("topologies") == packaged


def test_a_broken_installation_says_so(checkout: Path) -> None:
    (checkout / "models" / "big.yaml").unlink()
    (checkout / "models").rmdir()
    with pytest.raises(InputError, match="install it again"):
        find_input("models", "big")
