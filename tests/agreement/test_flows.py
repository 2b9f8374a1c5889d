"""Equal volumes run to completion by `flows`, and by the fluid network of the simulator with the same rates."""

from __future__ import annotations

import pytest
import simpy

from pciesim.contention import Contention, Leg, Rules, Stream
from pciesim.evaluate.network import FluidNetwork
from pciesim.fabric import Fabric
from pciesim.flows import Metric, all_to_all, stagger
from pciesim.units import MB
from tests.support.fabrics import box
from tests.support.flows import COSTS, IDEAL, run

NAMES = [f"GPU{number}" for number in range(8)]
BOXES = {
    "two switches": box([[0, 1, 2, 3], [4, 5, 6, 7]], switched=True),
    "two sockets": box([[0, 1, 2, 3], [4, 5, 6, 7]], sockets=[0, 1]),
    "four switches": box([[0, 1], [2, 3], [4, 5], [6, 7]], switched=True, uplink=30e9),
}


class Rates:
    """Has the one method of a RateMemo that the network calls."""

    def __init__(self, contention: Contention) -> None:
        self._contention = contention

    def rates(self, flows: tuple[Stream, ...]) -> list[float]:
        return self._contention.solve(self._contention.capacity, flows)


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("rules", [IDEAL, Rules()], ids=["ideal", "rules"])
@pytest.mark.parametrize("flows", [all_to_all(NAMES), stagger(NAMES, 2), stagger(NAMES, 3)], ids=["all", "+2", "+3"])
def test_the_fluid_network_ends_when_flows_says(name: str, rules: Rules, flows: tuple) -> None:  # type: ignore[type-arg]
    fabric: Fabric = BOXES[name]
    expected = run(fabric, flows, metric=Metric.COMPLETION, volume=100 * MB, rules=rules)
    contention = Contention(fabric, COSTS, rules)
    env = simpy.Environment()
    network = FluidNetwork(env, Rates(contention))  # type: ignore[arg-type]
    ends: dict[int, float] = {}
    for number, flow in enumerate(flows):
        stream = contention.stream(Leg(route=fabric.route(flow.source, flow.target)))
        network.start(stream, 100 * MB, lambda number=number: ends.update({number: env.now}))  # type: ignore[arg-type,misc]
    env.run()
    assert [ends[number] for number in range(len(flows))] == pytest.approx(
        [each.completion for each in expected.flows], rel=1e-6
    )
