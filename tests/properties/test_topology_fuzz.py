"""Whatever the text: a fabric or one clear line, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pciesim.errors import InputError
from pciesim.fabric import Fabric
from pciesim.formats.documents import validate_document
from pciesim.formats.lspci import read_lspci, read_lspci_tree
from pciesim.formats.nccl_xml import read_nccl_xml
from pciesim.formats.smi_p2p import read_p2p
from pciesim.formats.smi_query import read_query
from pciesim.formats.topology import assemble
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import parse_matrix

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "topologies"
MATRICES = [path.read_text() for path in sorted(FIXTURES.glob("*.txt"))]
OVERLAYS = [path.read_text() for path in sorted((ROOT / "topologies").glob("*.yaml"))]
SOURCES = {path.name: path.read_text() for path in sorted((FIXTURES / "sources").iterdir())}
LIMIT = 5.0  # seconds a single text may take, on a machine that is busy otherwise
PIECES = st.sampled_from(
    ["GPU0", "GPU1", "NIC0", "X", " X ", "PIX", "NODE", "SYS", "NV18", "NV", "\t", " ", "\n", "0-7", "9-1", "|", "N/A",
     "\x1b[4m", "CPU Affinity", "GPU NUMA ID", "-", "é", "\u2003", "99999999999", ":", "{", "}", "&a", "*a", "<", ">"]
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, texts: list[str]) -> str:
    """A good text with pieces cut out and others put in."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, max(0, len(text) - 1)))
        length = draw(st.integers(0, 60))
        text = text[:start] + draw(PIECES) + text[start + length :]
    return text


def answer_or_one_line(read: Callable[[], Fabric | object]) -> object:
    """What a reader gives, None where it refuses: then in one line and without delay."""
    began = time.perf_counter()
    found, refusal = None, ""
    try:
        found = read()
    except InputError as error:
        refusal = str(error)
    assert time.perf_counter() - began < LIMIT
    assert "\n" not in refusal
    return found


def fabric_of(text: str) -> Fabric:
    return assemble(parse_matrix(text, source="box.txt"), OverlayDocument.empty(), name="box")


@given(st.text() | st.lists(PIECES, max_size=60).map("".join) | damaged(MATRICES))
def test_any_text_is_a_fabric_or_one_line(text: str) -> None:
    fabric = answer_or_one_line(lambda: fabric_of(text))
    if isinstance(fabric, Fabric):
        for one in fabric.gpus:
            for other in fabric.gpus:
                if one is not other:
                    assert fabric.route(one.name, other.name).links
            assert fabric.memory_of(one.name)


@pytest.mark.parametrize(
    "text",
    [
        "GPU0 " * 50_000,
        "GPU0\n" * 20_000,
        "\tGPU0\tGPU1\n" + "GPU0 X PIX\n" * 20_000,
        "GPU0 GPU1 GPU2 " + "X" * 100_000,
        "GPU0 GPU1\nGPU0 X NODE " + "0-7," * 50_000 + "\nGPU1 NODE X\n",
        "\tGPU0\nGPU0\t X \t" + "9" * 10_000 + "\t" + "9" * 10_000 + "\n",
        "\x1b[" * 50_000,
    ],
    ids=["names", "lines", "rows", "glued", "affinity", "digits", "escapes"],
)
def test_large_nonsense_takes_bounded_time(text: str) -> None:
    answer_or_one_line(lambda: fabric_of(text))


@given(st.text() | damaged(OVERLAYS))
def test_any_overlay_is_read_or_one_line(text: str) -> None:
    matrix = parse_matrix(MATRICES[0], source="box.txt")
    answer_or_one_line(
        lambda: assemble(matrix, validate_document(text, OverlayDocument, source="box.yaml"), name="box")
    )


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("lspci_vvv.txt", lambda text: read_lspci(text, 4, source="f")),
        ("lspci_tv.txt", lambda text: read_lspci_tree(text, 4, source="f")),
        ("smi_q.txt", lambda text: read_query(text, 4, source="f")),
        ("p2p_mixed.txt", lambda text: read_p2p(text, 4, source="f")),
        ("nccl.xml", lambda text: assemble(*read_nccl_xml(text, source="f"), name="f")),
    ],
    ids=["lspci", "lspci_tree", "query", "p2p", "nccl"],
)
@given(data=st.data())
def test_any_other_source_is_read_or_one_line(name: str, read: Callable[[str], object], data: st.DataObject) -> None:
    text = data.draw(st.text() | damaged([SOURCES[name]]))
    answer_or_one_line(lambda: read(text))
