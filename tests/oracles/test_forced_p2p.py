"""The driver's ForceP2P option against the one published point, and what must not follow it.

Published (local-inference-lab/rtx6kpro optimization/pcie-oneshot-allreduce.md): four GPUs on root ports, one-shot pull
of 114,688 bytes, 242 us without the option and about 16 us with it. Every GPU then loads 3 x 114,688 bytes at 0.685 ns
each: 236 us, and some 7 us for the kernel, the flags and the load's latency.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pciesim.collective_sweep import sweep
from pciesim.collectives.select import ALGORITHMS
from pciesim.errors import Infeasible
from pciesim.evaluate.collective import EVALUATORS
from pciesim.fabric import Fabric
from pciesim.flows import EngineWord, FlowSpec, Metric, Operation, run_flows
from pciesim.physics import UNFORCED_LOADS, Engine, RouteCosts
from pciesim.scenario import Scenario
from pciesim.schedule import CollectiveKind
from pciesim.step import evaluate_step, timer_of
from pciesim.strategies.choice import apply_choices
from pciesim.units import GB, US
from tests.support.scenarios import scenario

PUBLISHED = 114_688


def unforced(base: Scenario) -> Scenario:
    return apply_choices(base, [("bar1", "default")]).scenario


def latency(given: Scenario, algorithm: str, nbytes: int = PUBLISHED, evaluator: str = "simulate") -> float:
    return timer_of(given, evaluator).time(algorithm, CollectiveKind.ALL_REDUCE, nbytes).latency


@pytest.mark.parametrize("evaluator", sorted(EVALUATORS))
def test_the_published_point(evaluator: str) -> None:
    base = scenario("rtx6000x4")
    assert latency(base, "oneshot-pull", evaluator=evaluator) == pytest.approx(16 * US, rel=0.05)
    assert latency(unforced(base), "oneshot-pull", evaluator=evaluator) == pytest.approx(242 * US, rel=0.01)


def test_one_point_leaves_a_wide_interval() -> None:
    """A third of the rate to 7/3 of it: about 7 + 236 x 3 us at most, 7 + 236 x 3 / 7 at least."""
    given = unforced(scenario("rtx6000x4"))
    (row,) = sweep(timer_of(given, "simulate"), CollectiveKind.ALL_REDUCE, [PUBLISHED], ["oneshot-pull"]).rows
    assert row.latency.high == pytest.approx((7 + 236 * 3) * US, rel=0.02)
    assert row.latency.low == pytest.approx((7 + 236 * 3 / 7) * US, rel=0.02)
    assert UNFORCED_LOADS.evidence == "published"


def test_all_loads_of_a_gpu_share_the_rate() -> None:
    """Seven peers instead of three: 7 x 114,688 bytes at 0.685 ns are 550 us."""
    assert latency(unforced(scenario("rtx6000x8")), "oneshot-pull") == pytest.approx((550 + 7) * US, rel=0.01)


@pytest.mark.parametrize("algorithm", ["nccl", "oneshot-push", "twoshot-push", "mscclpp", "ce-ring", "oneshot-host"])
@pytest.mark.parametrize("nbytes", [8192, 1 << 20])
def test_what_does_not_load_from_a_peer_is_as_before(algorithm: str, nbytes: int) -> None:
    base = scenario("rtx6000x4", tp=2) if algorithm == "oneshot-host" else scenario("rtx6000x4")
    assert latency(unforced(base), algorithm, nbytes) == latency(base, algorithm, nbytes)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_inside_a_switch_nothing_changes(algorithm: str) -> None:
    base = scenario("rtx6000x8_2switch", tp=4)
    bare = replace(base, fabric=replace(base.fabric, registry_override=False))
    try:
        assert latency(bare, algorithm) == latency(base, algorithm)
    except Infeasible:
        pytest.skip("cannot run on this group")


def test_between_switches_only_what_crosses_is_slow() -> None:
    """A pull in islands loads a quarter of one tensor across, the flat kernel four tensors."""
    base = scenario("rtx6000x8_2switch")
    flat, islands = (latency(unforced(base), each) for each in ("oneshot-pull", "hierarchical-pull"))
    assert flat == pytest.approx(4 * PUBLISHED * UNFORCED_LOADS.value, rel=0.1)
    assert islands < flat / 5
    assert islands > latency(base, "hierarchical-pull")


def test_rates_of_pairs_and_flows() -> None:
    base = scenario("rtx6000x4")
    costs = RouteCosts.of(base.profile)

    def read(fabric: Fabric, engine: Engine) -> float:
        capacity = [link.bandwidth for link in fabric.links]
        return min(capacity[link] / used for link, used in costs.uses(fabric, fabric.route("GPU0", "GPU1"), engine))

    slow = unforced(base).fabric
    assert read(slow, Engine.LOAD) == pytest.approx(1.46 * GB, rel=0.01)
    assert read(slow, Engine.STORE) == read(base.fabric, Engine.STORE)
    assert read(slow, Engine.COPY) == read(base.fabric, Engine.COPY)
    flows = [FlowSpec(source=f"GPU{other}", target="GPU0") for other in (1, 2, 3)]

    def rate(fabric: Fabric, operation: Operation, engine: EngineWord) -> float:
        return run_flows(fabric, costs, flows, operation=operation, engine=engine, metric=Metric.RATE).figure

    assert rate(slow, Operation.READ, EngineWord.SM) == pytest.approx(1.46 * GB, rel=0.05)
    for operation, engine in ((Operation.WRITE, EngineWord.SM), (Operation.READ, EngineWord.CE)):
        assert rate(slow, operation, engine) == rate(base.fabric, operation, engine)


def test_the_option_lifts_it_again() -> None:
    base = scenario("rtx6000x4")
    lifted = apply_choices(unforced(base), [("bar1", "force-p2p")]).scenario
    assert lifted == base
    assert apply_choices(base, [("bar1", "force-p2p")]).scenario == base, "boxes are taken to have it"


def test_a_step_by_one_shot_pull_is_slower_without_it() -> None:
    """121 calls of 8 KiB: 3 x 8,192 bytes at 0.685 ns instead of at some 40 GB/s, 16 us a call more."""
    base = apply_choices(scenario("rtx6000x4"), [("allreduce", "oneshot-pull")]).scenario
    before, after = (evaluate_step(each, timer_of(each, "estimate")).timeline.length for each in (base, unforced(base)))
    assert after - before == pytest.approx(121 * 16.2 * US, rel=0.03)


@pytest.mark.parametrize(
    ("topo", "tp", "first", "told"),
    [
        ("rtx6000x8_2switch", 4, (), "no two of these GPUs of 'rtx6000x8_2switch' meet in a root complex"),
        ("rtx6000x4", None, (("p2p", "off"),), "p2p=on first"),
    ],
)
@pytest.mark.parametrize("value", ["default", "force-p2p"])
def test_needs_peers_that_meet_in_a_root_complex(
    topo: str, tp: int | None, first: tuple[tuple[str, str], ...], told: str, value: str
) -> None:
    with pytest.raises(Infeasible, match=told):
        apply_choices(scenario(topo, tp=tp), [*first, ("bar1", value)])
    redirected = apply_choices(scenario("rtx6000x8_2switch", tp=4), [("acs", "on"), ("bar1", value)])
    assert redirected.scenario.fabric.acs_redirect, "with ACS redirect, peers of one switch meet there too"
