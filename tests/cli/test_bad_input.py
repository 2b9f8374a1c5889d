"""Input that cannot be right: one clear line that says where, what was found and what is valid; never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.support.boxes import LEGEND, matrix_text

Run = Callable[..., Outcome]
BOX = ("--topo", "rtx6000x8")
MODEL = ("--model", "qwen35_397b")


@pytest.fixture
def refused(pciesim: Run) -> Callable[..., str]:
    """Run ``pciesim predict``, which must refuse with exit code 2; the line it says."""

    def call(*words: object) -> str:
        done = pciesim("predict", *words)
        assert done.code == 2, done
        return done.one_line()

    return call


# -- topologies -----------------------------------------------------------------------------------------------------


def test_a_missing_file(refused: Callable[..., str], tmp_path: Path) -> None:
    line = refused("--topo", tmp_path / "nowhere.txt", *MODEL)
    assert "nowhere.txt" in line
    assert "no such file" in line


def test_an_unknown_name_gets_the_nearest(refused: Callable[..., str]) -> None:
    line = refused("--topo", "rtx600x8", *MODEL)
    assert line.startswith("unknown topology 'rtx600x8'; did you mean 'rtx6000x8'? (valid: ")
    assert "did you mean 'rtx6000x8'?" in refused("--topo", "topologies/rtx6000x9.txt", *MODEL)


def test_a_folder(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "folder" in refused("--topo", tmp_path, *MODEL)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0\0", "binary"),
        (b"caf\xe9 GPU0", "UTF-8"),
        (b"", "box.txt"),
        (b"\n\n\n", "box.txt"),
        (b"nvidia-smi: command not found\n", "box.txt"),
        (b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n", "box.txt"),
        (LEGEND.encode(), "box.txt"),
    ],
    ids=["binary", "latin-1", "empty", "blank", "other-output", "header-only", "legend-only"],
)
def test_what_is_no_matrix(refused: Callable[..., str], tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "box.txt"
    path.write_bytes(content)
    assert said in refused("--topo", path, *MODEL)


def test_an_unknown_connection_type(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "box.txt"
    path.write_text(matrix_text("X NODE", "WXYZ X"), encoding="utf-8")
    line = refused("--topo", path, *MODEL)
    assert f"{path}:3" in line, "the line of the file"
    assert "WXYZ" in line
    assert "NODE" in line, "what is valid"


# -- numbers that do not fit the model or the box -------------------------------------------------------------------


@pytest.mark.parametrize("tp", [3, 5, 7])
def test_a_tp_that_divides_nothing(refused: Callable[..., str], tp: int) -> None:
    line = refused(*BOX, *MODEL, "--tp", tp)
    assert str(tp) in line
    assert "32" in line or "divide" in line


def test_a_tp_beyond_the_gpus(refused: Callable[..., str]) -> None:
    line = refused(*BOX, *MODEL, "--tp", 16)
    assert "16" in line
    assert "8" in line


def test_a_gpu_that_is_not_there(refused: Callable[..., str]) -> None:
    assert "9" in refused(*BOX, *MODEL, "--gpus", "0-6,9")


def test_kv_heads_fewer_than_tp_are_legal(pciesim: Run) -> None:
    """Qwen3.5-397B has two KV heads: at TP8 each is held four times."""
    assert pciesim("predict", *BOX, *MODEL, "--tp", 8).code == 0


def test_a_model_that_does_not_fit(pciesim: Run) -> None:
    done = pciesim("predict", *BOX, *MODEL, "--tp", 1)
    assert done.code == 1
    line = done.one_line()
    assert "GB" in line, "by how much"
    assert "tp" in line.lower(), "what would fit"


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "name", "nearest"),
    [
        ("--model", "qwen35_39b", "qwen35_397b"),
        ("--engine", "sglan", "sglang"),
        ("--allreduce", "oneshot-pul", "oneshot-pull"),
        ("--profile", "rtx_pro_600", "rtx_pro_6000"),
        ("--nccl", "NCCL_P2P_LEVL=SYS", "NCCL_P2P_LEVEL"),
    ],
)
def test_unknown_names(refused: Callable[..., str], option: str, name: str, nearest: str) -> None:
    words = {"--topo": "rtx6000x8", "--model": "qwen35_397b"} | {option: name}
    line = refused(*(word for pair in words.items() for word in pair))
    assert name.partition("=")[0] in line
    assert f"did you mean '{nearest}'?" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "mine.csv: cannot be read: No such file"),
        ("", "mine.csv:1: expected the columns bytes,latency"),
        ("8192,6.4\n", "mine.csv:1: expected the columns bytes,latency"),
        ("bytes,latency_us\n", "mine.csv: has no rows"),
        ("bytes,latency_us\n8192\n", "mine.csv:2: expected two values, found 1"),
        ("bytes,latency_us\n8192,fast\n", "mine.csv:2: "),
        ("bytes,latency\n8 KiB,6.4\n", "mine.csv:2: "),
        ("bytes,latency_us\n8192,0\n", "mine.csv:2: sizes and latencies are positive"),
        ("bytes,latency_us\n1024,5\n2048,5\n", "the curve 'mine' goes from 1 KiB to 2 KiB"),
        ("bytes,latency_us\n65536,5\n", "the curve 'mine' goes from 64 KiB to 64 KiB"),
    ],
)
def test_a_curve_of_ones_own(refused: Callable[..., str], tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "mine.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert said in refused(*BOX, *MODEL, "--allreduce", path)


# -- YAML -----------------------------------------------------------------------------------------------------------


def test_an_unknown_key_in_an_overlay(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "over.yaml"
    path.write_text("# the truth\ngpu_modle: rtx_pro_6000\n", encoding="utf-8")
    line = refused(*BOX, *MODEL, "--overlay", path)
    assert line.startswith(f"{path}:2:1: ")
    assert "gpu_modle" in line


def test_an_overlay_that_is_missing(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "over.yaml" in refused(*BOX, *MODEL, "--overlay", tmp_path / "over.yaml")


def test_an_unknown_key_in_a_model(refused: Callable[..., str], root: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    text = (root / "models" / "qwen35_397b.yaml").read_text(encoding="utf-8")
    path.write_text(text + "\nhiden: 4096\n", encoding="utf-8")
    line = refused(*BOX, "--model", path)
    assert line.startswith(f"{path}:{len(text.splitlines()) + 2}:1: ")
    assert "hiden" in line


@pytest.mark.parametrize("content", ["", "- a list\n", "key: [unclosed\n", "a: &x 1\nb: *x\n"])
def test_yaml_that_is_no_model(refused: Callable[..., str], tmp_path: Path, content: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(content, encoding="utf-8")
    assert str(path) in refused(*BOX, "--model", path)
