"""``pciesim topo``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "topologies"
SOURCES = FIXTURES / "sources"
Run = Callable[..., Outcome]


def test_show(pciesim: Run) -> None:
    done = pciesim("topo", "show", "asus_esc8000a_e13p")
    assert (done.code, done.err) == (0, "")
    assert "8 x RTX PRO 6000 Blackwell Server Edition, 2 chips in 4 partitions" in done.out
    assert "2 sockets, AMD EPYC 9005 (Turin)" in done.out
    assert "vs3  Gen5 x16  broadcom_pex89144  chip B" in done.out


def test_show_json_and_plot(pciesim: Run, tmp_path: Path) -> None:
    drawing = tmp_path / "box.svg"
    done = pciesim("topo", "show", ROOT / "topologies" / "rtx6000x8.txt", "--json", "--plot", drawing)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["schema"] == "pciesim/topology-report/1"
    assert drawing.read_text().startswith("<svg")


def test_check_agreeing_sources(pciesim: Run) -> None:
    done = pciesim(
        "topo", "check", SOURCES / "box.txt", "--also", SOURCES / "lspci_vvv.txt", "--also", SOURCES / "p2p_ok.txt"
    )
    assert done.code == 0
    assert "look: ACS redirect is on" in done.out
    assert "assumed: the CPU is not stated" in done.out


def test_check_disagreement_is_a_no(pciesim: Run, tmp_path: Path) -> None:
    overlay = tmp_path / "wrong.yaml"
    overlay.write_text("schema: pciesim/topology/1\ngpus: {2: {width: 16}}\n")
    done = pciesim("topo", "check", SOURCES / "box.txt", "--overlay", overlay, "--also", SOURCES / "lspci_vvv.txt")
    assert done.code == 1
    assert "disagree: gpus.2.width: 16 (wrong.yaml), 8 (lspci -vvv, lspci_vvv.txt)" in done.out


def test_convert_there_and_back(pciesim: Run, tmp_path: Path) -> None:
    assert pciesim("topo", "convert", "rtx6000x8_2switch", tmp_path / "box.xml").code == 0
    assert pciesim("topo", "convert", tmp_path / "box.xml", tmp_path / "box.txt").code == 0
    assert (tmp_path / "box.txt").read_text() == (ROOT / "topologies" / "rtx6000x8_2switch.txt").read_text()
    shown = json.loads(pciesim("topo", "show", tmp_path / "box.txt", "--json").out)
    assert shown["islands"] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_convert_overwrites_only_when_told(pciesim: Run, tmp_path: Path) -> None:
    target = tmp_path / "box.xml"
    target.write_text("precious")
    assert "exists; --force overwrites it" in pciesim("topo", "convert", "rtx6000x4", target).one_line()
    assert target.read_text() == "precious"
    assert pciesim("topo", "convert", "rtx6000x4", target, "--force").code == 0


def test_convert_to_an_unknown_format(pciesim: Run, tmp_path: Path) -> None:
    done = pciesim("topo", "convert", "rtx6000x4", tmp_path / "box.pdf")
    assert done.code == 2
    assert "name it .txt (matrix and overlay) or .xml (NCCL)" in done.one_line()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cut_word.txt", "cut_word.txt:7:6: row NIC1: unknown connection type 'PH'"),
        ("padded_cut.txt", "padded_cut.txt:4: the matrix is cut"),
        ("absent.txt", "absent.txt"),
    ],
)
def test_bad_files_are_one_line(pciesim: Run, name: str, words: str) -> None:
    done = pciesim("topo", "show", FIXTURES / name)
    assert done.code == 2
    assert words in done.one_line()


def test_detect_without_the_tools(pciesim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = pciesim("topo", "detect", tmp_path / "box.txt", "--no-load")
    assert done.code == 2
    assert done.one_line() == "'nvidia-smi' is not installed here"


def test_detect_with_the_tools(pciesim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins on the path print what the real tools printed on the box of the fixtures."""
    tools = tmp_path / "bin"
    tools.mkdir()
    script = (
        "#!/bin/sh\n"
        f'case "$*" in "topo -m") exec cat "{SOURCES}/box.txt";; "topo -p2p r") exec cat "{SOURCES}/p2p_ok.txt";; '
        f'*) exec cat "{SOURCES}/smi_q.txt";; esac\n'
    )
    for name, body in {
        "nvidia-smi": script,
        "lspci": f'#!/bin/sh\nexec cat "{SOURCES}/lspci_vvv.txt"\n',
        "lscpu": "#!/bin/sh\necho 'Model name: AMD EPYC 9575F 64-Core Processor'\necho 'Socket(s): 2'\n",
    }.items():
        (tools / name).write_text(body)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    done = pciesim("topo", "detect", tmp_path / "box.txt", "--no-load")
    assert done.code == 0, done.err
    assert "look: GPU2 has x8 of x16: large messages take twice as long" in done.out
    shown = json.loads(pciesim("topo", "show", tmp_path / "box.txt", "--json").out)
    assert shown["islands"] == [[0, 1]]
    assert shown["gpu_model"] == "rtx_pro_6000"
    assert pciesim("topo", "check", tmp_path / "box.txt").code == 0
