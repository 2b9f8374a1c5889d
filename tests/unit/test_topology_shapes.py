"""Odd shapes in which people paste ``nvidia-smi topo -m``: each fixture's graph, derived by hand from its cells.

The texts are the project's own; the oddities are those of real pastes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pciesim.errors import InputError
from pciesim.fabric import DeviceKind, Fabric, LinkKind
from pciesim.formats.topology import load_fabric

FOLDER = Path(__file__).parents[1] / "fixtures" / "topologies"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the graph of a fixture must be. ``crossing``: GPU pair, switches, root complexes, socket hops over PCIe."""

    name: str
    sockets: str  # the socket of each GPU, a digit each
    islands: tuple[tuple[int, ...], ...] = ()
    switches: int = 0
    nvlinks: tuple[str, ...] = ()  # 'one-other:links'
    crossing: tuple[tuple[int, int], int, int, int] | None = None
    nics: int = 0


SHAPES = (
    # A log writes a time before every line and {} for empty ones; cells are one blank apart. NV18 to all three peers
    # makes 54 links, more than a GPU has: an NVSwitch.
    Shape(
        name="log_prefix",
        sockets="0011",
        nvlinks=("0-1:18", "0-2:18", "0-3:18", "1-2:18", "1-3:18", "2-3:18"),
        crossing=((0, 3), 0, 2, 1),
    ),
    # Windows: no affinity at all, every pair SYS. Six host bridges of one socket are likelier than six sockets.
    Shape(name="wsl_no_affinity", sockets="000000", crossing=((0, 5), 0, 1, 0)),
    # GPU memory is a NUMA node of its own (4, 12, ...); the socket is told by NUMA affinity, not by that number.
    Shape(
        name="coherent_gpus",
        sockets="0011",
        nvlinks=("0-1:18", "0-2:18", "0-3:18", "1-2:18", "1-3:18", "2-3:18"),
        crossing=((1, 2), 0, 2, 1),
    ),
    # NV8, NV6 and NV4 on one board; links follow the cells, PIX is printed for 4-5 and 6-7 only.
    Shape(
        name="mixed_nvlinks",
        sockets="00001111",
        islands=((4, 5), (6, 7)),
        switches=2,
        nvlinks=("0-1:8", "0-2:4", "0-3:6", "1-3:4", "2-3:8"),
        crossing=((4, 5), 1, 0, 0),
    ),
    # One dead link: GPU5 has 17 to everybody.
    Shape(
        name="dead_nvlink",
        sockets="00001111",
        nvlinks=tuple(
            f"{one}-{other}:{17 if 5 in (one, other) else 18}" for one in range(8) for other in range(one + 1, 8)
        ),
    ),
    # Bridged pairs on four root ports a socket.
    Shape(
        name="nvlink_pairs",
        sockets="00001111",
        nvlinks=("0-1:4", "2-3:4", "4-5:4", "6-7:4"),
        crossing=((1, 2), 0, 1, 0),
    ),
    Shape(name="one_bridge", sockets="0000", nvlinks=("0-2:4",), crossing=((0, 2), 0, 1, 0)),
    # Ten cards: on each socket one on a root port and four behind a switch.
    Shape(
        name="ten_gpus",
        sockets="0000011111",
        islands=((1, 2, 3, 4), (6, 7, 8, 9)),
        switches=2,
        crossing=((0, 1), 1, 1, 0),
    ),
    Shape(name="mixed_cards", sockets="000000", crossing=((4, 5), 0, 1, 0)),
    # Forty virtual functions: PIX among NICs only is one card on one root port, not a switch of the GPUs.
    Shape(name="many_nics", sockets="01", nics=40, crossing=((0, 1), 0, 2, 1)),
    # mlx5_N columns, no GPU NUMA ID; the GPU pair is PXB and so is its NIC: one chip with nested bridges.
    Shape(
        name="old_driver_mlx5", sockets="0011", islands=((0, 1), (2, 3)), switches=2, nics=2, crossing=((0, 1), 1, 0, 0)
    ),
    # 'NIC3CPU Affinity'. Each GPU shares a switch with its NIC.
    Shape(
        name="glued_header",
        sockets="0011",
        switches=4,
        nics=4,
        nvlinks=("0-1:18", "0-2:18", "0-3:18", "1-2:18", "1-3:18", "2-3:18"),
        crossing=((0, 1), 2, 1, 0),
    ),
    # A pipe table; one CPU list for all, no NUMA column: one socket, SYS is between its host bridges.
    Shape(name="markdown_table", sockets="00000", crossing=((0, 4), 0, 1, 0)),
    # SOC is the old word for the link between sockets. GPU names run together in the header, NICs stand out of order.
    # NV1 hides the pairs' PCIe path, but both are PIX to one NIC, so they are PIX to each other.
    Shape(
        name="soc_glued_header",
        sockets="0011",
        islands=((0, 1), (2, 3)),
        switches=2,
        nics=2,
        nvlinks=("0-1:1", "2-3:1"),
        crossing=((1, 2), 2, 2, 1),
    ),
    Shape(name="degenerate_ranges", sockets="0011", nvlinks=("0-1:2", "2-3:2"), crossing=((0, 3), 0, 2, 1)),
    # The escape stands before the first tab; four GPUs on one socket, two on the other.
    Shape(
        name="ansi_before_tab",
        sockets="000011",
        islands=((0, 1), (2, 3), (4, 5)),
        switches=3,
        crossing=((0, 2), 2, 1, 0),
    ),
    Shape(name="irregular_6_and_2", sockets="00000011", crossing=((0, 5), 0, 1, 0)),
    # SYS everywhere; only the NUMA column tells the sockets, and SYS inside a node crosses no socket link.
    Shape(name="all_sys", sockets="00001111", crossing=((0, 1), 0, 1, 0)),
    # A virtual machine prints NUMA affinity 0-1 for every GPU: not known.
    Shape(name="numa_range", sockets="00000000", crossing=((0, 7), 0, 1, 0)),
    # NIC rows end in four tabs. Two GPUs and two NICs share each switch (both NICs are PIX to both GPUs).
    Shape(
        name="nic_trailing_tabs",
        sockets="0000",
        islands=((0, 1), (2, 3)),
        switches=2,
        nics=4,
        nvlinks=("0-1:18", "0-2:18", "0-3:18", "1-2:18", "1-3:18", "2-3:18"),
        crossing=((0, 1), 1, 0, 0),
    ),
    Shape(name="indented", sockets="00", crossing=((0, 1), 0, 1, 0)),
    # Both on NUMA node 1, and yet SYS.
    Shape(name="sys_inside_node", sockets="11", crossing=((0, 1), 0, 1, 0)),
    # A web page joined all lines into one. Bridged pairs are 0-2 and 1-3.
    Shape(name="one_line", sockets="0000", nvlinks=("0-2:4", "1-3:4"), crossing=((0, 1), 0, 1, 0)),
    # Tabs lost: cells run together, and '0-150' could be 0-15 on node 0 or 0-150; the affinity is left out.
    Shape(name="glued_cells", sockets="0000", islands=((0, 1), (2, 3)), switches=2, crossing=((0, 2), 2, 1, 0)),
    # GPU2 reports no links where GPU0 and GPU1 report six: they are down.
    Shape(name="one_sided_nvlink", sockets="001", nvlinks=("0-1:6",), crossing=((0, 2), 0, 2, 1)),
    Shape(name="virtual_machine", sockets="0000", crossing=((0, 3), 0, 1, 0)),
    # NUMA nodes 3, 1, 7, 5: four to a socket. NVLink hides the pairs, PXB to the same NICs bounds them by PXB.
    Shape(
        name="four_nodes_a_socket",
        sockets="00001111",
        islands=((0, 1), (2, 3), (4, 5), (6, 7)),
        switches=4,
        nics=8,
        nvlinks=tuple(f"{one}-{other}:12" for one in range(8) for other in range(one + 1, 8)),
        crossing=((0, 2), 2, 1, 0),
    ),
    # PIX pairs under PXB fours: four switches under two more; NODE between the fours.
    Shape(
        name="switch_tree",
        sockets="00000000",
        islands=((0, 1), (2, 3), (4, 5), (6, 7)),
        switches=6,
        crossing=((0, 2), 3, 0, 0),
    ),
    # Two columns run together where a terminal wrapped. A GPU and a NIC that are PXB share one chip.
    Shape(
        name="run_together",
        sockets="0000",
        switches=4,
        nics=4,
        nvlinks=("0-1:18", "0-2:18", "0-3:18", "1-2:18", "1-3:18", "2-3:18"),
    ),
    Shape(name="numa_word", sockets="0011", islands=((0, 1), (2, 3)), switches=2, crossing=((1, 2), 2, 2, 1)),
    Shape(name="header_on_command_line", sockets="00", crossing=((0, 1), 0, 1, 0)),
    Shape(name="crlf", sockets="00", islands=((0, 1),), switches=1, crossing=((0, 1), 1, 0, 0)),
    Shape(name="single_gpu", sockets="0"),
    # Sub-NUMA clustering: nodes 0 and 2 are the first of each socket.
    Shape(name="interleaved_sub_numa", sockets="01", crossing=((0, 1), 0, 2, 1)),
)
REFUSED = {
    "cut_word": ":7:6: row NIC1: unknown connection type 'PH'",
    "nic_notice_cut": ":5: the matrix is cut: the row of GPU2 has 1 of 10 connection types",
    "padded_cut": ":4: the matrix is cut: the header names 6 devices, but no row for GPU3 follows",
    "sixteen_cut": ":5: the matrix is cut: the header names 16 devices, but no row for GPU4 follows",
    "reversed_range": ":4: the range 47-32 runs backwards",
}


