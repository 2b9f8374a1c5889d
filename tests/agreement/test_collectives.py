"""Every algorithm on every box: proved, and the two evaluators and the bounds held against each other."""

import pytest

from pciesim.collectives.proof import prove
from pciesim.collectives.select import ALGORITHMS, lower
from pciesim.evaluate.estimate import bounds, estimate
from pciesim.evaluate.simulate import simulate
from pciesim.schedule import CollectiveKind
from tests.support.tasks import BOXES, fabric_named, task

SIZES = (0, 8192, 65536, 1 << 20, 16 << 20)
CASES = [
    (name, kind, box)
    for name, entry in ALGORITHMS.items()
    for kind in sorted(entry.kinds)
    for box in BOXES
]  # fmt: skip
# Chains pass pieces up and down at once: the closed form charges a link both ways in one phase.
LOOSE = {"nccl-tree-ll", "nccl-tree-simple"}


@pytest.mark.parametrize(("name", "kind", "box"), CASES)
def test_every_algorithm_is_proved(name, kind, box):
    prove(lower(name, task(fabric_named(box), 8192, kind=kind)).program, kind)


@pytest.mark.parametrize(("name", "kind", "box"), CASES)
def test_evaluators_agree(name, kind, box):
    for nbytes in SIZES:
        program = lower(name, task(fabric_named(box), nbytes, kind=kind)).program
        simulated, closed, least = simulate(program).latency, estimate(program), bounds(program).latency
        assert simulated >= least * (1 - 1e-9)
        if name in LOOSE:
            assert closed == pytest.approx(simulated, rel=0.10)
        else:
            assert closed == pytest.approx(simulated, rel=1e-9)


@pytest.mark.parametrize(("name", "kind", "box"), CASES)
def test_event_budget(name, kind, box):
    program = lower(name, task(fabric_named(box), 32768, kind=kind)).program
    assert simulate(program).events <= 5 * len(program.transfers)


@pytest.mark.parametrize(
    ("name", "traversals"),
    [  # on n ranks; the catalogue's closed forms
        ("nccl-ring-ll", lambda n: 2 * (n - 1)),
        ("nccl-ring-simple", lambda n: 4 * (n - 1)),
        ("nccl-tree-ll", lambda n: 2 * (n - 1)),
        ("oneshot-push", lambda n: 1),
        ("oneshot-pull", lambda n: 3),
        ("vllm-1stage", lambda n: 4),
    ],
)
@pytest.mark.parametrize("box", ["two", "four on one socket", "eight on two sockets"])
def test_traversals_on_the_critical_path(name, traversals, box):
    fabric = fabric_named(box)
    assert lower(name, task(fabric, 8192)).program.traversals == traversals(len(fabric.gpus))


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER])
def test_a_ring_moves_the_bytes_of_its_closed_form(kind):
    # n = 8, S = 1 MiB in: all-reduce 2 (n-1)/n S out of each rank, reduce-scatter (n-1)/n S, all-gather (n-1) S.
    program = lower("nccl-ring-simple", task(fabric_named("eight on two sockets"), 1 << 20, kind=kind)).program
    out = [sum(t.nbytes for t in program.transfers if t.source == rank) for rank in range(8)]
    factor = {"all_reduce": 2 * 7 / 8, "reduce_scatter": 7 / 8, "all_gather": 7}[kind]
    assert out == pytest.approx([factor * (1 << 20)] * 8)
