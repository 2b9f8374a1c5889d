"""Latencies and crossing bytes of the catalogue worked out by hand from the round profile (tests/support/profiles.py).

Routes: a switch costs store = 0.4 + 0.2 + 0.1 = 0.7 us and load = 0.6 us; a root complex 0.8 and 0.8 us; two switches
and a root complex 1.0 and 1.2 us. Stores fill 44.1105 GB/s of a Gen5 x16 link, loads 37.809, copies 56.7135. A further
phase of a kernel costs 0.5 us.
"""

import pytest

from pciesim.collectives.islands import equal_islands
from pciesim.collectives.select import lower
from pciesim.evaluate.bounds import cut_bound, endpoint_bound, latency_bound
from pciesim.evaluate.estimate import estimate
from pciesim.evaluate.simulate import simulate
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, US
from tests.support.fabrics import GEN5_X16, box
from tests.support.tasks import fabric_named, task

STORE, LOAD, COPY = 44.1105e3, 37.809e3, 56.7135e3  # bytes a microsecond
S = 1 << 20
FOUR, ISLANDS = "four on one socket", "two switches of four"


def us(name, box_name, nbytes, kind=CollectiveKind.ALL_REDUCE, **more):
    return simulate(lower(name, task(fabric_named(box_name), nbytes, kind=kind, **more)).program).latency / US


def test_two_shot_push():
    # 3 us base, twice (0.8 us + 3 x S/4 out of and into every port), and one phase between.
    assert us("twoshot-push", FOUR, S) == pytest.approx(3 + 2 * (0.8 + 0.75 * S / STORE) + 0.5, rel=1e-5)


def test_two_shot_pull():
    # 5 us base, twice (flag 0.8, load 0.8, 3 x S/4 at the load rate), one phase.
    assert us("twoshot-pull", FOUR, S) == pytest.approx(5 + 2 * (1.6 + 0.75 * S / LOAD) + 0.5, rel=1e-5)


def test_tensorrt_two_shot():
    # 5 us base, flag 0.8, load 0.8 and 3/4 S of loads, a phase, then fenced stores: fence 0.8, flag 0.8, 3/4 S.
    expected = 5 + 1.6 + 0.75 * S / LOAD + 0.5 + 1.6 + 0.75 * S / STORE
    assert us("trtllm-twoshot", FOUR, S) == pytest.approx(expected, rel=1e-5)


def test_hierarchical_push():
    # Islands of four: 0.7 us and 3 x S/4 inside, 1.0 us and 4 x S/4 over the uplink, inside again; two phases.
    expected = 3 + 0.7 + 0.75 * S / STORE + 0.5 + 1.0 + S / STORE + 0.5 + 0.7 + 0.75 * S / STORE
    assert us("hierarchical", ISLANDS, S) == pytest.approx(expected, rel=1e-4)


def test_hierarchical_leader():
    # Three whole tensors into the leader, one across, three out.
    expected = 3 + 0.7 + 3 * S / STORE + 0.5 + 1.0 + S / STORE + 0.5 + 0.7 + 3 * S / STORE
    assert us("hierarchical-leader", ISLANDS, S) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("islands", "traversals"), [(2, 3), (3, 3), (4, 3), (5, 3), (8, 5)])
def test_any_number_of_islands(islands, traversals):
    # Up to four exchange directly; eight by recursive doubling in three rounds; five, no power of two, directly.
    from pciesim.collectives.proof import prove

    fabric = box([[2 * number, 2 * number + 1] for number in range(islands)], switched=True)
    program = lower("hierarchical", task(fabric, S)).program
    prove(program, CollectiveKind.ALL_REDUCE)
    assert program.traversals == traversals
    out = sum(step.nbytes for step in program.transfers if step.source == 0 and step.target != 1)
    assert out == pytest.approx({2: 1, 3: 2, 4: 3, 5: 4, 8: 3}[islands] * S / 2)


def test_recursive_doubling():
    # On one socket two rounds of 0.8 us and S; a phase between them.
    assert us("recursive-doubling", FOUR, S) == pytest.approx(3 + 2 * (0.8 + S / STORE) + 0.5, rel=1e-5)


def test_halving_doubling():
    # Two rounds of S/2 and S/4, twice; a phase after each of the four.
    assert us("halving-doubling", FOUR, S) == pytest.approx(3 + 4 * 0.8 + 1.5 * S / STORE + 4 * 0.5, rel=1e-5)


def test_through_host_memory():
    # 6 us base, 0.4 + 1.2 us, then S up each port and, since no load passes the stores before it, 3 S down each port.
    # All share the DRAM's 200 GB/s: 4 S of stores up at STORE take longer at the ports than in it, and so do 12 S of
    # loads: 12 S / 200 GB/s < 3 S / 37.809 GB/s.
    expected = 6 + 1.6 + S / STORE + 3 * S / LOAD
    assert us("oneshot-host", "four through host memory", S) == pytest.approx(expected, rel=1e-5)


