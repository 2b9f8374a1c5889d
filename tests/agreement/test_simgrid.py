"""The fluid network against SimGrid's, on random platforms, where Debian's python3-simgrid is installed.

SimGrid runs in a process of its own (its engine is a singleton, and the package belongs to the system's Python). Links
are shared max-min, without latency and without TCP factors, as SimGrid's documentation advises for a bus.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys

import pytest
import simpy

from pciesim.evaluate.network import FluidNetwork, RateMemo
from pciesim.sharing import Flow

# Rates near 1 and volumes near 1,000: SimGrid takes instants closer than about 1e-9 s for one.
CHILD = """
import json, sys, simgrid
asked = json.load(sys.stdin)
engine = simgrid.Engine(["x", "--log=root.threshold:error", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0",
                         "--cfg=network/crosstraffic:0", "--cfg=maxmin/precision:1e-12",
                         "--cfg=surf/precision:1e-12"])
zone = simgrid.NetZone.create_full_zone("box")
links = [zone.create_link(f"l{i}", each) for i, each in enumerate(asked["capacity"])]
ends = {}
def send(box): box.put("x", int(asked["volume"][int(box.name)]))
def receive(box):
    box.get()
    ends[int(box.name)] = simgrid.Engine.clock
for i, route in enumerate(asked["routes"]):
    a, b = zone.create_host(f"a{i}", 1e9), zone.create_host(f"b{i}", 1e9)
    zone.add_route(a.netpoint, b.netpoint, None, None, [simgrid.LinkInRoute(links[l]) for l in route], False)
    box = engine.mailbox_by_name_or_create(str(i))
    simgrid.Actor.create(f"s{i}", a, send, box)
    simgrid.Actor.create(f"r{i}", b, receive, box)
zone.seal()
engine.run()
print(json.dumps([ends[i] for i in range(len(asked["routes"]))]))
"""


def interpreter() -> str | None:
    """A Python that can import simgrid."""
    for each in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if each and subprocess.run([each, "-c", "import simgrid"], capture_output=True, check=False).returncode == 0:
            return each
    return None


@pytest.fixture(scope="module")
def simgrid_python() -> str:
    found = interpreter()
    if found is None:
        pytest.skip("python3-simgrid is not installed")
    return found


def ours(capacity: list[float], routes: list[list[int]], volume: list[int]) -> list[float]:
    env = simpy.Environment()
    network = FluidNetwork(env, RateMemo(capacity))
    ends = [0.0] * len(routes)

    def ended(position: int) -> None:
        ends[position] = env.now

    for position, route in enumerate(routes):
        flow = Flow(uses=tuple((link, 1.0) for link in route))
        network.start(flow, float(volume[position]), lambda position=position: ended(position))
    env.run()
    return ends


@pytest.mark.parametrize("seed", range(8))
def test_flows_end_when_simgrid_says(simgrid_python: str, seed: int) -> None:
    generator = random.Random(seed)
    capacity = [float(generator.randint(20, 600)) for _ in range(generator.randint(2, 8))]
    routes = [
        sorted(generator.sample(range(len(capacity)), generator.randint(1, min(3, len(capacity)))))
        for _ in range(generator.randint(2, 10))
    ]
    volume = [generator.randint(1000, 90000) for _ in routes]
    asked = json.dumps({"capacity": capacity, "routes": routes, "volume": volume})
    answer = subprocess.run(
        [simgrid_python, "-c", CHILD], input=asked, capture_output=True, text=True, timeout=60, check=True
    )
    theirs = json.loads(answer.stdout.splitlines()[-1])
    assert ours(capacity, routes, volume) == pytest.approx(theirs, rel=1e-9)
