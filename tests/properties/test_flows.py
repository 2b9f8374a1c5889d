"""Concurrent flows on any machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pciesim.contention import DATA_LINK, Arbitration, Contention, Leg, Rules, Stream
from pciesim.fabric import Fabric
from pciesim.flows import FlowSpec, Metric
from pciesim.physics import Engine
from pciesim.sharing import violations
from pciesim.units import GB
from tests.support.fabrics import box
from tests.support.flows import COSTS, IDEAL, run

rules = st.builds(
    Rules,
    reverse=st.booleans(),
    head_of_line=st.booleans(),
    collapse=st.booleans(),
    arbitration=st.sampled_from(Arbitration),
)


@st.composite
def machines(draw: st.DrawFn) -> Fabric:
    size = draw(st.integers(1, 4))
    groups = [
        list(range(group * size, (group + 1) * size)) for group in range(draw(st.integers(1 if size > 1 else 2, 3)))
    ]
    sockets = [0, *(draw(st.integers(0, 1)) for _ in groups[1:])]
    fabric = box(
        groups, switched=draw(st.booleans()), sockets=sockets, uplink=draw(st.sampled_from([None, 30 * GB, 120 * GB]))
    )
    return replace(fabric, write_collapse=draw(st.sampled_from([None, 2])))


@st.composite
def questions(draw: st.DrawFn) -> tuple[Fabric, list[tuple[FlowSpec, Engine]]]:
    fabric = draw(machines())
    names = [gpu.name for gpu in fabric.gpus]
    pairs = [(one, other) for one in names for other in names if one != other]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=10, unique=True))
    caps = st.sampled_from([float("inf"), float("inf"), 5 * GB])
    return fabric, [
        (FlowSpec(source=one, target=other, cap=draw(caps)), draw(st.sampled_from(Engine))) for one, other in chosen
    ]


def streams(fabric: Fabric, flows: list[tuple[FlowSpec, Engine]], which: Rules) -> tuple[Contention, list[Stream]]:
    network = Contention(fabric, COSTS, which)
    return network, [
        network.stream(
            Leg(route=fabric.route(flow.source, flow.target), engine=engine, read=engine is Engine.LOAD), cap=flow.cap
        )
        for flow, engine in flows
    ]


@given(questions(), rules)
def test_no_link_carries_more_than_it_can_with_what_is_sent_back(
    question: tuple[Fabric, list[tuple[FlowSpec, Engine]]], which: Rules
) -> None:
    fabric, flows = question
    network, found = streams(fabric, flows, which)
    rates = network.share(found).rates
    load = [0.0] * len(fabric.links)
    position = {(link.source, link.target): number for number, link in enumerate(fabric.links)}
    for stream, rate in zip(found, rates, strict=True):
        assert 0 < rate <= stream.cap
        for index, wire in stream.uses:
            if index >= len(fabric.links):
                continue
            load[index] += wire * rate
            link = fabric.links[index]
            if which.reverse and link.kind == "pcie":
                load[position[link.target, link.source]] += rate * (wire * DATA_LINK + stream.requests)
    for used, link in zip(load, fabric.links, strict=True):
        assert used <= link.bandwidth * (1 + 1e-6)


@given(questions())
def test_without_effects_it_is_max_min(question: tuple[Fabric, list[tuple[FlowSpec, Engine]]]) -> None:
    network, found = streams(*question, IDEAL)
    assert violations(network.capacity, found, network.solve(network.capacity, found)) == []  # type: ignore[arg-type]


@given(questions(), rules, st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(
    question: tuple[Fabric, list[tuple[FlowSpec, Engine]]], which: Rules, random: object
) -> None:
    network, found = streams(*question, which)
    order = list(range(len(found)))
    random.shuffle(order)  # type: ignore[attr-defined]
    rates = network.share(found).rates
    shuffled = network.share([found[number] for number in order]).rates
    assert [rates[number] for number in order] == pytest.approx(list(shuffled), rel=1e-6)


@given(questions(), rules, st.floats(0.2, 5))
def test_everything_faster_is_everything_faster(
    question: tuple[Fabric, list[tuple[FlowSpec, Engine]]], which: Rules, factor: float
) -> None:
    fabric, flows = question
    fast = replace(
        fabric,
        links=tuple(replace(link, bandwidth=link.bandwidth * factor) for link in fabric.links),
        concurrency=replace(fabric.concurrency, collapsed=2.7 * GB * factor),
    )
    network, found = streams(fabric, flows, which)
    scaled, more = streams(fast, [(replace(flow, cap=flow.cap * factor), engine) for flow, engine in flows], which)
    rates = [rate * factor for rate in network.share(found).rates]
    assert rates == pytest.approx(list(scaled.share(more).rates), rel=1e-6)


@given(questions(), st.permutations(range(4)))
def test_other_numbers_for_the_same_gpus_change_nothing(
    question: tuple[Fabric, list[tuple[FlowSpec, Engine]]], order: list[int]
) -> None:
    """GPUs of the first group swap places: routes are the same up to names."""
    fabric, flows = question
    group = [gpu.name for gpu in fabric.gpus][: max(map(len, fabric.islands), default=1)]
    names = dict(zip(group, [group[number] for number in order if number < len(group)], strict=True))
    moved = [
        (replace(flow, source=names.get(flow.source, flow.source), target=names.get(flow.target, flow.target)), engine)
        for flow, engine in flows
    ]
    network, found = streams(fabric, flows, Rules())
    _, other = streams(fabric, moved, Rules())
    assert list(network.share(found).rates) == pytest.approx(list(network.share(other).rates), rel=1e-6)


@given(questions(), st.sampled_from([Metric.COMPLETION, Metric.COPY_LOOP]), st.floats(0.1, 10))
def test_twice_the_bytes_take_twice_as_long(
    question: tuple[Fabric, list[tuple[FlowSpec, Engine]]], metric: Metric, factor: float
) -> None:
    fabric, flows = question
    specs = [flow for flow, _ in flows]
    one = run(fabric, specs, metric=metric, volume=0.1 * GB)
    more = run(fabric, specs, metric=metric, volume=0.1 * GB * factor)
    assert one.figure == pytest.approx(more.figure, rel=1e-6)
    assert [(each.completion or 0) * factor for each in one.flows] == pytest.approx(
        [each.completion for each in more.flows], rel=1e-6
    )
