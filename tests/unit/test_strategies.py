"""The table of strategies: complete, explained, and refused where they cannot run."""

from __future__ import annotations

import dataclasses

import pytest

from pciesim.collectives.select import ALGORITHMS
from pciesim.errors import Infeasible, InputError, UnknownName
from pciesim.formats.engine_yaml import engine_names, load_engine
from pciesim.reports.strategies_text import strategies_markdown, strategies_text
from pciesim.strategies import STRATEGIES
from pciesim.strategies.choice import AXES, apply_choices, chosen, switches
from pciesim.strategies.speculation import tokens_an_iteration
from pciesim.strategies.strategy import Switch
from tests.support.scenarios import scenario

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=lambda each: f"{each.axis}={each.name}")


@every_strategy
def test_says_everything_a_person_must_know(strategy) -> None:
    for field in ("sentence", "source", "number", "size", "criticality", "risk", "hurts"):
        assert getattr(strategy, field), field


@every_strategy
def test_is_pure_and_gives_a_scenario_of_the_same_model(strategy) -> None:
    base = scenario(batch=8)
    before = dataclasses.asdict(base.workload), base.allreduce, base.fabric
    argument = {"p2p-level": "PIX", "channels": "4", "width": "x8", "card": "4@root_complex0", "add": "0.1",
                "ranks": "1.0.2.3.4.5.6.7" if strategy.axis == "order" else "2", "replicas": "1", "stages": "2",
                "experts": "2", "quantised": "fp8", "drop": "50%", "mtp": "2", "tree": "3x2/6",
                "tiles": "4"}  # fmt: skip
    changed = strategy.apply(base, argument.get(strategy.name, ""))
    assert changed.model == base.model
    assert (dataclasses.asdict(base.workload), base.allreduce, base.fabric) == before


@pytest.mark.parametrize("name", [name for axis, name in STRATEGIES if axis == "allreduce"])
def test_every_all_reduce_is_in_the_catalogue(name: str) -> None:
    assert name in ALGORITHMS


def test_every_algorithm_of_the_catalogue_can_be_chosen() -> None:
    for name in ALGORITHMS:
        assert chosen("allreduce", name)[0][0].name == name


def test_neutral_values_change_nothing() -> None:
    base = scenario()
    for axis, values in AXES.items():
        assert apply_choices(base, [(axis, values[0])]).scenario is base


@pytest.mark.parametrize(
    ("axis", "value", "told"),
    [
        ("allreduce", "symm-mem", "compute capability 9.0 and 10.x"),
        ("allreduce", "hierarchical", ""),
        ("fused", "norm", "NCCL has no fused form"),
        ("host", "overlap", "overlaps plain decode by default"),
        ("a2a", "on", "ep=N first"),
        ("overlap", "two-batch", "two-batch"),
        ("sequence", "parallel", "1 rows do not divide over 8 ranks"),
        ("attention-dp", "4", "a batch of 1 leaves"),
        ("acs", "off", "has no switch"),
        ("overlap", "tiles:4", "no tiled sums"),
        ("dcp", "2", "has no decode context parallelism"),
        ("bar1", "force-p2p", ""),
    ],
)
def test_refuses_with_the_reason_and_yields_to_hypothetical(axis: str, value: str, told: str) -> None:
    base = scenario()
    if not told:
        assert apply_choices(base, [(axis, value)]).notes == ()
        return
    with pytest.raises(Infeasible, match=f"{axis}={value}.*"):
        apply_choices(base, [(axis, value)])
    if value != "two-batch":  # one sequence cannot be halved, hypothetical or not
        notes = apply_choices(base, [(axis, value)], hypothetical=True).notes
        assert any(told in note for note in notes)


def test_peers_must_reach_each_other() -> None:
    off = apply_choices(scenario(), [("p2p", "off")]).scenario
    for name in ("oneshot-push", "oneshot-pull", "twoshot-push", "pcie-ipc", "mscclpp"):
        with pytest.raises(Infeasible, match="peer-to-peer"):
            apply_choices(off, [("allreduce", name)])
    assert apply_choices(off, [("allreduce", "oneshot-host")]).used[0][0].name == "oneshot-host"


