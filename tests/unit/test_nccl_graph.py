"""NCCL graph files: written, read again, checked; and what the environment that mends a bad choice is worth."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from pciesim.errors import InputError
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.fabric import NcclEnvironment
from pciesim.formats.nccl_graph_xml import graph_text, read_graph
from pciesim.nccl_explain import check_graph, explain, graph_file, mend
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, KIB
from tests.support.fabrics import box
from tests.support.profiles import round_profile

LOST = NcclEnvironment(p2p_level="SYS")


def timer(groups, **more):
    fabric = box(groups, **more)
    return CollectiveTimer(fabric=fabric, gpus=tuple(gpu.name for gpu in fabric.gpus), compute_capability=120,
                           profile=round_profile())  # fmt: skip


def two_sockets(**more):
    return timer([[0, 1, 2, 3], [4, 5, 6, 7]], sockets=[0, 1], nccl=LOST, **more)


def test_a_written_file_is_read_again(tmp_path):
    graph = graph_file(two_sockets())
    assert graph.ring == tuple(range(8))
    assert graph.channels * graph.speed == pytest.approx(60 * GB)  # of a Gen5 x16 link's 63
    path = tmp_path / "graph.xml"
    path.write_text(graph_text(graph))
    assert read_graph(path) == graph
    assert check_graph(graph, two_sockets()) == ()
    root = ElementTree.parse(path).getroot()
    assert [each.get("pattern") for each in root] == ["4", "1"]


def test_a_ring_that_zigzags_is_refused():
    zigzag = replace(graph_file(two_sockets()), ring=(0, 4, 1, 5, 2, 6, 3, 7))
    switched = timer([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True, nccl=LOST)
    faults = check_graph(zigzag, switched)
    assert any("switch0 -> port0 would carry 4" in fault for fault in faults)
    assert check_graph(replace(zigzag, ring=(0, 1, 2)), switched)


@pytest.mark.parametrize(
    ("text", "message"),
    [("<graphs", "is not XML"), ("<system/>", "has no ring"), ('<graphs><graph id="0"/></graphs>', "no channel"),
     ('<graphs><graph id="0" speedintra="x"><channel><gpu dev="0"/></channel></graph></graphs>', "not a rate"),
     ('<graphs><graph id="0" speedintra="9"><channel><gpu dev="a"/></channel></graph></graphs>', "not a GPU number"),
     ('<graphs><graph id="0" speedintra="9"><channel><gpu dev="0"/></channel><channel><gpu dev="1"/></channel></graph>'
      "</graphs>", "same GPUs")],
)  # fmt: skip
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "graph.xml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_graph(path)


def test_what_mends_the_fallback():
    """On dual Turin owners measure 48 us without and 26 us with a graph file at 32 KiB."""
    remedy = mend(two_sockets(), [8 * KIB, 32 * KIB, 64 * KIB], path="graph.xml")
    assert ("NCCL_GRAPH_FILE", "graph.xml") in remedy.variables
    # Round profile: 14 fences of 0.8 to 1.0 us and 2 us of Simple's own go.
    assert all(after < 0.7 * before for before, after in zip(remedy.before, remedy.after, strict=True))


def test_a_good_choice_is_left_alone():
    remedy = mend(timer([[0, 1, 2, 3]], switched=True, nccl=NcclEnvironment(p2p_level="SYS")), [8 * KIB], path="g.xml")
    assert remedy.variables == ()
    assert remedy.before == remedy.after


def test_the_explanation_shows_every_option():
    told = explain(two_sockets(), CollectiveKind.ALL_REDUCE, [2 * KIB, 64 * KIB])
    assert told.plan.ring.fallback
    assert told.paths[0, 1] == "PHB"
    assert told.paths[0, 4] == "SYS"
    small, large = told.sizes
    assert small.table[small.chosen].protocol == "LL"
    assert large.table[large.chosen].protocol == "Simple"
    assert large.times[large.best] < large.times[large.chosen]
    assert len(large.table) == 4


@pytest.mark.corpus
def test_a_graph_that_microsoft_ships(shared):
    graph = read_graph(shared / "measured" / "pcie_boxes" / "nccl_xml" / "azure-ncv4-graph.xml")
    assert (graph.ring, graph.channels, graph.speed, graph.type_intra) == ((0, 1, 2, 3), 2, 12 * GB, "SYS")
