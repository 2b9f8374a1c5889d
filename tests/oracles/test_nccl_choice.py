"""NCCL's choices against figures worked out from its own constants (NVIDIA/nccl 2.30.7), by hand."""

from dataclasses import replace

import pytest

from pciesim.collectives.nccl import plan, transports
from pciesim.collectives.nccl_model import (
    Algorithm,
    Protocol,
    RingSearch,
    cost_table,
    search_ring,
    tree_simple_hop,
    used_channels,
)
from pciesim.collectives.select import lower
from pciesim.evaluate.simulate import simulate
from pciesim.fabric import Host, NcclEnvironment
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, KIB, MIB, US
from tests.support.fabrics import box
from tests.support.tasks import task

ALL_REDUCE = CollectiveKind.ALL_REDUCE
FALLBACK = RingSearch(order=(), speed=0.1 * GB, graph_channels=1, channels=2, fallback=True, slowest=16 * GB)


def ring(speed, channels=1):
    return RingSearch(order=(), speed=speed * GB, graph_channels=channels, channels=2 * channels, fallback=False,
                      slowest=48 * GB)  # fmt: skip


def times(nbytes, ranks, search, **more):
    table = cost_table(ALL_REDUCE, nbytes, ranks, search, capability=120, nvlink=False, **more)
    return {(cost.algorithm, cost.protocol): cost.time for cost in table}


@pytest.mark.parametrize(("n", "ll", "simple"), [(2, 8.6, 19.8), (4, 12.6, 42.6), (8, 20.6, 88.2)])
def test_ring_latencies(n, ll, simple):
    # 6.6 + 2 (n - 1) x 1.0 us and 8.4 + 2 (n - 1) x 5.7 us, without bytes.
    found = times(0, n, ring(45))
    assert found["Ring", "LL"] == pytest.approx(ll * US)
    assert found["Ring", "Simple"] == pytest.approx(simple * US)


def crossover(n, search):
    """Bytes at which Ring LL and Ring Simple cost the same, by bisection over the ring's two lines."""
    low, high = 1.0, 64.0 * MIB
    for _ in range(80):
        middle = (low + high) / 2
        found = times(middle, n, search)
        low, high = (middle, high) if found["Ring", "LL"] < found["Ring", "Simple"] else (low, middle)
    return low


@pytest.mark.parametrize(
    ("n", "search", "nbytes"),
    # (lat Simple - lat LL) / (1 / b LL - 1 / b Simple), b = bus x n / (2 (n - 1)), LL half of it.
    [(2, ring(45), 504_000), (4, ring(45), 900_000), (8, ring(45), 1_738_000), (8, ring(20), 772_000),
     (4, FALLBACK, 2_000), (8, FALLBACK, 3_863)],
)  # fmt: skip
def test_where_ring_ll_gives_way_to_ring_simple(n, search, nbytes):
    assert crossover(n, search) == pytest.approx(nbytes, rel=2e-3)


def test_tree_bandwidth_has_its_correction():
    # 64 KiB = 64 B x 2^10: LL 0.6, Simple 0.6. Bus 0.92 x 45 = 41.4; LL a 3.8th of it; an all-reduce counts half.
    found = times(64 * KIB, 4, ring(45))
    assert found["Tree", "LL"] == pytest.approx((6.8 + 6 * 1.0) * US + 65536 / (41.4 / 3.8 * 0.5 * 0.6 * GB))
    assert found["Tree", "Simple"] == pytest.approx((8.4 + 6 * 4.0) * US + 65536 / (41.4 * 0.5 * 0.6 * GB))


def test_ll128_only_where_asked_for_or_on_nvlink():
    assert not any(protocol == "LL128" for _, protocol in times(8192, 4, ring(45)))
    assert times(0, 4, ring(45), ll128=True)["Ring", "LL128"] == pytest.approx((14.0 + 6 * 2.5) * US)
    nvlink = cost_table(ALL_REDUCE, 8192, 2, ring(60), capability=90, nvlink=True)
    assert {cost.protocol for cost in nvlink} == set(Protocol)


@pytest.mark.parametrize(
    ("version", "hop"), [("2.12.10", 28.0), ("2.18.3", 6.0), ("2.21.5", 28.0), ("2.28.9", 4.0), ("", 4.0)]
)
def test_the_constant_that_changed_between_versions(version, hop):
    assert tree_simple_hop(version) == hop


def search_of(fabric, capability=120):
    problem = replace(task(fabric, 8192), compute_capability=capability)
    return search_ring(fabric, problem.gpus, capability=capability, transports=transports(problem))


def test_channels_of_a_gen5_ring():
    # 48 GB/s a link; 45 is the fastest in the list of compute capability 10 and later; above 25 it is doubled at half
    # the rate, and connecting doubles the channels again.
    found = search_of(box([[0, 1, 2, 3]]))
    assert (found.speed, found.graph_channels, found.channels) == (22.5 * GB, 2, 4)
    hopper = search_of(box([[0, 1, 2, 3]]), capability=90)  # 40 of its list
    assert (hopper.speed, hopper.channels) == (20 * GB, 4)