@pytest.mark.parametrize(
    ("axis", "value", "error"),
    [
        ("allreduse", "nccl", UnknownName),
        ("allreduce", "onshot-push", UnknownName),
        ("dp", "two", InputError),
        ("dp", "9", Infeasible),
        ("dcp", "all", InputError),
        ("dcp", "0", InputError),
        ("slots", "x7", InputError),
        ("move", "4", InputError),
        ("move", "4@nowhere", InputError),
        ("switch", "0", InputError),
        ("order", "0.1", InputError),
        ("nccl", "p2p-level", InputError),
        ("nccl", "p2p-level:FAR", InputError),
        ("nccl", "graph:1", InputError),
        ("sync", "drop:0%", InputError),
        ("spec", "mtp:0", InputError),
        ("spec", "mtp:2@9", InputError),
        ("spec", "tree:3", InputError),
        ("wire", "int3", UnknownName),
        ("overlap", "tiles:1", Infeasible),
    ],
)
def test_bad_values_are_told(axis: str, value: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        apply_choices(scenario(), [(axis, value)])


def test_drafts_need_a_draft_head() -> None:
    with pytest.raises(Infeasible, match="no draft head"):
        apply_choices(scenario(model="qwen3_235b"), [("spec", "mtp:2")])


def test_tokens_an_iteration_follow_the_marginal_rates() -> None:
    """1 + 0.85 + 0.67 = 2.52 for two drafts; five give 3.70 (rtx6kpro models/qwen35-397b.md)."""
    assert tokens_an_iteration(2).value == pytest.approx(2.52)
    assert tokens_an_iteration(5).value == pytest.approx(3.70)
    assert tokens_an_iteration(2).low < 2.78 < tokens_an_iteration(2).high
    rates = [tokens_an_iteration(drafts).value for drafts in range(1, 9)]
    assert rates == sorted(rates)
    assert tokens_an_iteration(3, width=4).value > tokens_an_iteration(3).value


def test_switches_know_versions() -> None:
    switch = Switch(engine="sglang", since="0.5.9", until="0.5.22", flags=("--x",))
    assert [switch.serves("sglang", each) for each in ("0.5.8", "0.5.9", "0.5.22", "0.5.23")] == [
        False, True, True, False,
    ]  # fmt: skip
    assert not switch.serves("vllm", "0.5.9")
    assert Switch(engine="nccl").serves("vllm", "1")
    used = apply_choices(scenario(), [("allreduce", "pcie-ipc")]).used
    ((_, here, elsewhere),) = switches(used, "sglang", "0.5.9")
    assert not here, "SGLang 0.5.9 has no PCIe-IPC"
    assert {each.engine for each in elsewhere} == {"sglang", "vllm"}


def test_the_tables_name_every_strategy() -> None:
    text, table = strategies_text(), strategies_markdown()
    for axis, name in STRATEGIES:
        assert name in text
        assert f"`{axis}={name}" in table


@pytest.mark.parametrize("name", engine_names())
def test_switches_of_all_reduces_exist_in_the_engine_version(name: str) -> None:
    """What advice tells to type is what the catalogue of that engine and version has read in its source."""
    engine = load_engine(name)
    known = {switch for backend in engine.backends if backend.switch for switch in backend.switch.names}
    family = engine.name.partition("-")[0]
    for (axis, _), strategy in STRATEGIES.items():
        if axis != "allreduce":
            continue
        for switch in strategy.turn_on(""):
            if switch.engine != family or not switch.serves(family, engine.version):
                continue
            typed = {*(flag for flag in switch.flags if flag.startswith("--")), *(key for key, _ in switch.environment)}
            assert typed <= known, f"{strategy.name}: {typed - known} not in {engine.title} {engine.version}"
