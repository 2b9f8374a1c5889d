"""JSON, text and drawing of a fabric."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pciesim.fabric import Fabric
from pciesim.formats.profile_yaml import read_profile
from pciesim.formats.topology import load_fabric
from pciesim.physics import RouteCosts
from pciesim.reports.topology_json import to_json
from pciesim.reports.topology_pairs import link_latency, pair_classes
from pciesim.reports.topology_plot import to_svg
from pciesim.reports.topology_text import to_text

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "topologies").glob("*.txt"))
REFUSED = ("cut_word", "nic_notice_cut", "padded_cut", "reversed_range", "sixteen_cut")  # see test_topology_shapes
FIXTURES = sorted(
    path for path in (ROOT / "tests" / "fixtures" / "topologies").glob("*.txt") if path.stem not in REFUSED
)


@pytest.fixture(scope="module")
def costs() -> RouteCosts:
    return RouteCosts.of(read_profile(ROOT / "calibration" / "profiles" / "rtx_pro_6000.yaml"))


def load(name: str) -> Fabric:
    return load_fabric(ROOT / "topologies" / f"{name}.txt")


def report(fabric: Fabric, costs: RouteCosts) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(fabric, costs, profile="test"))
    return found


def test_json_keys_that_tools_rely_on(costs: RouteCosts) -> None:
    found = report(load("rtx6000x8_2switch"), costs)
    assert found["gpus"] == [f"GPU{number}" for number in range(8)]
    assert found["matrix"][0] == ["X", "PIX", "PIX", "PIX", "NODE", "NODE", "NODE", "NODE"]
    assert found["numa"] == [0] * 8
    assert found["nics"] == []
    assert found["islands"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert {"gpu", "switch", "root_port", "root_complex", "socket", "memory"} == {
        node["kind"] for node in found["nodes"]
    }
    names = {node["name"] for node in found["nodes"]}
    for link in found["links"]:
        assert {link["source"], link["target"]} <= names
        assert link["bandwidth_bytes_per_s"] > 0
        assert link["latency_s"] >= 0
    assert found["assumptions"] == []


def test_json_of_a_matrix_alone_says_what_was_assumed(costs: RouteCosts) -> None:
    found = report(load_fabric(ROOT / "tests" / "fixtures" / "topologies" / "many_nics.txt"), costs)
    assert found["numa"] == [0, 1]
    assert len(found["nics"]) == 40
    assert found["nic_labels"][3] == "mlx5_3"
    assert all(each["text"] and each["settle"] and each["matters"] for each in found["assumptions"])
    missing = report(load_fabric(ROOT / "tests" / "fixtures" / "topologies" / "wsl_no_affinity.txt"), costs)
    assert missing["numa"] == [None] * 6


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_link_latencies_add_up_to_the_route(path: Path, costs: RouteCosts) -> None:
    """Along a PCIe route between GPUs: sum of the links + one poll = store latency (two root complexes, one crossing).

    The profile's formula charges a root complex once, also when both sockets' are passed: each port-side link carries
    half, and there are two of those on any route through the CPU.
    """
    fabric = load_fabric(path)
    for one, other in pairwise(fabric.gpus):
        route = fabric.route(one.name, other.name, nvlink=False)
        total = sum(link_latency(fabric, costs, fabric.links[position]) for position in route.links)
        assert total + costs.poll == pytest.approx(costs.store(route))


def test_pairs_are_grouped_and_all_there(costs: RouteCosts) -> None:
    rows = pair_classes(load("asus_esc8000a_e13p"), costs)
    assert [(row.path_type, len(row.pairs), row.switches, row.socket_hops) for row in rows] == [
        ("PIX", 4, 1, 0),
        ("NODE", 8, 1, 0),
        ("SYS", 16, 2, 1),
    ]
    assert rows[0].store == rows[1].store < rows[2].store
    assert all(row.read <= row.write <= row.copy for row in rows)


@pytest.mark.parametrize("path", [*SHIPPED, *FIXTURES], ids=lambda path: path.stem)
def test_text_and_drawing_of_every_fixture(path: Path, costs: RouteCosts) -> None:
    fabric = load_fabric(path)
    text = to_text(fabric, costs, profile="test", width=80)
    assert all(gpu.name in text for gpu in fabric.gpus)
    assert all(line == line.rstrip() for line in text.splitlines())
    svg = to_svg(fabric)
    root = ElementTree.fromstring(svg)
    words = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert all(gpu.name in words for gpu in fabric.gpus)
    boxes = [element for element in root.iter() if element.tag.endswith("rect")]
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    for box in boxes:
        assert 0 <= float(box.get("x", 0)) <= float(box.get("x", 0)) + float(box.attrib["width"]) <= width
        assert 0 <= float(box.get("y", 0)) <= float(box.get("y", 0)) + float(box.attrib["height"]) <= height


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("path", [*SHIPPED, *FIXTURES], ids=lambda path: path.stem)
def test_nothing_is_clipped(path: Path, width: int, costs: RouteCosts) -> None:
    """Every cell of the matrix is printed whole, in blocks of columns where sixteen GPUs do not fit."""
    fabric = load_fabric(path)
    text = to_text(fabric, costs, profile="test", width=width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    section = text.split("\nMatrix\n")[1].split("\n\n")[0]
    cells = [cell for line in section.splitlines() for cell in line.split()[1:] if line.split()[0].startswith("GPU")]
    for word in ("PIX", "PXB", "PHB", "NODE", "SYS"):
        assert cells.count(word) == sum(row.count(word) for row in fabric.matrix)


def test_root_complexes_are_shown_where_they_say_something(costs: RouteCosts) -> None:
    one, two = (to_text(load(name), costs, profile="test") for name in ("rtx6000x8_2switch_1root", "rtx6000x8_2switch"))
    assert "root_00  root complex, 73.1 GB/s in all (quadrant0)" in one
    assert "2 switches + CPU " in one
    assert "root_20  root complex\n" in two
    assert "2 switches + 2 roots" in two
    assert "root complex" not in to_text(load("rtx6000x8"), costs, profile="test")
    assert ">root_00 (quadrant0 73.1 GB/s)<" in to_svg(load("rtx6000x8_2switch_1root"))


def test_many_nics_of_one_card_are_one_line(costs: RouteCosts) -> None:
    text = to_text(load_fabric(ROOT / "tests" / "fixtures" / "topologies" / "many_nics.txt"), costs, profile="test")
    assert len([line for line in text.splitlines() if "NIC" in line]) < 15


def test_a_slow_slot_is_drawn_in_red(tmp_path: Path) -> None:
    (tmp_path / "box.txt").write_text((ROOT / "topologies" / "rtx6000x4.txt").read_text())
    (tmp_path / "box.yaml").write_text("schema: pciesim/topology/1\ngpus: {2: {width: 8}}\n")
    svg = to_svg(load_fabric(tmp_path / "box.txt"))
    assert len(re.findall(r'fill="#c62828">Gen4 x8<', svg)) == 1


def test_names_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "box.txt").write_text((ROOT / "topologies" / "rtx6000x4.txt").read_text())
    (tmp_path / "box.yaml").write_text("schema: pciesim/topology/1\nname: '<b>&'\n")
    assert "<b>" not in to_svg(load_fabric(tmp_path / "box.txt"))