def sockets_of(fabric: Fabric) -> str:
    names = [socket.name for socket in fabric.of_kind(DeviceKind.SOCKET)]
    nearest = [min(names, key=lambda name: len(fabric.route(gpu.name, name).links)) for gpu in fabric.gpus]
    return "".join(name.removeprefix("socket") for name in nearest)


def test_every_fixture_is_expected_or_refused() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {shape.name for shape in SHAPES} | set(REFUSED)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_graph(shape: Shape) -> None:
    fabric = load_fabric(FOLDER / f"{shape.name}.txt")
    assert sockets_of(fabric) == shape.sockets
    assert fabric.islands == shape.islands
    assert len(fabric.of_kind(DeviceKind.SWITCH)) == shape.switches
    assert len(fabric.nics) == shape.nics
    bridges = {
        f"{fabric.device(link.source).index}-{fabric.device(link.target).index}:{link.width}"
        for link in fabric.links
        if link.kind is LinkKind.NVLINK and link.source < link.target
    }
    assert bridges == set(shape.nvlinks)
    if shape.crossing is not None:
        (one, other), switches, root_complexes, socket_hops = shape.crossing
        route = fabric.route(f"GPU{one}", f"GPU{other}", nvlink=False)
        assert (route.switches, route.root_complexes, route.socket_hops) == (switches, root_complexes, socket_hops)


