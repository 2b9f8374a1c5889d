import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from pciesim.evaluate.network import RateMemo
from pciesim.sharing import Flow, components, max_min, violations

capacities = st.lists(st.floats(0.5, 100), min_size=1, max_size=6)


@st.composite
def systems(draw):
    capacity = draw(capacities)
    count = draw(st.integers(1, 8))
    flows = []
    for _ in range(count):
        links = draw(st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=4, unique=True))
        uses = tuple((link, draw(st.sampled_from([1.0, 1.4, 2.0, 2.8]))) for link in links)
        flows.append(
            Flow(
                uses=uses,
                weight=draw(st.sampled_from([1.0, 2.0, 4.0])),
                cap=draw(st.sampled_from([float("inf"), 3.0, 20.0])),
            )
        )
    return capacity, flows


@given(systems())
def test_rates_carry_their_certificate(system):
    capacity, flows = system
    assert violations(capacity, flows, max_min(capacity, flows)) == []


@given(systems())
def test_the_first_level_is_the_linear_program_s(system):
    """The smallest x / w is the optimum of: maximise t with x_f >= w_f t, within all capacities and caps."""
    capacity, flows = system
    rates = max_min(capacity, flows)
    n = len(flows)
    rows, limits = [], []
    for link, limit in enumerate(capacity):
        row = np.zeros(n + 1)
        for position, flow in enumerate(flows):
            row[position] = dict(flow.uses).get(link, 0.0)
        rows.append(row)
        limits.append(limit)
    for position, flow in enumerate(flows):
        row = np.zeros(n + 1)
        row[position], row[n] = -1.0, flow.weight
        rows.append(row)
        limits.append(0.0)
    objective = np.zeros(n + 1)
    objective[n] = -1.0
    bounds = [(0, None if np.isinf(flow.cap) else flow.cap) for flow in flows] + [(0, None)]
    solved = linprog(objective, A_ub=np.array(rows), b_ub=limits, bounds=bounds)
    smallest = min(rate / flow.weight for rate, flow in zip(rates, flows, strict=True))
    assert np.isclose(smallest, -solved.fun, rtol=1e-7)


@given(systems(), st.floats(0.1, 10))
def test_scaling_capacities_and_caps_scales_rates(system, factor):
    capacity, flows = system
    scaled = [Flow(uses=f.uses, weight=f.weight, cap=f.cap * factor) for f in flows]
    one, other = max_min(capacity, flows), max_min([c * factor for c in capacity], scaled)
    assert np.allclose(np.array(one) * factor, other, rtol=1e-9)


@given(systems(), st.randoms(use_true_random=False))
def test_order_of_flows_does_not_matter(system, random):
    capacity, flows = system
    order = list(range(len(flows)))
    random.shuffle(order)
    rates = max_min(capacity, flows)
    shuffled = max_min(capacity, [flows[i] for i in order])
    assert np.allclose([rates[i] for i in order], shuffled, rtol=1e-9)


@given(systems())
def test_components_share_nothing_and_hold_every_flow_once(system):
    _, flows = system
    groups = components(flows)
    assert sorted(position for group in groups for position in group) == list(range(len(flows)))
    used = [{constraint for position in group for constraint, _ in flows[position].uses} for group in groups]
    for one in range(len(used)):
        for other in range(one):
            assert not used[one] & used[other]


@given(systems())
def test_solving_only_what_changed_gives_the_rates_of_solving_all(system):
    """Flows start one by one; the memo solves the touched component only."""
    capacity, flows = system
    memo = RateMemo(capacity)
    for count in range(1, len(flows) + 1):
        started = tuple(flows[:count])
        assert np.allclose(memo.rates(started), max_min(capacity, started), rtol=1e-9)
