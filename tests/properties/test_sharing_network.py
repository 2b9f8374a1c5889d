"""The fluid network against its definition: rates max-min at all times, no byte lost, and tiny time steps."""

from __future__ import annotations

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from pciesim.evaluate.network import FluidNetwork, RateMemo
from pciesim.sharing import Flow, max_min, violations

Case = tuple[list[float], list[tuple[Flow, float, float]]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Capacities, and flows with their bytes and start."""
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=4))
    flows = []
    for _ in range(draw(st.integers(1, 6))):
        links = draw(st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=3, unique=True))
        flow = Flow(
            uses=tuple((link, draw(st.sampled_from([1.0, 1.5]))) for link in sorted(links)),
            weight=draw(st.sampled_from([1.0, 2.0])),
            cap=draw(st.sampled_from([float("inf"), 0.8])),
        )
        flows.append((flow, draw(st.sampled_from([1.0, 2.0, 3.5])), draw(st.sampled_from([0.0, 0.5, 1.3]))))
    return capacity, flows


class Watched(RateMemo):
    """Checks every set of rates, and remembers them."""

    __slots__ = ("capacity", "seen")

    def __init__(self, capacity: list[float]) -> None:
        super().__init__(capacity)
        self.capacity = capacity
        self.seen = 0

    def rates(self, flows: tuple[Flow, ...]) -> list[float]:
        found = super().rates(flows)
        assert violations(self.capacity, flows, found) == []
        self.seen += 1
        return found


def run(case: Case) -> tuple[list[float], Watched]:
    capacity, flows = case
    env, memo = simpy.Environment(), Watched(capacity)
    network = FluidNetwork(env, memo)
    ends = [-1.0] * len(flows)
    for number, (flow, nbytes, start) in enumerate(flows):

        def begin(_event: object, number: int = number, flow: Flow = flow, nbytes: float = nbytes) -> None:
            def done() -> None:
                ends[number] = env.now

            network.start(flow, nbytes, done)

        simpy.Timeout(env, start).callbacks.append(begin)
    env.run()
    return ends, memo


@given(cases())
def test_every_flow_ends_and_rates_are_fair_at_all_times(case):
    ends, memo = run(case)
    assert all(end > start for end, (_, _, start) in zip(ends, case[1], strict=True))
    assert memo.seen <= 2 * len(case[1])  # rates change when a flow starts or ends, and then only


@given(cases())
def test_no_flow_is_faster_than_its_links_allow(case):
    capacity, flows = case
    ends, _ = run(case)
    for end, (flow, nbytes, start) in zip(ends, flows, strict=True):
        alone = max([nbytes / flow.cap, *(used * nbytes / capacity[link] for link, used in flow.uses)])
        assert end - start >= alone * (1 - 1e-9)
    for link, rate in enumerate(capacity):
        carried = sum(nbytes * used for flow, nbytes, _ in flows for each, used in flow.uses if each == link)
        begins = [start for flow, _, start in flows if any(each == link for each, _ in flow.uses)]
        if begins:
            assert max(ends) - min(begins) >= carried / rate * (1 - 1e-9)


@settings(max_examples=25)
@given(cases())
def test_tiny_time_steps_come_to_the_same(case):
    capacity, flows = case
    ends, _ = run(case)
    step = 1e-3
    left = [nbytes for _, nbytes, _ in flows]
    brute = [-1.0] * len(flows)
    now = 0.0
    while min(brute) < 0 and now < 60:
        active = [n for n, (_, _, start) in enumerate(flows) if start <= now + 1e-12 and brute[n] < 0]
        rates = max_min(capacity, [flows[n][0] for n in active]) if active else []
        now += step
        for n, rate in zip(active, rates, strict=True):
            left[n] -= rate * step
            if left[n] <= 0:
                brute[n] = now
    assert ends == pytest.approx(brute, abs=len(flows) * 2 * step)


@given(cases(), st.sampled_from([0.25, 3.0]))
def test_equal_scaling_of_bytes_and_rates(case, factor):
    capacity, flows = case
    scaled = (
        [rate * factor for rate in capacity],
        [
            (Flow(uses=f.uses, weight=f.weight, cap=f.cap * factor), nbytes * factor, start)
            for f, nbytes, start in flows
        ],
    )
    assert run(scaled)[0] == pytest.approx(run(case)[0], rel=1e-9)


def test_a_flow_that_starts_as_another_ends_ends_no_third():
    """Two flows at 2 B/s on 5 B/s (the second uses 1.5 a byte): the first's 1 B ends at 0.5, as a third's start.

    The second then has half of its 2 B left and shares with the third: 2.5 x = 5, both 1 B at 2 B/s, another 0.5 s.
    """
    plain, heavy = Flow(uses=((0, 1.0),)), Flow(uses=((0, 1.5),))
    ends, _ = run(([5.0], [(plain, 1.0, 0.0), (plain, 1.0, 0.5), (heavy, 2.0, 0.0)]))
    assert ends == pytest.approx([0.5, 1.0, 1.0])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_equals_on_one_link(count):
    # k flows of S bytes on a link of rate B end together after k S / B.
    ends, _ = run(([2.0], [(Flow(uses=((0, 1.0),)), 3.0, 0.0)] * count))
    assert ends == pytest.approx([count * 1.5] * count)
