"""Random machines: text to fabric to text, and fabric to text with overlay to fabric, are identities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pciesim.fabric import DeviceKind, Fabric
from pciesim.formats.documents import validate_document
from pciesim.formats.nccl_xml import read_nccl_xml, write_nccl_xml
from pciesim.formats.topology import assemble
from pciesim.formats.topology_infer import infer
from pciesim.formats.topology_overlay import OverlayDocument, QuadrantEntry, RootComplexEntry
from pciesim.formats.topology_render import fabric_matrix, fabric_overlay, render_overlay
from pciesim.formats.topology_smi import TopologyMatrix, parse_matrix, render_matrix

WIDTHS = st.sampled_from([4, 8, 16])
GENERATIONS = st.sampled_from([3, 4, 5])


@st.composite
def matrices(draw: st.DrawFn) -> TopologyMatrix:
    """A machine as a tree (socket, port, switch, card), printed by hand: the words follow from where paths meet."""
    sockets = draw(st.integers(1, 2))
    places: list[tuple[int, int, int]] = []  # (socket, port, switch) of each GPU, then of each NIC
    count = draw(st.integers(1, 9))
    for _ in range(count):
        places.append((draw(st.integers(0, sockets - 1)), draw(st.integers(0, 2)), draw(st.integers(0, 2))))
    places.sort()
    nics = draw(st.integers(0, 3))
    places += [
        (draw(st.integers(0, sockets - 1)), draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(nics)
    ]
    within = draw(st.sampled_from(["NODE", "PHB"]))

    def word(one: int, other: int) -> str:
        if one == other:
            return "X"
        (a, b, c), (d, e, f) = places[one], places[other]
        return "SYS" if a != d else within if b != e else "PXB" if c != f else "PIX"

    cells = [[word(one, other) for other in range(len(places))] for one in range(len(places))]
    for one in range(count):
        for other in range(one + 1, count):
            if draw(st.integers(0, 5)) == 0:
                cells[one][other] = cells[other][one] = f"NV{draw(st.integers(1, 18))}"
    known = draw(st.booleans())
    lists = draw(st.booleans())
    return TopologyMatrix(
        gpus=tuple(f"GPU{number}" for number in range(count)),
        nics=tuple(f"NIC{number}" for number in range(nics)),
        cells=tuple(map(tuple, cells)),
        cpu_affinity=tuple(f"{16 * socket}-{16 * socket + 15}" if lists else "" for socket, _, _ in places[:count]),
        numa_affinity=tuple(str(socket) if known else "" for socket, _, _ in places[:count]),
        gpu_numa=tuple("" for _ in range(count)),
        nic_labels=tuple((f"NIC{number}", f"mlx5_{number}") for number in range(nics)),
    )


@st.composite
def overlays(draw: st.DrawFn, gpus: int, nics: int) -> OverlayDocument:
    """Anything an overlay may state, at random."""

    def link() -> dict[str, int]:
        return draw(st.fixed_dictionaries({}, optional={"generation": GENERATIONS, "width": WIDTHS}))

    data: dict[str, Any] = {"schema": "pciesim/topology/1", "link": link()}
    if draw(st.booleans()):
        data["gpu"] = draw(st.sampled_from(["rtx_pro_6000", "rtx_3090", "h200", "l40s"]))
    data["gpus"] = {
        gpu: link() | ({"label": "slot 3"} if draw(st.booleans()) else {}) for gpu in range(gpus) if draw(st.booleans())
    }
    data["nics"] = {nic: link() for nic in range(nics) if draw(st.booleans())}
    holders = [draw(st.sampled_from([None, "a", "b", "c"])) for _ in range(gpus)]
    if draw(st.booleans()):
        chip = draw(st.sampled_from(["", "A"]))
        data["switches"] = [
            {
                "name": name,
                "gpus": [gpu for gpu, holder in enumerate(holders) if holder == name],
                "uplink": link(),
                "chip": chip,
            }
            | ({"behind": "a"} if name == "c" and not chip and draw(st.booleans()) else {})
            | ({"model": "microchip_pm50100"} if draw(st.booleans()) else {})
            for name in ("a", "b", "c")
        ]
    data["host"] = {"acs_redirect": draw(st.booleans()), "iommu": draw(st.booleans())} | draw(
        st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.sampled_from(["EPYC 9575F", "xeon_spr", "epyc_genoa"]),
                "sockets": st.integers(1, 2),
                "memory_bandwidth": st.sampled_from(["100 GB/s", "333.3 GB/s"]),
                "socket_link": st.just({"links": 3}),
            },
        )
    )
    data["p2p"] = draw(
        st.sampled_from([{}, {"driver": True}, {"driver": False}, {"driver": True, "registry_override": False}])
    )
    data["nccl"] = draw(st.sampled_from([{}, {"p2p_level": "SYS", "graph_file": True}, {"p2p": False, "channels": 2}]))
    data["write_collapse"] = draw(st.sampled_from([None, 2]))
    return OverlayDocument.model_validate({key: value for key, value in data.items() if value is not None})


@st.composite
def machines(draw: st.DrawFn) -> Fabric:
    matrix = draw(matrices())
    overlay = draw(overlays(len(matrix.gpus), len(matrix.nics)))
    if draw(st.booleans()):
        overlay = draw(with_root_complexes(matrix, overlay))
    return assemble(matrix, overlay, name="machine")


@st.composite
def with_root_complexes(draw: st.DrawFn, matrix: TopologyMatrix, overlay: OverlayDocument) -> OverlayDocument:
    """The overlay with root complexes: some root ports on this one, some on that, some on the one nobody stated."""
    plan = infer(matrix, overlay)
    entries: dict[str, dict[str, Any]] = {}

    def entry(socket: int) -> dict[str, Any] | None:
        name = draw(st.sampled_from([None, f"root_complex{socket}", f"left{socket}", f"right{socket}"]))
        fresh = {"name": name, "gpus": [], "nics": [], "switches": []} | draw(
            st.fixed_dictionaries({}, optional={"socket": st.just(socket), "bandwidth": st.just("73.1 GB/s")})
        )
        return None if name is None else entries.setdefault(name, fresh)

    for gpu, holder in enumerate(plan.gpu_switches):
        found = entry(plan.gpu_sockets[gpu]) if holder is None else None
        if found is not None:
            found["gpus"].append(gpu)
    for switch in plan.switches:
        found = entry(switch.socket) if switch.behind is None else None
        if found is not None:
            found["switches"].append(switch.name)
    for members in plan.nic_ports:
        found = entry(plan.nic_sockets[members[0]])
        if found is not None:
            found["nics"].append(members[-1])
    shared = [name for name in entries if draw(st.booleans())]
    quadrants = [{"name": "q", "root_complexes": shared, "bandwidth": "50 GB/s"}] if shared else []
    return overlay.model_copy(
        update={
            "root_complexes": tuple(RootComplexEntry.model_validate(each) for each in entries.values()),
            "quadrants": tuple(QuadrantEntry.model_validate(each) for each in quadrants),
        }
    )


@given(matrices())
def test_text_to_fabric_to_text(matrix: TopologyMatrix) -> None:
    text = render_matrix(matrix)
    parsed = parse_matrix(text, source="t")
    assert parsed == matrix
    fabric = assemble(parsed, OverlayDocument.empty(), name="machine")
    assert render_matrix(fabric_matrix(fabric)) == text


@given(machines())
def test_fabric_to_text_and_overlay_to_fabric(fabric: Fabric) -> None:
    text, yaml = render_matrix(fabric_matrix(fabric)), render_overlay(fabric_overlay(fabric))
    overlay = validate_document(yaml, OverlayDocument, source="y")
    again = assemble(parse_matrix(text, source="t"), overlay, name="other")
    assert replace(again, assumptions=()) == replace(fabric, assumptions=())
    assert render_overlay(fabric_overlay(again)) == yaml


@given(machines())
def test_every_pair_has_a_route_each_way_that_crosses_the_same(fabric: Fabric) -> None:
    for one in fabric.gpus:
        for other in fabric.gpus:
            if one is other:
                continue
            there = fabric.route(one.name, other.name, nvlink=False)
            back = fabric.route(other.name, one.name, nvlink=False)
            assert (there.switches, there.root_complexes, there.socket_hops) == (
                back.switches,
                back.root_complexes,
                back.socket_hops,
            )
            assert len(there.links) == len(back.links)
            inside = [fabric.device(fabric.links[position].target).kind for position in there.links[:-1]]
            assert not {DeviceKind.GPU, DeviceKind.NIC, DeviceKind.MEMORY} & set(inside)
        assert fabric.memory_of(one.name).kind is DeviceKind.MEMORY


@given(matrices())
def test_words_and_wiring_agree(matrix: TopologyMatrix) -> None:
    """PIX and PXB never reach the CPU, PHB and NODE never leave the socket, SYS always passes a root complex."""
    fabric = assemble(matrix, OverlayDocument.empty(), name="machine")
    for one in fabric.gpus:
        for other in fabric.gpus:
            cell = fabric.matrix[one.index or 0][other.index or 0]
            if cell == "X" or cell.startswith("NV"):
                continue
            route = fabric.route(one.name, other.name, nvlink=False)
            if cell in ("PIX", "PXB"):
                assert (route.root_complexes, route.socket_hops) == (0, 0)
                assert route.switches >= 1
            else:
                assert route.root_complexes >= 1
                assert cell == "SYS" or route.socket_hops == 0


@given(machines())
def test_nccl_xml_keeps_what_routes_cross(fabric: Fabric) -> None:
    """Without NVLink in the way and without chips, which the XML has no word for."""
    if any(device.chip for device in fabric.devices) or any(
        cell.startswith("NV") for row in fabric.matrix for cell in row
    ):
        return
    matrix, overlay = read_nccl_xml(write_nccl_xml(fabric), source="again.xml")
    again = assemble(matrix, overlay, name="again")
    for one in fabric.gpus:
        for other in fabric.gpus:
            if one is not other and not fabric.acs_redirect:
                assert fabric.route(one.name, other.name).switches == again.route(one.name, other.name).switches