def test_staged_permutation_all_to_all():
    # Three rounds, each a fence (0.8), a flag (0.8) and S/4 to one peer.
    found = us("staged-permutation", FOUR, S, CollectiveKind.ALL_TO_ALL)
    assert found == pytest.approx(3 + 3 * (1.6 + 0.25 * S / STORE), rel=1e-5)


def test_uneven_all_to_all_waits_for_the_hot_rank():
    # Rank 0 is sent half of everything: its port takes 3 x S/2, and everyone else's blocks are done long before.
    loads = tuple((0.5, 1 / 6, 1 / 6, 1 / 6) for _ in range(4))
    found = us("oneshot-push", FOUR, S, CollectiveKind.ALL_TO_ALL, loads=loads)
    assert found == pytest.approx(3 + 0.8 + 1.5 * S / STORE, rel=1e-4)


def test_send_to_the_next():
    # Every port sends one message and receives one.
    assert us("oneshot-push", FOUR, S, CollectiveKind.SEND_RECV) == pytest.approx(3 + 0.8 + S / STORE, rel=1e-5)
    # NCCL beyond 16 KiB: Simple. 5 us base, 0.8 + 0.2 us, fence 0.8.
    assert us("nccl", FOUR, S, CollectiveKind.SEND_RECV) == pytest.approx(5 + 1.8 + S / STORE, rel=1e-5)


def test_copy_engine_ring():
    # Six steps of 24 us and 0.8 us, S/4 each at the copy rate.
    assert us("ce-ring", FOUR, S) == pytest.approx(6 * (24.8 + 0.25 * S / COPY), rel=1e-5)


def test_packets_double_the_bytes():
    plain, packets = us("oneshot-push", FOUR, 8192), us("mscclpp", FOUR, 8192)
    assert packets - plain == pytest.approx(3 * 8192 / STORE, rel=1e-5)


@pytest.mark.parametrize(("wire", "ratio"), [("fp8", (8 + 8 / 32) / 16), ("nvfp4", (4 + 8 / 16) / 16)])
def test_a_compressed_wire_carries_the_ratio(wire, ratio):
    # 2 x 3/4 of the tensor passes a port; scales included.
    saved = us("twoshot-push", FOUR, S) - us(f"twoshot-push-{wire}", FOUR, S)
    assert saved == pytest.approx((1 - ratio) * 1.5 * S / STORE, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "tensors"),
    # Per direction over the uplink of one island of four (of two), in tensors: the table of collectives.md 2.3.
    [("oneshot-push", 16), ("twoshot-push", 4), ("recursive-doubling", 4), ("nccl-ring-simple", 1.75),
     ("hierarchical", 1), ("hierarchical-leader", 1), ("halving-doubling", 1)],
)  # fmt: skip
def test_what_crosses_between_two_islands(name, tensors):
    problem = task(fabric_named(ISLANDS), S)
    fabric = problem.fabric
    uplink = next(
        place for place, link in enumerate(fabric.links) if (link.source, link.target) == ("switch0", "port0")
    )
    carried = lower(name, problem).program.link_bytes()[uplink] * 0.7  # stores fill 0.7 of a link
    assert carried == pytest.approx(tensors * S)


