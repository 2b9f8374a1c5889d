"""Concurrent flows against figures worked out by hand. Link 60 GB/s, copy engines fill 0.9 of it: 54 GB/s one way."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pciesim.contention import Arbitration, Rules
from pciesim.fabric import Concurrency
from pciesim.flows import EngineWord, FlowSpec, Metric, Operation, all_to_all, stagger
from pciesim.units import GB
from tests.support.fabrics import box
from tests.support.flows import COSTS, IDEAL, ONE_WAY_LOSS, flow, flows, run

LINE = 60 * GB
ONE_WAY = 54 * GB
TWO_SWITCHES = box([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True, pcie=LINE)
FOUR = box([[0, 1, 2, 3]], switched=True, pcie=LINE)
NAMES = [f"GPU{number}" for number in range(8)]
BACK = 2 * 8 / 168  # Ack and flow control, bytes sent back per byte of wire


@pytest.mark.parametrize(
    ("distance", "mean"),
    [
        (1, 53.6),  # two of eight flows cross, one each way: every flow has a whole link
        (2, 40.2),  # inside a switch 53.6; two share each uplink: 26.8; half of each kind
        (3, 26.8),  # one of four inside (53.6), three share the uplink: (53.6 + 3 x 53.6 / 3) / 4
        (4, 13.4),  # all four of a switch on one uplink
        (5, 26.8), (6, 40.2), (7, 53.6),
    ],
)  # fmt: skip
def test_staggered_rings_before_any_loss(distance: int, mean: float) -> None:
    """Eight GPUs behind two switches whose links carry 53.6 GB/s of copies."""
    fabric = box([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True, pcie=53.6 * GB / COSTS.share_copy)
    got = run(fabric, stagger(NAMES, distance), metric=Metric.RATE, rules=IDEAL)
    assert got.figure / 8 == pytest.approx(mean * GB, rel=1e-9)
    # Equal volumes, each flow over its own time, give the same mean: nobody speeds up when another ends (but at +2, +3
    # the flows inside end first and leave uplinks untouched).
    assert run(fabric, stagger(NAMES, distance), metric=Metric.P2PMARK_MEAN, rules=IDEAL).figure == pytest.approx(
        mean * GB, rel=1e-9
    )


def test_all_to_all_rates_are_not_completion() -> None:
    """Uplink 53.6 for 16 flows: 3.35 each. A GPU's port has 53.6 - 4 x 3.35 = 40.2 left for three flows inside: 13.4.
    Rates: 32 x 3.35 + 24 x 13.4 = 428.8. Equal volumes end with the slow ones: 56 x 3.35 = 187.6."""
    fabric = box([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True, pcie=53.6 * GB / COSTS.share_copy)
    assert run(fabric, all_to_all(NAMES), rules=IDEAL).figure == pytest.approx(428.8 * GB, rel=1e-9)
    done = run(fabric, all_to_all(NAMES), metric=Metric.COMPLETION, rules=IDEAL)
    assert done.figure == pytest.approx(187.6 * GB, rel=1e-9)
    assert max(each.completion or 0 for each in done.flows) == pytest.approx(0.256 / 3.35, rel=1e-9)


def test_a_port_that_sends_and_receives() -> None:
    """Wire w each way and BACK w against it share 60 GB/s: w = 60 / (1 + 16/168) = 54.78, of which 0.9 is payload."""
    both = run(FOUR, flows((0, 1), (1, 0)))
    assert both.figure == pytest.approx(2 * ONE_WAY / (1 + BACK), rel=1e-8)
    assert run(FOUR, flows((0, 1))).figure == pytest.approx(ONE_WAY, rel=1e-9)


def test_what_is_sent_back_does_not_slow_the_flow_that_sends_it() -> None:
    """Three flows fill the uplink up; one comes down beside them. It loses what the three send back, no more, and the
    three lose what it sends back, though it could never have had a fair share of their direction."""
    got = run(TWO_SWITCHES, flows((0, 4), (1, 5), (2, 6), (7, 3)), rules=ONE_WAY_LOSS)
    up = sum(each.rate for each in got.flows[:3])
    down = got.flows[3].rate
    assert up / 0.9 + BACK * down / 0.9 == pytest.approx(LINE, rel=1e-8)
    assert down / 0.9 + BACK * up / 0.9 == pytest.approx(LINE, rel=1e-8)


def test_requests_of_loads_travel_against_the_data() -> None:
    """Loads fill 0.6 of the line. Two GPUs that load from each other: per byte of payload 1/0.6 of wire, BACK of that
    sent back, and 24 bytes of request per 128: rate = 60 / (1/0.6 (1 + BACK) + 24/128)."""
    both = run(FOUR, flows((0, 1), (1, 0)), engine=EngineWord.SM, operation=Operation.READ)
    assert both.figure / 2 == pytest.approx(LINE / ((1 + BACK) / 0.6 + 24 / 128), rel=1e-8)
    stores = run(FOUR, flows((0, 1), (1, 0)), engine=EngineWord.SM)
    assert stores.figure / 2 == pytest.approx(0.7 * LINE / (1 + BACK), rel=1e-8)


def crossbar(ports: int, train: int, slots: int = 40_000) -> float:
    """Throughput of a port of an input-queued crossbar: each input always has packets, in trains to one other port at
    random; each output takes turns among the inputs whose heads want it."""
    draw = random.Random(20261130)

    def another(port: int) -> int:
        return (port + draw.randrange(1, ports)) % ports

    heads, left, last, passed = [another(port) for port in range(ports)], [train] * ports, [0] * ports, 0
    for _ in range(slots):
        wanting: dict[int, list[int]] = {}
        for port, out in enumerate(heads):
            wanting.setdefault(out, []).append(port)
        for out, waiting in wanting.items():
            turn = min(waiting, key=lambda port, out=out: (port - last[out] - 1) % ports)  # type: ignore[misc]
            last[out], passed = turn, passed + 1
            left[turn] -= 1
            if left[turn] == 0:
                heads[turn], left[turn] = another(turn), train
    return passed / slots / ports


@pytest.mark.parametrize("ports", [3, 4, 8])
@pytest.mark.parametrize("train", [4, 16])
def test_head_of_line_blocking_meets_a_simulated_crossbar(ports: int, train: int) -> None:
    fabric = box([list(range(ports))], switched=True, pcie=LINE)
    got = run(fabric, all_to_all(NAMES[:ports]), rules=Rules(reverse=False, collapse=False))
    assert got.figure / ports / ONE_WAY == pytest.approx(crossbar(ports, train), rel=0.04)


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1), (1, 2), (2, 3), (3, 0)],  # a ring: one output an input
        [(0, 3), (1, 3), (2, 3)],  # incast: heads wait, but nobody behind them
        [(0, 1), (0, 2), (0, 3)],  # fan-out alone: no head ever waits
    ],
)
def test_no_blocking_without_several_contended_outputs(pairs: list[tuple[int, int]]) -> None:
    plain, queued = (run(FOUR, flows(*pairs), rules=Rules(head_of_line=on)) for on in (False, True))
    assert queued.figure == pytest.approx(plain.figure, rel=1e-9)


def test_port_arbitration() -> None:
    """Two flows from the uplink and one of the own switch into GPU 3: a turn for each port, 1/4 + 1/4 + 1/2."""
    specs = flows((4, 3), (5, 3), (0, 3))
    by_port = run(TWO_SWITCHES, specs, rules=replace(IDEAL, arbitration=Arbitration.PORT))
    assert [each.rate / ONE_WAY for each in by_port.flows] == pytest.approx([0.25, 0.25, 0.5])
    assert [each.rate / ONE_WAY for each in run(TWO_SWITCHES, specs, rules=IDEAL).flows] == pytest.approx([1 / 3] * 3)


def test_the_collapse_needs_two_sources_and_two_root_ports() -> None:
    fabric = replace(
        box([[0, 1], [2, 3], [4, 5]], switched=True, pcie=LINE),
        write_collapse=2,
        concurrency=Concurrency(collapsed=3 * GB),
    )
    fallen = run(fabric, flows((0, 2), (1, 4)))
    assert fallen.collapsed == ("switch0",)
    assert fallen.figure == pytest.approx(3 * GB)
    assert {each.limited_by for each in fallen.flows} == {"posted-write collapse of switch0"}
    for pairs in ([(0, 2), (1, 3)], [(0, 2), (0, 4)], [(2, 0), (4, 1)], [(0, 1), (1, 0)]):
        assert run(fabric, flows(*pairs)).collapsed == (), pairs
    assert run(fabric, flows((0, 2), (1, 4)), operation=Operation.READ).collapsed == ()
    assert run(replace(fabric, write_collapse=3), flows((0, 2), (1, 4))).collapsed == ()


def test_flows_that_alternate_between_root_ports_collapse_half_of_the_time() -> None:
    """GPUs 0 and 1 each write to both other switches: their trains go to different root ports half of the time. Per
    byte 1/2 x 1/3 + 1/2 x 1/54 s/GB: 5.68 GB/s."""
    fabric = replace(
        box([[0, 1], [2, 3], [4, 5]], switched=True, pcie=LINE),
        write_collapse=2,
        concurrency=Concurrency(collapsed=3 * GB),
    )
    got = run(fabric, flows((0, 2), (0, 4), (1, 2), (1, 4)))
    assert got.figure == pytest.approx(GB / (0.5 / 3 + 0.5 / 54), rel=1e-6)


def test_copy_loop_does_one_copy_a_gpu_at_a_time() -> None:
    """GPU 0 to a GPU of its own switch (54) and across a slow uplink (30 x 0.9 = 27): every round 1/54 + 1/27."""
    fabric = box([[0, 1], [2, 3]], switched=True, pcie=LINE, uplink=30 * GB)
    got = run(fabric, flows((0, 1), (0, 2)), metric=Metric.COPY_LOOP, rules=IDEAL)
    assert got.figure == pytest.approx(2 * GB / (1 / 54 + 1 / 27), rel=1e-9)


def test_copy_loop_waits_at_the_destination() -> None:
    """Two copies into GPU 2, one from each of GPU 0 and 1: one after the other, each at the whole rate."""
    got = run(FOUR, flows((0, 2), (1, 2)), metric=Metric.COPY_LOOP, rules=IDEAL)
    assert got.figure == pytest.approx(ONE_WAY, rel=1e-9)
    assert got.flows[0].completion < got.flows[1].completion


def test_box_limits_between_sockets() -> None:
    """Direct attach, two sockets: 40 GB/s of peer traffic each way, 50 both ways."""
    fabric = replace(
        box([[0, 1], [2, 3]], sockets=[0, 1], pcie=LINE),
        concurrency=Concurrency(socket_peer=40 * GB, socket_peer_both=50 * GB),
    )
    assert run(fabric, flows((0, 2), (1, 3))).figure == pytest.approx(40 * GB)
    assert run(fabric, flows((0, 2), (2, 0))).figure == pytest.approx(50 * GB)
    one_port = replace(fabric, concurrency=Concurrency(port_socket_peer=20 * GB))
    assert run(one_port, flows((0, 2), (0, 3), (1, 2))).figure == pytest.approx(40 * GB)


def test_without_peer_to_peer_each_byte_is_written_and_read_at_the_memory() -> None:
    """Memory that DMA fills to 30 GB/s: a staged copy uses it twice."""
    fabric = replace(box([[0], [1]], pcie=LINE), concurrency=Concurrency(host_dma=30 * GB))
    got = run(fabric, flows((0, 1)), peer_to_peer=False)
    assert got.figure == pytest.approx(15 * GB)
    assert got.flows[0].limited_by == "DMA at memory0"
    assert got.notes == ("without peer-to-peer, through host memory: GPU0>GPU1",)


def test_background_takes_its_share_and_no_more() -> None:
    """GPU 3 offers 10 GB/s to GPU 1, which GPU 0 sends to: 44 are left."""
    got = run(FOUR, [flow(0, 1)], background=[flow(3, 1, cap=10 * GB)])
    assert got.flows[0].rate == pytest.approx(44 * GB)
    assert (got.flows[1].background, got.flows[1].rate, got.flows[1].limited_by) == (True, 10 * GB, "its own cap")
    timed = run(FOUR, [flow(0, 1)], background=[flow(3, 1, cap=10 * GB)], metric=Metric.COMPLETION)
    assert timed.flows[0].completion == pytest.approx(0.256 / 44)


def test_host_copies() -> None:
    """A copy out of host memory is read by the GPU (requests of 24 bytes per 512), one into it written."""
    host = [FlowSpec(source="host", target="GPU0"), FlowSpec(source="GPU0", target="host")]
    into, out = (each.rate for each in run(box([[0]], pcie=LINE), host).flows)
    assert into / 0.9 + BACK * out / 0.9 == pytest.approx(LINE, rel=1e-8)
    assert out / 0.9 + BACK * into / 0.9 + into * 24 / 512 == pytest.approx(LINE, rel=1e-8)
