"""What overlays state, and how their faults are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pciesim.api import box_profile
from pciesim.collectives.nccl_model import nccl_path_type
from pciesim.errors import InputError, UnknownName
from pciesim.fabric import DeviceKind, Fabric
from pciesim.formats.documents import validate_document
from pciesim.formats.profile_yaml import read_profile
from pciesim.formats.topology import assemble, load_fabric
from pciesim.formats.topology_check import findings
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix, parse_matrix
from pciesim.hardware import pcie_bandwidth
from pciesim.physics import RouteCosts
from pciesim.profile import UNMEASURED
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


ROOTS = "root_complexes: [{name: a, gpus: [0, 1]}, {name: b, gpus: [2]}]\n"


def test_root_complexes_hold_what_they_list_and_the_rest_stays_on_the_sockets_own() -> None:
    """GPU0 and GPU1 turn in a; GPU1 to GPU2 passes a, the socket and b; GPU3 is on the one nobody stated."""
    fabric = box("rtx6000x4", ROOTS)
    assert [each.name for each in fabric.of_kind(DeviceKind.ROOT_COMPLEX)] == ["root_complex0", "a", "b"]

    def passed(one: str, other: str) -> list[str]:
        names = [fabric.links[position].target for position in fabric.route(one, other).links]
        return [name for name in names if not name.startswith(("GPU", "root_port"))]

    assert passed("GPU0", "GPU1") == ["a"]
    assert passed("GPU1", "GPU2") == ["a", "socket0", "b"]
    assert passed("GPU2", "GPU3") == ["b", "socket0", "root_complex0"]
    assert fabric.route("GPU1", "GPU2").root_complexes == 2
    assert passed("GPU2", "memory0") == ["b", "socket0", "memory0"]


def test_two_root_complexes_of_a_socket_cost_one_crossing() -> None:
    """Flag ping-pong between two switches takes 1.062 us on one root complex and 1.072 us on two (WRX90)."""
    costs = RouteCosts.of(read_profile(ROOT / "calibration" / "profiles" / "rtx_pro_6000.yaml"))
    shared, apart = (box("rtx6000x4", text).route("GPU0", "GPU2") for text in ("", ROOTS))
    assert costs.store(shared) == costs.store(apart)
    assert costs.load(shared) == costs.load(apart)


def test_words_follow_the_root_complexes_where_the_matrix_shows_nvlink() -> None:
    """PHB within a host bridge, NODE between two of one NUMA node; NCCL calls both PHB."""
    fabric = box("h200x2", "")
    assert fabric.route("GPU0", "GPU1", nvlink=False).path_type == "PHB"
    fabric = box("h200x2", "root_complexes: [{name: a, gpus: [0]}, {name: b, gpus: [1]}]\n")
    route = fabric.route("GPU0", "GPU1", nvlink=False)
    assert (route.path_type, nccl_path_type(route)) == ("NODE", "PHB")


def test_a_gpu_behind_a_switch_stands_for_the_switch() -> None:
    fabric = box("rtx6000x8_2switch", "root_complexes: [{name: a, gpus: [0]}, {name: b, switches: [switch1]}]\n")
    assert fabric.link("root_port0", "a").bandwidth == fabric.link("switch0", "root_port0").bandwidth
    assert fabric.route("GPU3", "GPU4").root_complexes == 2


def test_what_a_root_complex_carries_limits_what_leaves_it_only() -> None:
    fabric = box("rtx6000x4", "root_complexes: [{name: a, gpus: [0, 1], bandwidth: 73.1 GB/s}]\n")
    up = fabric.link("a", "socket0")
    assert up.bandwidth == fabric.link("socket0", "a").bandwidth == pytest.approx(73.1 * GB)
    assert fabric.links.index(up) in fabric.route("GPU0", "memory0").links
    assert fabric.links.index(up) not in fabric.route("GPU0", "GPU1").links
    # Nobody stated it for the other: never less than its ports or the memory can do.
    rest = fabric.link("root_complex0", "socket0").bandwidth
    assert rest >= max(2 * pcie_bandwidth(5, 16), fabric.link("socket0", "memory0").bandwidth)


def test_quadrants_limit_all_their_root_complexes_together() -> None:
    fabric = box("rtx6000x4", ROOTS + "quadrants: [{name: q0, root_complexes: [a, b], bandwidth: 73.1 GB/s}]\n")
    up, down = (each for each in fabric.constraints if each.name.startswith("q0"))
    assert up.capacity == down.capacity == pytest.approx(73.1 * GB)
    assert up.links == (("a", "socket0"), ("b", "socket0"))
    assert fabric.constraints.index(up) in fabric.route("GPU1", "GPU2").constraints
    assert fabric.constraints.index(up) in fabric.route("GPU2", "memory0").constraints
    assert fabric.constraints.index(up) not in fabric.route("GPU0", "GPU1").constraints


def test_root_complexes_that_contradict_themselves() -> None:
    assert "root complexes 'a' and 'b' both hold GPU1" in refusal(
        "root_complexes: [{name: a, gpus: [0, 1]}, {name: b, gpus: [1]}]\n"
    )
    assert "root complex 'a' is on socket 0, but GPU4 is on socket 1" in refusal(
        "root_complexes: [{name: a, gpus: [0, 4]}]\n", "rtx6000x8"
    )
    assert "unknown switch 'switch7'; did you mean 'switch1'?" in refusal(
        "root_complexes: [{name: a, switches: [switch7]}]\n", "rtx6000x8_2switch"
    )
    assert "two root complexes have one name" in refusal("root_complexes: [{name: a}, {name: a}]\n")
    assert "'c' is no root complex of this file (valid: a, b)" in refusal(
        ROOTS + "quadrants: [{name: q, root_complexes: [c], bandwidth: 9 GB/s}]\n"
    )
    assert "two devices named 'GPU0'" in refusal("root_complexes: [{name: GPU0, gpus: [1]}]\n")


def test_a_root_complex_may_state_the_socket_of_what_it_holds() -> None:
    fabric = box("rtx6000x4", "root_complexes: [{name: far, gpus: [2, 3], socket: 1}]\n")
    assert fabric.route("GPU0", "GPU3").socket_hops == 1
    switched = box(
        "rtx6000x4", "switches: [{name: s, gpus: [3]}]\nroot_complexes: [{name: far, switches: [s], socket: 1}]\n"
    )
    assert switched.route("GPU2", "GPU3").socket_hops == 1


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


def test_the_registry_override_forbids_no_peer() -> None:
    """Kernels that load from peers ran without it, slowly: so the driver had granted them."""
    fabric = box("rtx6000x8_2switch", "gpu: rtx_pro_6000\np2p: {driver: true, registry_override: false}\n")
    assert fabric.can_peer("GPU0", "GPU3")
    assert fabric.can_peer("GPU3", "GPU4")
    assert fabric.nccl.p2p
    assert not fabric.registry_override
    assert any("ForceP2P" in each for each in findings(fabric))
    assert box("rtx6000x4", "gpu: rtx_pro_6000\n").registry_override, "taken as set where nothing is stated"


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


def test_a_box_names_its_profile_or_a_file_beside_it(tmp_path: Path) -> None:
    text = (ROOT / "topologies" / "rtx6000x4.txt").read_text(encoding="utf-8")
    own = (
        (ROOT / "calibration" / "profiles" / "h200.yaml")
        .read_text(encoding="utf-8")
        .replace("name: h200", "name: mine")
    )
    (tmp_path / "box.txt").write_text(text, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(own, encoding="utf-8")
    for stated, name in (("mine.yaml", "mine"), ("rtx_4090", "rtx_4090")):
        (tmp_path / "box.yaml").write_text(
            f"schema: pciesim/topology/1\ngpu: rtx_pro_6000\nprofile: {stated}\n", encoding="utf-8"
        )
        assert box_profile(load_fabric(tmp_path / "box.txt")).name == name
    (tmp_path / "box.yaml").write_text("schema: pciesim/topology/1\ngpu: rtx_pro_6000\n", encoding="utf-8")
    prior = box_profile(load_fabric(tmp_path / "box.txt"))
    assert prior.name == "rtx_pro_6000 (no measurements of this box)"
    assert UNMEASURED in prior


def test_a_root_complex_named_as_another_sockets_own_does_not_take_its_ports() -> None:
    """root_complex1 is what the rest of socket 1 would be called; here somebody calls one of socket 0 so."""
    fabric = box("rtx6000x8", "host: {sockets: 2}\nroot_complexes:\n  - {name: root_complex1, gpus: [0], socket: 0}\n")
    assert fabric.route("GPU0", "GPU4").socket_hops == 1
    assert fabric.route("GPU4", "GPU5").root_complexes == 1
    assert "root_complex1" not in [link.target for link in fabric.links if link.source == "socket1"]
