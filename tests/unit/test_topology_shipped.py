"""The shipped topologies: hand-derived facts of each, and their text as nvidia-smi prints it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pciesim.fabric import DeviceKind, Fabric
from pciesim.formats.topology import load_fabric
from pciesim.formats.topology_smi import parse_matrix, render_matrix
from pciesim.hardware import pcie_bandwidth
from pciesim.units import GB

FOLDER = Path(__file__).parents[2] / "topologies"


def load(name: str) -> Fabric:
    return load_fabric(FOLDER / f"{name}.txt")


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """What the PCIe route between two GPUs crosses, counted by hand on a drawing of the box."""

    topology: str
    pair: tuple[int, int]
    path_type: str
    switches: int
    root_complexes: int
    socket_hops: int


CROSSINGS = (
    # Direct attach: root port - root complex - root port within a socket; both root complexes and the link across.
    Crossing(topology="rtx6000x8", pair=(0, 3), path_type="NODE", switches=0, root_complexes=1, socket_hops=0),
    Crossing(topology="rtx6000x8", pair=(0, 4), path_type="SYS", switches=0, root_complexes=2, socket_hops=1),
    # Two switches: inside one, or up one uplink, through the root complex and down the other.
    Crossing(topology="rtx6000x8_2switch", pair=(0, 3), path_type="PIX", switches=1, root_complexes=0, socket_hops=0),
    # The two switches are on a root complex each, or share one: passed are two or one, crossed is one.
    Crossing(topology="rtx6000x8_2switch", pair=(3, 4), path_type="NODE", switches=2, root_complexes=2, socket_hops=0),
    Crossing(
        topology="rtx6000x8_2switch_1root", pair=(3, 4), path_type="PHB", switches=2, root_complexes=1, socket_hops=0
    ),
    Crossing(
        topology="rtx6000x16_4switch", pair=(0, 15), path_type="NODE", switches=2, root_complexes=2, socket_hops=0
    ),
    # Partitions of one chip: printed NODE, but inside the chip, which counts as one switch.
    Crossing(topology="asus_esc8000a_e13p", pair=(0, 1), path_type="PIX", switches=1, root_complexes=0, socket_hops=0),
    Crossing(topology="asus_esc8000a_e13p", pair=(1, 2), path_type="NODE", switches=1, root_complexes=0, socket_hops=0),
    Crossing(topology="asus_esc8000a_e13p", pair=(0, 7), path_type="SYS", switches=2, root_complexes=2, socket_hops=1),
    Crossing(topology="rtx6000x4", pair=(0, 3), path_type="NODE", switches=0, root_complexes=1, socket_hops=0),
    Crossing(topology="rtx4090x4", pair=(1, 2), path_type="NODE", switches=0, root_complexes=1, socket_hops=0),
    # NVLink hides the path; one NUMA node, nothing says switch: two root ports of one socket.
    Crossing(topology="h200x2", pair=(0, 1), path_type="PHB", switches=0, root_complexes=1, socket_hops=0),
)


@pytest.mark.parametrize("case", CROSSINGS, ids=lambda case: f"{case.topology}-{case.pair[0]}-{case.pair[1]}")
def test_crossings(case: Crossing) -> None:
    fabric = load(case.topology)
    one, other = (fabric.gpus[index].name for index in case.pair)
    for route in (fabric.route(one, other, nvlink=False), fabric.route(other, one, nvlink=False)):
        assert (route.path_type, route.switches, route.root_complexes, route.socket_hops) == (
            case.path_type,
            case.switches,
            case.root_complexes,
            case.socket_hops,
        )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_text_is_byte_true(path: Path) -> None:
    """Tabs, underlined header and legend exactly as the driver prints them; and an overlay beside each."""
    text = path.read_text()
    assert render_matrix(parse_matrix(text, source=path.name)) == text
    assert text.startswith("\t\x1b[4mGPU0\t")
    assert path.with_suffix(".yaml").is_file()


def test_links_have_the_line_rate_of_their_standard() -> None:
    """Gen5 x16: 32 GT/s x 16 lanes x 128/130 / 8 bits = 63.015 GB/s per direction; Gen4 half of it."""
    assert load("rtx6000x8").link("GPU0", "root_port0").bandwidth == pytest.approx(63.015 * GB, rel=1e-5)
    assert load("rtx4090x4").link("GPU0", "root_port0").bandwidth == pytest.approx(31.508 * GB, rel=1e-5)
    assert load("h200x2").link("GPU0", "GPU1").bandwidth == 18 * 25 * GB


def test_uplink_is_shared() -> None:
    """Four GPUs of one switch reach the other switch through the same two uplink links."""
    fabric = load("rtx6000x8_2switch")
    uplinks = [set(fabric.route(f"GPU{a}", f"GPU{a + 4}").links) for a in range(4)]
    shared = set.intersection(*uplinks)
    names = {(fabric.links[position].source, fabric.links[position].target) for position in shared}
    assert ("switch0", "root_port0") in names
    assert ("root_port1", "switch1") in names


def test_host_memory_is_that_of_the_own_numa_node() -> None:
    fabric = load("rtx6000x8")
    assert [fabric.memory_of(gpu.name).name for gpu in fabric.gpus] == ["memory0"] * 4 + ["memory1"] * 4
    route = fabric.route("GPU5", "memory1")
    assert (route.root_complexes, route.socket_hops) == (1, 0)
    assert fabric.route("GPU5", "memory0").socket_hops == 1


def test_nccl_environment_and_collapse_come_from_the_overlay() -> None:
    assert load("rtx6000x8").nccl.graph_file
    assert load("rtx6000x8").nccl.p2p_level == "SYS"
    assert not load("h200x2_shm").nccl.p2p
    assert load("h200x2").nccl.p2p
    assert load("asus_esc8000a_e13p").write_collapse == 2
    assert load("rtx6000x8").host.vendor == "amd"
    assert load("rtx6000x8").host.nccl_socket_bandwidth == 16 * GB
    assert load("h200x2").host.nccl_socket_bandwidth == 40 * GB


def test_islands() -> None:
    assert load("rtx6000x8").islands == ()
    assert load("rtx6000x8_2switch").islands == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert load("asus_esc8000a_e13p").islands == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_chip_partitions_are_joined_inside() -> None:
    """PEX89144: 144 lanes Gen5, far above any uplink, so the inside of the chip never limits."""
    fabric = load("asus_esc8000a_e13p")
    assert fabric.link("vs0", "vs1").bandwidth == pcie_bandwidth(5, 144)
    kinds = [fabric.device(fabric.links[position].target).kind for position in fabric.route("GPU0", "GPU3").links]
    assert kinds == [DeviceKind.SWITCH, DeviceKind.SWITCH, DeviceKind.GPU]