def test_bounds_by_hand():
    # Two islands of four behind Gen5 x16 uplinks: a tensor across each way; 2 x 7/8 of one out of each port.
    problem = task(fabric_named(ISLANDS), S)
    assert cut_bound(problem, frozenset(range(4))) == pytest.approx(S / GEN5_X16)
    assert endpoint_bound(problem) == pytest.approx(1.75 * S / GEN5_X16)
    assert latency_bound(problem) == pytest.approx(1.0 * US)
    # All-to-all: 4 x 4 blocks of S/8 each way.
    exchange = task(fabric_named(ISLANDS), S, kind=CollectiveKind.ALL_TO_ALL)
    assert cut_bound(exchange, frozenset(range(4))) == pytest.approx(2 * S / GEN5_X16)
    # Half the uplink: the cut costs twice as much.
    half = box([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True, uplink=GEN5_X16 / 2)
    assert cut_bound(task(half, S), frozenset(range(4))) == pytest.approx(2 * S / GEN5_X16)


def test_islands_are_sockets_then_switches():
    assert equal_islands(task(fabric_named("eight on two sockets"), 1)) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert equal_islands(task(fabric_named("three islands of two"), 1)) == ((0, 1), (2, 3), (4, 5))
    assert equal_islands(task(fabric_named(FOUR), 1)) is None
    assert equal_islands(task(box([[0, 1, 2], [3]], switched=True), 1)) is None
    both = box([[0, 1], [2, 3], [4, 5], [6, 7]], switched=True, sockets=[0, 0, 1, 1])
    assert equal_islands(task(both, 1)) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_more_channels_approach_the_link_gradually():
    # Smooth minimum of power 2: four channels of 10 GB/s on a link of 44.11 / 2 GB/s of LL payload.
    from tests.support.profiles import round_profile

    profile = round_profile(nccl__p2p__ll_channel=10 * GB, nccl__smooth=2.0)
    problem = task(fabric_named("two"), 64 << 20, profile=profile)
    found = lower("nccl-ring-ll", problem)
    assert found.channels == 4
    rate = (1 / 40**2 + 1 / 22.05525**2) ** -0.5 * 1e3  # bytes a microsecond
    # 5 us base, two hops of 0.8 + 0.2 us with half the tensor each; the first poll's lines (4 KiB a channel) pass
    # at the link's rate instead.
    first = 4 * 4096 / rate - 4 * 4096 / 22.05525e3
    expected = 5 + 2 * (1.0 - first + (32 << 20) / rate)
    assert estimate(found.program) / US == pytest.approx(expected, rel=1e-5)


def test_a_slow_edge_of_a_ring_passes_one_message_at_a_time():
    """Four ranks, edges of 100 and 10 B/s in turn, chunks of 10 B: a slow edge passes six of them, one after the other.

    Fast edges have brought each next one by then: 6 s, however early they are.
    """
    from pciesim.collectives.ring import Hop, lower_ring

    hops = [Hop(latency=0.0, uses=((edge, 1.0),), traversals=1, rate=(100.0, 10.0)[edge % 2]) for edge in range(4)]
    program = lower_ring(CollectiveKind.ALL_REDUCE, 40.0, order=range(4), hops=hops, base=0.0, channels=1,
                         capacity=(1e9,) * 4, name="mixed")  # fmt: skip
    assert simulate(program).latency == pytest.approx(6 * 1.0, rel=1e-6)
    assert estimate(program) == pytest.approx(simulate(program).latency)


def test_latency_hides_behind_bytes_where_a_box_cuts_through():
    """Two GPUs, LL of 64 MiB: two hops of max(1.0 us, half the tensor at 22.05 GB/s) instead of their sum."""
    from tests.support.profiles import round_profile

    rate = 44.1105e3 / 2  # LL sends as many flags as data
    for share, expected in ((0.0, 5 + 2 * (1.0 + (32 << 20) / rate)), (1.0, 5 + 2 * (32 << 20) / rate)):
        problem = task(fabric_named("two"), 64 << 20, profile=round_profile(nccl__cut_through=share))
        assert estimate(lower("nccl-ring-ll", problem).program) / US == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("kind", "sends"), [(CollectiveKind.ALL_REDUCE, 2), (CollectiveKind.REDUCE_SCATTER, 1)])
def test_a_ring_receives_once_more_than_it_sends(kind, sends):
    """Two GPUs, four channels of 1 GB/s: of k sends and a receive of half a send's time, k / (k + 0.5) is sending."""
    from tests.support.profiles import round_profile

    profile = round_profile(nccl__p2p__simple_channel=1 * GB, nccl__receive=0.5)
    found = lower("nccl-ring-simple", task(fabric_named("two"), 64 << 20, kind=kind, profile=profile))
    rate = found.channels * 1e3 * sends / (sends + 0.5)
    assert simulate(found.program).latency / US == pytest.approx(sends * (32 << 20) / rate, rel=1e-3)


def test_posted_writes_collapse_where_the_fabric_says_so():
    """Two GPUs of a switch that send to two root ports at once leave 2.7 GB/s of the uplink; a ring never does.

    Three switches of two: 2 x 4 tensors leave by each uplink.
    """
    from dataclasses import replace

    plain = fabric_named("three islands of two")
    fallen = replace(plain, write_collapse=2)
    found = lower("oneshot-push", task(fallen, S))
    assert any("collapse" in note for note in found.notes)
    assert simulate(found.program).latency / US == pytest.approx(3 + 1.0 + 8 * S / (2.7e3 * 0.7), rel=1e-3)
    ring = lower("nccl-ring-simple", task(fallen, S))
    assert ring.notes == ()
    assert ring.program == lower("nccl-ring-simple", task(plain, S)).program
    pulled = lower("oneshot-pull", task(fallen, S))
    assert any("collapse" in note for note in pulled.notes)
    patient = replace(plain, write_collapse=3)
    assert lower("oneshot-push", task(patient, S)).notes == ()
