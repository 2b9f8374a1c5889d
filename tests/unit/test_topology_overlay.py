"""What overlays state, and how their faults are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pciesim.errors import InputError, UnknownName
from pciesim.fabric import Fabric
from pciesim.formats.documents import validate_document
from pciesim.formats.topology import assemble, load_fabric
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix, parse_matrix
from pciesim.hardware import pcie_bandwidth
from pciesim.units import GB

ROOT = Path(__file__).parents[2]


def matrix(name: str) -> TopologyMatrix:
    path = ROOT / "topologies" / f"{name}.txt"
    return parse_matrix(path.read_text(), source=path.name)


def box(name: str, overlay: str) -> Fabric:
    document = validate_document(f"schema: pciesim/topology/1\n{overlay}", OverlayDocument, source="box.yaml")
    return assemble(matrix(name), document, name=name, overlay_source="box.yaml")


def refusal(overlay: str, name: str = "rtx6000x4") -> str:
    with pytest.raises(InputError) as caught:
        box(name, overlay)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unknown_key_has_file_line_column_and_the_nearest_valid() -> None:
    assert refusal("host: {cpu: EPYC 9575F}\nlnik: {generation: 5}\n").startswith(
        "box.yaml:3:1: unknown key 'lnik'; did you mean 'link'?"
    )
    assert refusal("gpus:\n  1: {widht: 8}\n").startswith("box.yaml:3:7: unknown key 'gpus.1.widht'")


def test_impossible_values() -> None:
    assert refusal("link: {generation: 9}\n").startswith("box.yaml:2:8: link.generation:")
    assert refusal("link: {width: 12}\n").startswith("box.yaml:2:8: link.width:")
    assert "write it like '54 GB/s'" in refusal("host: {memory_bandwidth: 460}\n")


def test_names_that_no_catalogue_has() -> None:
    assert "unknown GPU model 'rtx_pro_600'; did you mean 'rtx_pro_6000'?" in refusal("gpu: rtx_pro_600\n")
    assert "unknown CPU 'epyc_turn'; did you mean 'epyc_turin'?" in refusal("host: {cpu: epyc_turn}\n")
    with pytest.raises(UnknownName):
        box("rtx6000x4", "switches: [{name: a, gpus: [0, 1], model: microship}]\n")


def test_gpus_that_the_matrix_lacks() -> None:
    assert refusal("gpus: {4: {width: 8}}\n") == "box.yaml: GPU 4 is not in the matrix (valid: 0 to 3)"
    assert refusal("nics: {0: {width: 8}}\n") == "box.yaml: NIC 0 is not in the matrix (valid: none)"


def test_switches_that_contradict_themselves() -> None:
    assert "a GPU is listed behind two switches" in refusal(
        "switches: [{name: a, gpus: [0, 1]}, {name: b, gpus: [1]}]\n"
    )
    assert "switch 'a' is behind itself" in refusal("switches: [{name: a, behind: b}, {name: b, behind: a}]\n")
    assert "is behind 'c', which is no switch" in refusal("switches: [{name: a, gpus: [0], behind: c}]\n")


def test_a_narrow_slot_narrows_its_own_link_only() -> None:
    fabric = box("rtx6000x4", "link: {generation: 5, width: 16}\ngpus: {2: {width: 8}, 3: {generation: 4}}\n")
    rates = [fabric.link(gpu.name, f"root_port{gpu.index}").bandwidth for gpu in fabric.gpus]
    full = pcie_bandwidth(5, 16)
    assert rates == [full, full, full / 2, full / 2]


def test_a_halved_uplink_halves_what_leaves_the_switch_and_nothing_inside() -> None:
    switches = "switches: [{name: s, gpus: [0, 1, 2, 3], uplink: {generation: 5, width: 8}}]\n"
    fabric = box("rtx6000x4", switches + "link: {generation: 5, width: 16}\n")
    assert fabric.link("s", "root_port0").bandwidth == pcie_bandwidth(5, 8)
    assert fabric.link("GPU0", "s").bandwidth == pcie_bandwidth(5, 16)
    assert fabric.route("GPU0", "GPU3").links == (
        fabric.links.index(fabric.link("GPU0", "s")),
        fabric.links.index(fabric.link("s", "GPU3")),
    )


def test_an_added_switch_adds_one_switch_to_the_routes_through_it() -> None:
    """Root ports before (0 switches, 1 root complex); one GPU moved behind a switch: 1 switch on its routes only."""
    fabric = box("rtx6000x4", "switches: [{name: s, gpus: [3]}]\n")
    assert (fabric.route("GPU0", "GPU1").switches, fabric.route("GPU0", "GPU3").switches) == (0, 1)
    assert fabric.route("GPU0", "GPU3").root_complexes == 1


def test_acs_redirect_sends_peers_of_a_switch_through_the_root_complex() -> None:
    """GPU - switch - port - root complex and back: the switch twice, the uplink in both directions."""
    fabric = box("rtx6000x8_2switch", "host: {acs_redirect: true}\n")
    route = fabric.route("GPU0", "GPU1")
    assert (route.switches, route.root_complexes) == (2, 1)
    names = [(fabric.links[position].source, fabric.links[position].target) for position in route.links]
    assert ("switch0", "root_port0") in names
    assert ("root_port0", "switch0") in names
    assert fabric.route("GPU0", "GPU4").switches == 2


def test_quadrants_limit_all_their_root_ports_together() -> None:
    fabric = box("rtx6000x4", "quadrants: [{name: q0, gpus: [0, 1], bandwidth: 73.1 GB/s}]\n")
    up, down = (each for each in fabric.constraints if each.name.startswith("q0"))
    assert up.capacity == down.capacity == pytest.approx(73.1 * GB)
    assert up.links == (("root_port0", "root_complex0"), ("root_port1", "root_complex0"))
    assert fabric.constraints.index(up) in fabric.route("GPU1", "GPU2").constraints
    assert fabric.constraints.index(up) not in fabric.route("GPU2", "GPU3").constraints


def test_sockets_and_numa_can_be_stated() -> None:
    fabric = box("rtx6000x4", "host: {sockets: 2}\ngpus: {2: {socket: 1}, 3: {socket: 1}}\n")
    assert fabric.route("GPU0", "GPU3").socket_hops == 1
    moved = box("rtx6000x8", "host: {sockets: 1}\n")
    assert moved.route("GPU0", "GPU7").socket_hops == 0


def test_the_stock_driver_of_geforce_refuses_peers_unless_said_otherwise() -> None:
    stock = box("rtx4090x4", "gpu: rtx_4090\n")
    assert not stock.can_peer("GPU0", "GPU1")
    assert not stock.nccl.p2p
    assert any("stock driver refuses" in each.text for each in stock.assumptions)
    patched = box("rtx4090x4", "gpu: rtx_4090\np2p: {driver: true}\n")
    assert patched.can_peer("GPU0", "GPU1")
    assert patched.nccl.p2p


def test_without_the_registry_override_only_switch_peers_talk_directly() -> None:
    fabric = box("rtx6000x8_2switch", "gpu: rtx_pro_6000\np2p: {driver: true, registry_override: false}\n")
    assert fabric.can_peer("GPU0", "GPU3")
    assert not fabric.can_peer("GPU3", "GPU4")
    assert fabric.nccl.p2p


def test_small_bar1_forbids_peers() -> None:
    assert not box("rtx6000x4", "gpu: rtx_pro_6000\np2p: {driver: true, bar1: 256 MiB}\n").can_peer("GPU0", "GPU1")


def test_single_pairs_can_be_refused() -> None:
    fabric = box("rtx6000x4", "p2p: {driver: true, refused: [[0, 3]]}\n")
    assert not fabric.can_peer("GPU3", "GPU0")
    assert fabric.can_peer("GPU1", "GPU0")


def test_mixed_cards_take_their_own_generation() -> None:
    """Host Gen5: the 3090 is a Gen4 card, the 5090 a Gen5 one."""
    fabric = box("rtx6000x4", "gpu: rtx_5090\ngpus: {0: {model: rtx_3090}}\nhost: {cpu: EPYC 9575F}\n")
    assert fabric.gpu_model == "rtx_5090"
    assert fabric.link("GPU0", "root_port0").generation == 4
    assert fabric.link("GPU1", "root_port1").generation == 5


def test_an_overlay_given_wins_over_the_one_beside(tmp_path: Path) -> None:
    text = (ROOT / "topologies" / "rtx6000x4.txt").read_text()
    (tmp_path / "box.txt").write_text(text)
    (tmp_path / "box.yaml").write_text("schema: pciesim/topology/1\nlink: {generation: 5, width: 16}\n")
    (tmp_path / "other.yaml").write_text("schema: pciesim/topology/1\nlink: {generation: 3, width: 16}\n")
    beside = load_fabric(tmp_path / "box.txt")
    given = load_fabric(tmp_path / "box.txt", tmp_path / "other.yaml")
    assert beside.link("GPU0", "root_port0").generation == 5
    assert given.link("GPU0", "root_port0").generation == 3


def test_an_overlay_is_no_topology(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("schema: pciesim/topology/1\n")
    with pytest.raises(InputError, match="is an overlay; give the topology text"):
        load_fabric(path)
