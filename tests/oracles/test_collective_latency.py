"""Latencies worked out by hand from the round profile (tests/support/profiles.py).

Routes: a switch costs store = 0.4 + 0.2 + 0.1 = 0.7 us and load = 0.6 us; a root complex 0.4 + 0.2 + 0.2 = 0.8 and
0.8 us; the other socket 0.1 us more one way. Stores fill 0.7 of 63.015 GB/s = 44.11 GB/s, loads 0.6 = 37.81 GB/s.
"""

from dataclasses import replace

import pytest

from pciesim.collectives.select import lower
from pciesim.evaluate.simulate import simulate
from pciesim.fabric import NcclEnvironment
from pciesim.units import GB, US
from tests.support.fabrics import GEN5_X16, box
from tests.support.tasks import fabric_named, task


def latency(name, fabric, nbytes):
    return simulate(lower(name, task(fabric, nbytes)).program).latency


def test_ring_ll_on_four_root_ports():
    # 5 us base, 6 hops of 0.8 + 0.2 us, and on each hop 2 KiB x 2 at 44.11 GB/s = 0.0929 us.
    expected = 5 + 6 * (1.0 + 2 * 2048 / 44.1105e3)
    assert latency("nccl-ring-ll", fabric_named("four on one socket"), 8192) == pytest.approx(expected * US, rel=1e-5)


def test_ring_simple_pays_a_fence_a_hop():
    # 5 + 2 us base, 6 hops of 0.8 + 0.2 + fence 0.8 us, 2 KiB at 44.11 GB/s each.
    expected = 7 + 6 * (1.8 + 2048 / 44.1105e3)
    found = latency("nccl-ring-simple", fabric_named("four on one socket"), 8192)
    assert found == pytest.approx(expected * US, rel=1e-5)


def test_ring_ll_through_host_memory():
    # 8 us base, 6 hops of 0.4 + 1.2 + 0.2 us; the load side (37.81 GB/s) is the narrower: 4 KiB at it.
    expected = 8 + 6 * (1.8 + 2 * 2048 / 37.809e3)
    found = latency("nccl-ring-ll", fabric_named("four through host memory"), 8192)
    assert found == pytest.approx(expected * US, rel=1e-5)


def test_push_to_three_peers():
    # 3 us base, one traversal of 0.8 us, 3 x 8 KiB out of and into every port at 44.11 GB/s.
    expected = 3 + 0.8 + 3 * 8192 / 44.1105e3
    assert latency("oneshot-push", fabric_named("four on one socket"), 8192) == pytest.approx(expected * US, rel=1e-5)


def test_pull_from_three_peers():
    # 5 us base, a flag of 0.8 us, a load of 0.8 us, 3 x 8 KiB at 37.81 GB/s.
    expected = 5 + 0.8 + 0.8 + 3 * 8192 / 37.809e3
    assert latency("oneshot-pull", fabric_named("four on one socket"), 8192) == pytest.approx(expected * US, rel=1e-5)


def test_push_over_a_shared_uplink_pays_for_sixteen_tensors():
    # Two switches of four: 4 x 4 x 1 MiB cross each uplink at 44.11 GB/s; two switches and a root complex on the way:
    # 0.4 + 0.2 + 0.2 + 0.2 = 1.0 us.
    expected = 3 + 1.0 + 16 * 1048576 / 44.1105e3
    found = latency("oneshot-push", fabric_named("two switches of four"), 1 << 20)
    assert found == pytest.approx(expected * US, rel=1e-4)


def test_halving_an_uplink_doubles_its_share():
    # The same with uplinks of half the rate: the 16 MiB term doubles, nothing else changes.
    whole = box([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True)
    half = box([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True, uplink=GEN5_X16 / 2)
    added = latency("oneshot-push", half, 1 << 20) - latency("oneshot-push", whole, 1 << 20)
    assert added == pytest.approx(16 * 1048576 / 44.1105e3 * US, rel=1e-4)


def test_a_switch_instead_of_root_ports_shortens_every_hop():
    # Four GPUs behind one switch instead of on root ports: 6 hops, each 0.1 us shorter (0.7 against 0.8).
    direct, switched = box([[0, 1, 2, 3]]), box([[0, 1, 2, 3]], switched=True)
    saved = latency("nccl-ring-ll", direct, 8192) - latency("nccl-ring-ll", switched, 8192)
    assert saved == pytest.approx(6 * 0.1 * US, rel=1e-6)


def test_nccl_falls_back_across_amd_sockets():
    # Compute capability 12.0, AMD: NCCL's constant for the socket link (16 GB/s) is below its slowest listed ring (18),
    # so it takes rank order at 0.1 GB/s, and its cost model then prefers Simple from about 4 KB on.
    lost = box([[0, 1, 2, 3], [4, 5, 6, 7]], sockets=[0, 1], nccl=NcclEnvironment(p2p_level="SYS"))
    found = lower("nccl", task(lost, 8192))
    assert (found.algorithm, found.protocol) == ("NCCL Ring", "Simple")
    assert "fell back" in found.reason
    assert lower("nccl", task(lost, 2048)).protocol == "LL"
    mended = replace(lost, nccl=NcclEnvironment(p2p_level="SYS", graph_file=True))
    assert lower("nccl", task(mended, 8192)).protocol == "LL"
    intel = replace(lost, host=replace(lost.host, vendor="intel", nccl_socket_bandwidth=22 * GB))
    assert lower("nccl", task(intel, 8192)).protocol == "LL"


def test_default_level_sends_root_port_pairs_through_host_memory():
    fabric = box([[0, 1, 2, 3]], nccl=NcclEnvironment())
    found = lower("nccl", task(fabric, 8192))
    assert found.transport == "host memory"
    assert found.program.traversals == 3 * 6
