"""Other descriptions of a box: what each says, and what becomes of disagreements.

One box in all of them: GPU0 and GPU1 behind a switch, GPU2 on a root port at x8, GPU3 on the second socket in a Gen4
slot. GPU0 and GPU1 idle at Gen1, and ACS redirect is on for one port of the switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from pciesim.errors import InputError
from pciesim.formats.lspci import is_lspci, is_lspci_tree, read_lspci, read_lspci_tree
from pciesim.formats.nccl_xml import is_nccl_xml, read_nccl_xml, write_nccl_xml
from pciesim.formats.smi_p2p import is_p2p, read_p2p
from pciesim.formats.smi_query import is_query, read_query
from pciesim.formats.topology import assemble, load_fabric, load_topology
from pciesim.formats.topology_check import findings
from pciesim.formats.topology_detect import detect
from pciesim.formats.topology_smi import parse_matrix
from pciesim.hardware import pcie_bandwidth

FOLDER = Path(__file__).parents[1] / "fixtures" / "topologies" / "sources"
SHIPPED = Path(__file__).parents[2] / "topologies"


def text(name: str) -> str:
    return (FOLDER / name).read_text()


def test_each_text_is_recognised_as_what_it_is() -> None:
    readers = {
        "nccl.xml": is_nccl_xml,
        "p2p_ok.txt": is_p2p,
        "p2p_mixed.txt": is_p2p,
        "smi_q.txt": is_query,
        "lspci_vvv.txt": is_lspci,
        "lspci_tv.txt": is_lspci_tree,
    }
    for name, own in readers.items():
        assert [fits for fits in {*readers.values()} if fits(text(name))] == [own], name


def test_lspci_gives_switches_links_and_acs() -> None:
    overlay = read_lspci(text("lspci_vvv.txt"), 4, source="lspci")
    assert overlay.switches is not None
    (switch,) = overlay.switches
    assert switch.gpus == (0, 1)
    assert (switch.uplink.generation, switch.uplink.width) == (5, 16)
    links = [(entry.generation, entry.width) for entry in overlay.gpus.values()]
    # GPU3 can do Gen5, its root port only Gen4; the idle GPUs' Gen1 is not what the slot can do.
    assert links == [(5, 16), (5, 16), (5, 8), (4, 16)]
    assert [entry.numa for entry in overlay.gpus.values()] == [0, 0, 0, 1]
    assert overlay.host.acs_redirect is True
    assert overlay.notes == "GPU2 has x8 of x16"
    assert [(each.name, each.gpus) for each in overlay.root_complexes] == [
        ("root_00", (0, 1)),
        ("root_40", (2,)),
        ("root_80", (3,)),
    ]


def test_lspci_tree_gives_the_switch() -> None:
    overlay = read_lspci_tree(text("lspci_tv.txt"), 4, source="lspci")
    assert overlay.switches is not None
    assert [switch.gpus for switch in overlay.switches] == [(0, 1)]
    assert overlay.root_complexes == read_lspci(text("lspci_vvv.txt"), 4, source="lspci").root_complexes


def test_one_bus_of_a_virtual_machine_with_two_nodes_is_two_root_complexes() -> None:
    guest = text("lspci_vvv.txt").replace("80:01.1 PCI", "00:03.1 PCI").replace("\n80:", "\n00:")
    overlay = read_lspci(guest, 4, source="lspci")
    assert [each.name for each in overlay.root_complexes] == ["root_00_numa0", "root_40", "root_00_numa1"]


def test_nested_switches_of_the_tree() -> None:
    tree = (
        "-[0000:00]-+-00.0  Host bridge\n"
        "           \\-01.0-[01-08]----00.0-[02-08]--+-00.0-[03]----00.0  NVIDIA Corporation GA102\n"
        "                                           \\-01.0-[04-08]----00.0-[05-08]--+-00.0-[06]----00.0  NVIDIA A\n"
        "                                                                           \\-01.0-[07]----00.0  NVIDIA B\n"
    )
    overlay = read_lspci_tree(tree, 3, source="tree")
    assert overlay.switches is not None
    assert [(switch.name, switch.gpus, switch.behind) for switch in overlay.switches] == [
        ("switch0", (0,), None),
        ("switch1", (1, 2), "switch0"),
    ]


def test_lspci_without_root_is_refused() -> None:
    hidden = "\n".join(line for line in text("lspci_vvv.txt").splitlines() if "Lnk" not in line)
    with pytest.raises(InputError, match="run lspci -vvv as root"):
        read_lspci(hidden, 4, source="lspci")


def test_query_takes_the_possible_generation_of_idle_gpus() -> None:
    overlay = read_query(text("smi_q.txt"), 4, source="q")
    assert [(entry.generation, entry.width) for entry in overlay.gpus.values()] == [(5, 16), (5, 16), (5, 8), (4, 16)]
    assert {entry.model for entry in overlay.gpus.values()} == {"rtx_pro_6000"}
    assert "GPU0 runs at Gen1 of Gen5 while idle" in overlay.notes
    assert "GPU2 has x8 of x16" in overlay.notes
    assert overlay.p2p.bar1 == 131072 * 1024**2


def test_p2p_tables() -> None:
    assert read_p2p(text("p2p_ok.txt"), 4, source="p2p").p2p.driver is True
    assert read_p2p(text("p2p_refused.txt"), 2, source="p2p").p2p.driver is False
    mixed = read_p2p(text("p2p_mixed.txt"), 4, source="p2p")
    assert mixed.p2p.refused == ((0, 3), (1, 3), (2, 3))
    assert mixed.notes == "refused: topology not supported"
    with pytest.raises(InputError, match="GPU0 has 2 cells, the topology has 4 GPUs"):
        read_p2p(text("p2p_refused.txt"), 4, source="p2p")


def test_nccl_xml_is_a_topology_of_its_own() -> None:
    fabric = load_fabric(FOLDER / "nccl.xml")
    assert fabric.matrix == (
        ("X", "PIX", "NODE", "SYS"),
        ("PIX", "X", "NODE", "SYS"),
        ("NODE", "NODE", "X", "SYS"),
        ("SYS", "SYS", "SYS", "X"),
    )
    assert fabric.host.cpu == "epyc_turin"  # NCCL writes family 0x1A as 0xBF
    assert fabric.gpus[0].affinity == "0-15"
    assert fabric.link("GPU2", "root_port1").bandwidth == pcie_bandwidth(5, 8)
    assert fabric.route("GPU0", "GPU1").switches == 1


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        ("<system><cpu>", "is not XML"),
        ("<graphs></graphs>", "root element 'graphs', expected 'system'"),
        ("<system/>", "has no GPU"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><system/>', "document type"),
        ('<system><cpu numaid="0"><pci busid="0000:01:00.0"/></cpu></system>', "it could be a GPU or a NIC"),
    ],
)
def test_bad_xml(xml: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_nccl_xml(xml, source="x.xml")


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.txt")), ids=lambda path: path.stem)
def test_what_nccl_would_dump_describes_the_same_box(path: Path) -> None:
    """Switches, CPUs, socket hops and rates of every pair survive (chips, host bridges and ACS have no place in it)."""
    fabric = replace(load_fabric(path), acs_redirect=False)
    matrix, overlay = read_nccl_xml(write_nccl_xml(fabric), source="again.xml")
    again = assemble(matrix, overlay, name=fabric.name)
    chips = any(device.chip for device in fabric.devices)
    for one in fabric.gpus:
        assert again.device(one.name).numa == one.numa
        for other in fabric.gpus:
            if one.name == other.name or (chips and fabric.matrix[one.index or 0][other.index or 0] == "NODE"):
                continue
            old, new = fabric.route(one.name, other.name), again.route(one.name, other.name)
            assert (old.switches, old.root_complexes > 0, old.socket_hops, old.nvlink) == (
                new.switches,
                new.root_complexes > 0,
                new.socket_hops,
                new.nvlink,
            )
            rates = [[box.links[position].bandwidth for position in route.links][:2]
                     for box, route in ((fabric, old), (again, new))]  # fmt: skip
            assert rates[0] == rates[1]


def test_sources_that_agree_leave_little_to_assume() -> None:
    others = [FOLDER / name for name in ("lspci_vvv.txt", "lspci_tv.txt", "smi_q.txt", "p2p_ok.txt", "nccl.xml")]
    loaded = load_topology(FOLDER / "box.txt", None, others)
    assert loaded.disagreements == ()
    assert loaded.fabric.gpu_model == "rtx_pro_6000"
    assert loaded.fabric.acs_redirect
    assert [assumption.text for assumption in loaded.fabric.assumptions] == [
        "4 links between the sockets: the most AMD EPYC 9005 (Turin) has"
    ]


def test_disagreements_are_shown_and_the_first_wins(tmp_path: Path) -> None:
    (tmp_path / "box.txt").write_text(text("box.txt"))
    (tmp_path / "box.yaml").write_text(
        "schema: pciesim/topology/1\nlink: {generation: 5, width: 16}\nswitches: [{name: s, gpus: [1, 2]}]\n"
    )
    loaded = load_topology(tmp_path / "box.txt", None, [FOLDER / "lspci_vvv.txt"])
    said = [str(each) for each in loaded.disagreements]
    assert "gpus.2.width: 16 (box.yaml), 8 (lspci -vvv, lspci_vvv.txt); the first is used" in said
    assert "gpus.3.generation: 5 (box.yaml), 4 (lspci -vvv, lspci_vvv.txt); the first is used" in said
    assert "switches: [1, 2] (box.yaml), [0, 1] (lspci -vvv, lspci_vvv.txt); the first is used" in said
    assert "GPU0-GPU1: different switches (box.yaml), PIX (the matrix); the first is used" in said
    assert "root complex of GPU2: root_00 (by its switch), root_40 (as listed); the first is used" in said
    assert loaded.fabric.link("GPU2", "s").bandwidth == pcie_bandwidth(5, 16)


def test_host_bridges_that_the_cells_contradict(tmp_path: Path) -> None:
    """GPU0 and GPU2 print NODE; an overlay that puts them on one root complex is contradicted by both other sources."""
    (tmp_path / "box.txt").write_text(text("box.txt"))
    (tmp_path / "box.yaml").write_text(
        "schema: pciesim/topology/1\nroot_complexes: [{name: a, gpus: [0, 1, 2]}, {name: b, gpus: [3]}]\n"
    )
    loaded = load_topology(tmp_path / "box.txt", None, [FOLDER / "lspci_tv.txt"])
    said = [str(each) for each in loaded.disagreements]
    assert any(
        each.startswith("root_complexes: [0, 1, 2] + [3] (box.yaml), [0, 1] + [2] + [3] (lspci") for each in said
    )
    assert "GPU0-GPU2: one root complex (box.yaml), NODE (the matrix); the first is used" in said
    shipped = (SHIPPED / "rtx6000x8_2switch_1root.txt").read_text()
    (tmp_path / "wrx.txt").write_text(shipped)
    (tmp_path / "wrx.yaml").write_text((SHIPPED / "rtx6000x8_2switch.yaml").read_text())
    assert findings(load_fabric(tmp_path / "wrx.txt"))[0] == (
        "GPU0-GPU4 and 15 more: printed PHB, so one host bridge, but on root_00 and root_20 by what is stated"
    )


def test_a_file_that_is_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("hello\n")
    with pytest.raises(InputError, match="is none of NCCL topology XML, nvidia-smi topo -p2p"):
        load_topology(FOLDER / "box.txt", None, [path])


def test_detection_joins_the_tools() -> None:
    """The tools' texts come from files; what is missing is remarked, not fatal."""
    answers = {
        "nvidia-smi topo -m": text("box.txt"),
        "nvidia-smi topo -p2p r": text("p2p_mixed.txt"),
        "nvidia-smi -q": text("smi_q.txt"),
        "lscpu": "Model name:   AMD EPYC 9575F 64-Core Processor\nSocket(s):    2\nHypervisor vendor:  KVM\n",
    }

    def run(command: Sequence[str]) -> str:
        words = " ".join(command)
        if words not in answers:
            raise InputError(f"'{command[0]}' is not installed here")
        return answers[words]

    found = detect(run, nullcontext, name="here")
    fabric = assemble(parse_matrix(found.text, source="here"), found.overlay, name="here")
    assert fabric.name == "here"
    assert fabric.host.cpu == "epyc_turin"
    assert not fabric.can_peer("GPU0", "GPU3")
    assert fabric.can_peer("GPU0", "GPU1")
    assert "lspci -vvv: 'lspci' is not installed here" in found.notes
    assert any("a virtual machine (KVM)" in note for note in found.notes)
    said = findings(fabric)
    assert "GPU2 has x8 of x16: large messages take twice as long" in said
    assert "GPU3 runs at Gen4, card and CPU can do Gen5" in said
    assert any(remark.startswith("the driver refuses peer-to-peer for 3 pairs (0-3, 1-3, 2-3)") for remark in said)


def test_detection_knows_a_hidden_cpu_by_its_numbers() -> None:
    """A virtual machine names its CPU 'Intel(R) Xeon(R) Processor'; family 6, model 207 is Emerald Rapids."""
    answers = {
        "nvidia-smi topo -m": "\tGPU0\tCPU Affinity\nGPU0\t X \t0-31\n",
        "lscpu": "Vendor ID:    GenuineIntel\nModel name:   Intel(R) Xeon(R) Processor\nCPU family:   6\nModel:  207\n",
    }

    def run(command: Sequence[str]) -> str:
        try:
            return answers[" ".join(command)]
        except KeyError:
            raise InputError("is not there") from None

    assert detect(run, nullcontext, name="here").overlay.host.cpu == "xeon_emr"


def test_remarks_on_narrow_slots(tmp_path: Path) -> None:
    (tmp_path / "box.txt").write_text(text("box.txt"))
    (tmp_path / "box.yaml").write_text("schema: pciesim/topology/1\ngpus: {2: {width: 4}}\n")
    fabric = load_fabric(tmp_path / "box.txt")
    assert "GPU2 has x4: a chipset slot or a riser, shared with other devices" in findings(fabric)