def test_min_and_max_channels():
    # The maximum cuts, then the minimum copies; the cost model goes on counting the graph's.
    def channels(**environment):
        return search_of(box([[0, 1, 2, 3]], nccl=NcclEnvironment(p2p_level="SYS", **environment)))

    assert channels(max_channels=1).channels == 1
    assert channels(min_channels=8).channels == 8
    assert channels(max_channels=1, min_channels=8).channels == 8
    assert channels(min_channels=2).channels == 4
    assert channels(channels=16).channels == 16
    assert channels(min_channels=8).graph_channels == 2


def test_threads_must_have_work():
    # LL ring: 512 threads x 8 B x n ranks a channel: 128 KiB for 4 channels of 8 ranks. Tree LL: 512 x 8 B.
    four = replace(ring(22.5, 2), channels=4)
    assert used_channels(128 * KIB, Protocol.LL, 8, four) == 4
    assert used_channels(128 * KIB - 1, Protocol.LL, 8, four) == 3
    assert used_channels(16 * KIB, Protocol.LL, 8, four, Algorithm.TREE) == 4
    assert used_channels(128 * KIB, Protocol.SIMPLE, 8, four) == 4  # 512 x 64 B
    slow = replace(ring(6, 2), channels=4)  # 12 GB/s of ring: 256 threads
    assert used_channels(64 * KIB, Protocol.SIMPLE, 8, slow) == 4


def test_an_intel_root_complex_takes_six_fifths():
    # 48 / 1.2 = 40 GB/s between root ports of one socket; across sockets the socket's constant alone.
    intel = box([[0, 1, 2, 3]], vendor="intel")
    assert search_of(intel).slowest == pytest.approx(40 * GB)
    through_host = box([[0, 1, 2, 3]], vendor="intel", nccl=NcclEnvironment())
    assert search_of(through_host).slowest == pytest.approx(40 * GB)
    two = box([[0, 1], [2, 3]], vendor="intel", sockets=[0, 1])
    assert search_of(two).slowest == pytest.approx(22 * GB)


def test_peer_to_peer_levels():
    def kinds(**environment):
        return set(transports(task(box([[0, 1, 2, 3]], nccl=NcclEnvironment(**environment)), 8192)).values())

    assert kinds() == {"SHM"}  # PXB by default
    assert kinds(p2p_level="PHB") == {"P2P"}  # NCCL calls NODE pairs PHB
    assert kinds(p2p_level="SYS") == {"P2P"}
    assert kinds(p2p_level="PXB") == {"SHM"}
    assert kinds(p2p_level="SYS", p2p=False) == {"SHM"}
    switched = box([[0, 1], [2, 3]], switched=True, nccl=NcclEnvironment())
    found = transports(task(switched, 8192))
    assert (found[0, 1], found[1, 2]) == ("P2P", "SHM")


def test_two_ranks_on_amd_go_peer_to_peer_everywhere():
    fabric = box([[0, 1, 2, 3]], nccl=NcclEnvironment())
    pair = replace(task(fabric, 8192), gpus=("GPU0", "GPU3"))
    assert set(transports(pair).values()) == {"P2P"}
    intel = replace(fabric, host=Host(vendor="intel"))
    assert set(transports(replace(pair, fabric=intel)).values()) == {"SHM"}


def test_half_a_mebibyte_slower_than_a_whole_one():
    """Eight GPUs on two Intel sockets (SPR: 22 GB/s), NCCL's defaults: everything through host memory.

    Ring at 20 GB/s, one in the graph, two channels. NCCL goes from LL to Simple where 20.6 us + S x 1.75 / 10 GB/s =
    88.2 us + S x 1.75 / 20 GB/s, at 773 KB: 512 KiB still runs LL, 1 MiB Simple. A real LL channel carries 2.9 GB/s
    through host memory, not the 5 that NCCL counts, so LL loses long before, and 512 KiB comes out slower than 1 MiB.
    """
    fabric = box([[0, 1, 2, 3], [4, 5, 6, 7]], sockets=[0, 1], vendor="intel", nccl=NcclEnvironment())
    from tests.support.profiles import round_profile

    profile = round_profile(nccl__shm__ll_channel=2.9 * GB)
    found = {size: lower("nccl", task(fabric, size, profile=profile)) for size in (512 * KIB, MIB)}
    assert [found[size].protocol for size in found] == ["LL", "Simple"]
    assert {each.channels for each in found.values()} == {2}
    half, whole = (simulate(each.program).latency for each in found.values())
    assert half > whole


def test_the_plan_says_why():
    lost = box([[0, 1], [2, 3]], sockets=[0, 1])
    assert "fell back" in plan(task(lost, 8192)).reason
    forced = box([[0, 1]], nccl=NcclEnvironment(p2p_level="SYS", algorithm="Tree", protocol="LL"))
    assert "forced" in plan(task(forced, 8192)).reason
    gathered = plan(task(forced, 8192, kind=CollectiveKind.ALL_GATHER))  # no tree gathers
    assert gathered.algorithm == "Ring"


def test_ll128_over_pcie_carries_its_warning():
    assert "LL128 off" in lower("nccl-ring-ll128", task(box([[0, 1]]), 8192)).notes[0]
    assert lower("nccl-ring-ll", task(box([[0, 1]]), 8192)).notes == ()
