"""Speed of the evaluators and of the fluid network (budgets for one core of a laptop; run alone).

SimGrid's Python binding, where it is installed, moves the same flows for comparison; it is printed, not asserted.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable

import pytest
import simpy

from pciesim.collectives.select import lower
from pciesim.evaluate.estimate import estimate
from pciesim.evaluate.network import FluidNetwork, RateMemo
from pciesim.evaluate.simulate import simulate
from pciesim.sharing import Flow
from pciesim.units import MS
from tests.support.tasks import fabric_named, task

pytestmark = pytest.mark.bench
RANKS, ROUNDS = 8, 500


def best_of(count: int, action: Callable[[], object]) -> float:
    """Processor seconds: what other processes take of a shared machine does not count."""
    found = []
    for _ in range(count):
        begin = time.process_time()
        action()
        found.append(time.process_time() - begin)
    return min(found)


def ring():
    """8 ranks, 32 KiB, two channels of LL."""
    return lower("nccl-ring-ll", task(fabric_named("eight on two sockets"), 32768)).program


def test_a_ring_all_reduce_is_simulated_within_three_milliseconds():
    program = ring()
    assert best_of(20, lambda: simulate(program)) < 3 * MS
    assert simulate(program).events <= 5 * len(program.transfers)


def test_a_ring_all_reduce_is_estimated_within_a_tenth_of_a_millisecond():
    # A fresh program each time: nothing is kept from the call before.
    programs = [ring() for _ in range(20)]
    assert min(best_of(1, lambda program=program: estimate(program)) for program in programs) < 0.1 * MS


def rounds_of_a_ring() -> int:
    """Every rank sends messages to its neighbour, each of its own size, so that flows end one by one; their number."""
    capacity = [50e9] * (2 * RANKS)
    env = simpy.Environment()
    network = FluidNetwork(env, RateMemo(capacity))
    flows = [Flow(uses=((rank, 1.0), (RANKS + (rank + 1) % RANKS, 1.0))) for rank in range(RANKS)]
    moved = 0

    def send(rank: int, left: int) -> None:
        def done() -> None:
            nonlocal moved
            moved += 1
            if left > 1:
                send(rank, left - 1)

        network.start(flows[rank], 65536.0 * (1 + rank / 16), done)

    for rank in range(RANKS):
        send(rank, ROUNDS)
    env.run()
    return moved


def test_flows_through_the_network(capsys):
    moved = rounds_of_a_ring()
    rate = moved / best_of(5, rounds_of_a_ring)
    with capsys.disabled():
        say(f"\npciesim: {rate:,.0f} flows/s ({moved} flows, {RANKS} at a time)")
        if importlib.util.find_spec("simgrid"):
            say(f"SimGrid: {simgrid_rate():,.0f} flows/s")
        else:
            say("SimGrid is not installed: nothing to compare with")
    assert rate >= 60_000


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def simgrid_rate() -> float:
    """The same flows by SimGrid's Python binding (3.32 and later): two actors a rank, no TCP factors."""
    import simgrid

    engine = simgrid.Engine(
        ["benchmark", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0"]
    )
    zone = simgrid.NetZone.create_full_zone("box")
    hosts = [zone.create_host(f"gpu{rank}", 1e9) for rank in range(RANKS)]
    out = [zone.create_link(f"out{rank}", 50e9) for rank in range(RANKS)]
    into = [zone.create_link(f"in{rank}", 50e9) for rank in range(RANKS)]
    for rank in range(RANKS):
        peer = (rank + 1) % RANKS
        route = [simgrid.LinkInRoute(out[rank]), simgrid.LinkInRoute(into[peer])]
        zone.add_route(hosts[rank].netpoint, hosts[peer].netpoint, None, None, route, False)
    zone.seal()

    def sender(box: object, nbytes: int) -> None:
        for _ in range(ROUNDS):
            box.put("x", nbytes)  # type: ignore[attr-defined]

    def receiver(box: object) -> None:
        for _ in range(ROUNDS):
            box.get()  # type: ignore[attr-defined]

    for rank in range(RANKS):
        box = engine.mailbox_by_name_or_create(f"m{rank}")
        simgrid.Actor.create(f"s{rank}", hosts[rank], sender, box, int(65536 * (1 + rank / 16)))
        simgrid.Actor.create(f"r{rank}", hosts[(rank + 1) % RANKS], receiver, box)
    begin = time.perf_counter()
    engine.run()
    return RANKS * ROUNDS / (time.perf_counter() - begin)
