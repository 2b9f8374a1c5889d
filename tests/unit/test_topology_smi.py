"""Reading and printing the matrix: what is understood, what is refused and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pciesim.errors import InputError
from pciesim.formats.topology import load_fabric
from pciesim.formats.topology_smi import TopologyMatrix, parse_matrix, render_matrix

TEXT = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPHB\t0-7\t0\t\tN/A\n"
    "GPU1\tPHB\t X \t0-7\t0\t\tN/A\n"
)


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_matrix(text, source="box.txt")
    return str(caught.value)


def test_cells_and_affinity() -> None:
    matrix = parse_matrix(TEXT, source="box.txt")
    assert matrix.cells == (("X", "PHB"), ("PHB", "X"))
    assert matrix.cpu_affinity == ("0-7", "0-7")
    assert matrix.numa(1) == (0,)
    assert matrix.lines == (2, 3)


def test_empty_text() -> None:
    assert refusal(" \n") == "box.txt: is empty, expected the output of nvidia-smi topo -m"


def test_no_matrix() -> None:
    assert refusal("hello\nworld\n").startswith("box.txt: has no topology matrix: no header line")


def test_header_without_rows_is_an_empty_matrix() -> None:
    assert refusal("\tGPU0\tGPU1\n") == (
        "box.txt:1: the matrix is cut: the header names 2 devices, but no row for GPU0 follows"
    )


def test_unknown_connection_type_has_line_and_column() -> None:
    said = refusal(TEXT.replace("GPU0\t X \tPHB", "GPU0\t X \tFOO"))
    assert said == (
        "box.txt:2:10: row GPU0: unknown connection type 'FOO' (valid: X, PIX, PXB, PHB, NODE, SYS, NV#, SOC, PSB)"
    )


def test_contradicting_cells_name_both_lines() -> None:
    said = refusal(TEXT.replace("GPU1\tPHB", "GPU1\tSYS"))
    assert said == "box.txt:3: GPU1-GPU0 is SYS, but GPU0-GPU1 is PHB (line 2)"


def test_x_belongs_on_the_diagonal() -> None:
    assert refusal(TEXT.replace(" X ", "PIX")).startswith("box.txt:2: GPU0-GPU0 is PIX; X belongs on the diagonal")


def test_affinity_between_two_sockets_of_a_damaged_paste() -> None:
    """'48-95,144-1911N/A': two hardware threads a core, so both ranges are 48 long and the 1 is the NUMA node."""
    rows = "GPU0  X  SYS  0-47,96-1430N/A\nGPU1  SYS  X  48-95,144-1911N/A\n"
    matrix = parse_matrix(f"      GPU0  GPU1  CPU Affinity  NUMA Affinity\n{rows}", source="box.txt")
    assert matrix.cpu_affinity == ("0-47,96-143", "48-95,144-191")
    assert matrix.numa_affinity == ("0", "1")
    assert len(matrix.notes) == 2


def test_text_before_the_matrix_does_not_hide_it() -> None:
    before = "GPU0: NVIDIA GeForce\nOn GPU0 things are fine\n$ nvidia-smi topo -m\n"
    assert parse_matrix(before + TEXT, source="box.txt").cells == parse_matrix(TEXT, source="box.txt").cells


def test_nic_legend() -> None:
    text = "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nNIC0\tPIX\t X \n\nNIC Legend:\n\n  NIC0: mlx5_bond_0\n"
    matrix = parse_matrix(text, source="box.txt")
    assert matrix.nic_labels == (("NIC0", "mlx5_bond_0"),)
    assert render_matrix(matrix).endswith("NIC Legend:\n\n  NIC0: mlx5_bond_0\n")


def test_old_words_are_kept_in_the_matrix_and_translated_in_routes(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text(TEXT.replace("PHB", "SOC"))
    fabric = load_fabric(path)
    assert fabric.matrix[0][1] == "SOC"
    assert fabric.route("GPU0", "GPU1").path_type == "SYS"


@pytest.mark.parametrize("content", [b"\x00\x01\x02GPU0", b"\xff\xfe\x00G"])
def test_binary_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "box.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match="binary"):
        load_fabric(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_fabric(tmp_path / "absent.txt")


def test_hundreds_of_devices_are_refused() -> None:
    names = "\t".join(f"GPU{number}" for number in range(400))
    assert "has more than 300 devices" in refusal(f"\t{names}\n")


def test_printed_form_has_na_for_what_is_not_known() -> None:
    matrix = TopologyMatrix(
        gpus=("GPU0",), nics=(), cells=(("X",),), cpu_affinity=("",), numa_affinity=("",), gpu_numa=("",)
    )
    assert render_matrix(matrix).split("\n")[1] == "GPU0\t X \tN/A\tN/A\t\tN/A"