@pytest.mark.parametrize("name", REFUSED)
def test_damage_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(InputError) as caught:
        load_fabric(FOLDER / f"{name}.txt")
    assert f"{name}.txt{REFUSED[name]}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dead_link_lowers_the_switch_port_it_is_on() -> None:
    """GPU5 has 17 of 18 links into the NVSwitch: 17 x 25 GB/s out and in, shared by all its peers."""
    fabric = load_fabric(FOLDER / "dead_nvlink.txt")
    capacity = {constraint.name: constraint.capacity for constraint in fabric.constraints}
    assert capacity["nvlink_out_GPU5"] == capacity["nvlink_in_GPU5"] == 17 * 25e9
    assert capacity["nvlink_out_GPU0"] == 18 * 25e9
    assert len(next(each for each in fabric.constraints if each.name == "nvlink_out_GPU0").links) == 7


def test_assumptions_name_their_cells_and_how_to_settle_them() -> None:
    for shape in SHAPES:
        for assumption in load_fabric(FOLDER / f"{shape.name}.txt").assumptions:
            assert assumption.text
            assert assumption.settle, assumption.text
            assert assumption.matters, assumption.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("all_sys", "SYS inside one NUMA node is a crossing of host bridges, not of sockets (GPU0-GPU1 SYS"),
        ("virtual_machine", "all pairs are PHB (GPU0-GPU1 PHB"),
        ("switch_tree", "switch4 joins 2 switches of GPU0 to GPU3 under one uplink (GPU0-GPU2 PXB"),
        ("ansi_before_tab", "different switches of a socket meet at the root complex (GPU0-GPU2 NODE"),
        ("ansi_before_tab", "GPUs of one switch share one Gen4 x16 uplink, switch0: GPU0, GPU1; switch1"),
        ("four_nodes_a_socket", "4 NUMA nodes per socket, 2 sockets (NUMA column goes up to 7)"),
        ("markdown_table", "1 socket, told by equal CPU lists"),
        ("wsl_no_affinity", "1 socket, because nothing tells of more"),
        ("wsl_no_affinity", "which WSL prints whatever the wiring"),
        ("one_sided_nvlink", "GPU0-GPU2 is NV6 in one direction and SYS in the other"),
        ("glued_cells", "'0-150N/A' has lost its separators: the affinity is left out"),
        ("log_prefix", "an NVSwitch: one set of links per GPU, shared by all its peers (GPU0-GPU1 NV18"),
        (
            "old_driver_mlx5",
            "PXB at switch0, switch1 is inside one chip, which shows its bridges nested (GPU0-GPU1 PXB",
        ),
    ],
)
def test_known_traps_are_said(name: str, words: str) -> None:
    texts = [assumption.text for assumption in load_fabric(FOLDER / f"{name}.txt").assumptions]
    assert any(words in text for text in texts), texts
