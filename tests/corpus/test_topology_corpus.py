"""Every real text of the corpus: refused as named in advance, or read as its index says.

The index was made from the issues, not by this reader: number of GPUs and NICs and the words of the GPU rows are an
independent check.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.formats.nccl_xml import read_nccl_xml
from pciesim.formats.topology import assemble, load_fabric
from pciesim.formats.topology_smi import parse_matrix

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "topo-corpus"
XML = ROOT.parent / "shared" / "measured" / "pcie_boxes" / "nccl_xml"
PATHS = sorted(CORPUS.glob("*.txt"))
pytestmark = pytest.mark.corpus


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("topology_corpus", ROOT / "tools" / "topology_corpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFUSED: dict[str, str] = tool().REFUSED


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the index says of a file."""

    gpus: int
    nics: int
    words: frozenset[str]


def index() -> dict[str, Entry]:
    found = {}
    for line in (CORPUS / "INDEX.md").read_text(encoding="utf-8").splitlines() if CORPUS.is_dir() else ():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == 9 and cells[0].endswith(".txt") and cells[5].isdigit() and cells[5] != "0":
            words = frozenset(cells[7].split(",")) if cells[7] else frozenset[str]()
            found[cells[0]] = Entry(gpus=int(cells[5]), nics=int(cells[6]), words=words)
    return found


INDEX = index()


def test_nothing_is_missing() -> None:
    assert len(PATHS) > 400
    assert len(INDEX) > 300
    assert {path.name for path in PATHS} >= set(REFUSED)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_file(path: Path) -> None:
    if path.name in REFUSED:
        with pytest.raises(InputError) as caught:
            load_fabric(path)
        assert f"{path.name}:" in str(caught.value)
        return
    fabric = load_fabric(path)
    matrix = parse_matrix(read_text(path), source=path.name)
    if path.name in INDEX:
        entry = INDEX[path.name]
        words = {cell for row in matrix.cells[: len(matrix.gpus)] for cell in row} - {"X"}
        assert (len(matrix.gpus), len(matrix.nics)) == (entry.gpus, entry.nics)
        assert words == entry.words
    for one in fabric.gpus:
        for other in fabric.gpus:
            if one is other:
                continue
            cell = fabric.matrix[one.index or 0][other.index or 0]
            route = fabric.route(one.name, other.name, nvlink=False)
            if cell in ("PIX", "PXB", "PSB"):
                assert (route.switches > 0, route.root_complexes, route.socket_hops) == (True, 0, 0)
            elif cell in ("PHB", "NODE"):
                assert (route.root_complexes, route.socket_hops) == (1, 0)
            elif cell == "SOC":
                assert route.socket_hops == 1
            elif cell == "SYS":
                assert route.root_complexes == route.socket_hops + 1


# Machines whose wiring their owners describe: sockets of the GPUs, islands, and what a pair crosses.
KNOWN = {
    "rtx6kpro-asus-esc8000a-e13p-8xrtxpro6000.txt": ("00001111", [(0, 1), (2, 3), (4, 5), (6, 7)]),
    "rtx6kpro-wrx90-cpayne-2switch-flat-8xrtxpro6000.txt": ("00000000", [(0, 1, 2, 3), (4, 5, 6, 7)]),
    "rtx6kpro-doc-8x-dual-cpu-phb-sys.txt": ("00001111", []),
    "go-gpuallocator-17-8x4090-all-sys-2nic.txt": ("00001111", []),
    "fixture-6gpu-3pairs-dual-socket-ansi-before-tab.txt": ("000011", [(0, 1), (2, 3), (4, 5)]),
    "soc-dgx1-8xp100-nv1-4mlx5.txt": ("00001111", [(0, 1), (2, 3), (4, 5), (6, 7)]),
    "soc-8xp40-pix-pxb-1mlx5.txt": ("00000000", [(0, 1, 2, 3), (4, 5, 6, 7)]),
    "soc-power8-minsky-4xp100-nv2.txt": ("0011", []),
    "nccl-428-4xt4-sys-node.txt": ("0111", []),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_machine(name: str) -> None:
    sockets_of_gpus, islands = KNOWN[name]
    fabric = load_fabric(CORPUS / name)
    sockets = ["socket0", "socket1"][: sum(device.kind == "socket" for device in fabric.devices)]
    near = [min(sockets, key=lambda socket: len(fabric.route(gpu.name, socket).links))[-1] for gpu in fabric.gpus]
    assert "".join(near) == sockets_of_gpus
    assert list(fabric.islands) == islands


def test_the_page_in_the_docs_is_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "topology-corpus.md").read_text(encoding="utf-8")
    assert page == tool().report(CORPUS)


XML_REFUSED = {
    "aws-g5.48xl-topo.xml": "has no class",  # a hint that NCCL completes with what it detects, not a dump
    "azure-ncv4-graph.xml": "root element 'graphs'",  # rings, not wiring
}


@pytest.mark.parametrize("path", sorted(XML.glob("*.xml")), ids=lambda path: path.stem)
def test_nccl_xml(path: Path) -> None:
    if path.name in XML_REFUSED:
        with pytest.raises(InputError, match=XML_REFUSED[path.name]):
            load_fabric(path)
        return
    matrix, overlay = read_nccl_xml(read_text(path), source=path.name)
    fabric = assemble(matrix, overlay, name=path.stem)
    assert len(fabric.gpus) in (3, 4, 8, 16)
    for one in fabric.gpus:
        for other in fabric.gpus:
            if one is not other:
                assert fabric.route(one.name, other.name).links
