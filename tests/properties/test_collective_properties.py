"""What holds for every algorithm on any machine, group, size and order of ranks.

The names of the invariants are those of the collected list (coverage, causality, relabelling, scaling, ...).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pciesim.collectives.program import Local, Program
from pciesim.collectives.proof import prove
from pciesim.collectives.select import ALGORITHMS, lower
from pciesim.collectives.task import Task
from pciesim.errors import Infeasible
from pciesim.evaluate.bounds import bounds, cut_bound, endpoint_bound, latency_bound
from pciesim.evaluate.estimate import estimate
from pciesim.evaluate.simulate import simulate
from pciesim.fabric import Fabric, NcclEnvironment
from pciesim.schedule import CollectiveKind
from tests.support.fabrics import GEN5_X16, box
from tests.support.profiles import round_profile
from tests.support.tasks import task

LOSSY = {name for name in ALGORITHMS if name.endswith(("-fp8", "-int8", "-nvfp4"))}
CHOICES = [(name, kind) for name, entry in ALGORITHMS.items() for kind in sorted(entry.kinds)]
EXACT = 1e-9
pytestmark = pytest.mark.filterwarnings("error")
slow = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """One to three groups of one to four GPUs, on root ports or switches, one or two sockets, thin uplinks or not."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    assume(sum(sizes) >= 2)
    first = [sum(sizes[:place]) for place in range(len(sizes))]
    groups = [list(range(start, start + size)) for start, size in zip(first, sizes, strict=True)]
    switched = draw(st.booleans())
    return box(
        groups,
        switched=switched,
        sockets=[draw(st.integers(0, 1)) if place else 0 for place in range(len(groups))],
        pcie=draw(st.sampled_from([GEN5_X16, GEN5_X16 / 2])),
        uplink=draw(st.sampled_from([None, GEN5_X16 / 2])) if switched else None,
        vendor=draw(st.sampled_from(["amd", "intel"])),
        nccl=NcclEnvironment(p2p_level=draw(st.sampled_from(["SYS", "PXB"])), graph_file=draw(st.booleans())),
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[str, Task]:
    """An algorithm and a task it can run: a random group in a random order of ranks, a random size, uneven loads."""
    name, kind = draw(st.sampled_from(CHOICES))
    fabric = draw(fabrics())
    names = [gpu.name for gpu in fabric.gpus]
    order = draw(st.permutations(names))
    group = tuple(order[: draw(st.integers(2, len(order)))])
    nbytes = draw(st.sampled_from([0, 1, 4096, 65536, 1 << 20, 5 << 20]) | st.integers(0, 1 << 22))
    loads: tuple[tuple[float, ...], ...] = ()
    if kind is CollectiveKind.ALL_TO_ALL and draw(st.booleans()):
        weights = [[draw(st.integers(0, 4)) for _ in group] for _ in group]
        loads = tuple(tuple(w / max(1, sum(row)) for w in row) for row in weights)
    profile = round_profile(kernel__phase=draw(st.sampled_from([0.0, 0.5e-6])))
    found = replace(task(fabric, nbytes, kind=kind, profile=profile, loads=loads), gpus=group)
    return name, found


def program_of(problem: tuple[str, Task]) -> Program:
    try:
        return lower(*problem).program
    except Infeasible:
        assume(False)
        raise


def serial_sum(program: Program) -> float:
    """Every step after the other."""
    total = 0.0
    for step in program.steps:
        if isinstance(step, Local):
            total += step.duration
        else:
            alone = max((used * step.nbytes / program.capacity[link] for link, used in step.uses), default=0.0)
            total += step.latency + max(alone, step.nbytes / step.cap)
    return total


@slow
@given(problems())
def test_proved(problem):
    """Coverage, exactly once, no race, no deadlock, buffers safe over three calls with random skew."""
    prove(program_of(problem), problem[1].kind)


@slow
@given(problems())
def test_between_the_bounds_and_the_serial_sum(problem):
    name, found = problem
    program = program_of(problem)
    run = simulate(program)
    assert run.latency >= bounds(program).latency * (1 - EXACT)
    assert run.latency >= latency_bound(found) * (1 - EXACT)
    if name not in LOSSY:
        assert run.latency >= endpoint_bound(found) * (1 - EXACT)
        for size in range(1, len(found.gpus)):
            assert run.latency >= cut_bound(found, frozenset(range(size))) * (1 - EXACT)
    assert run.latency <= serial_sum(program) * (1 + 1e-6)


@slow
@given(problems())
def test_the_closed_form_is_near(problem):
    """Not above the simulation by more than what flows held up elsewhere leave to others; exact without bytes."""
    program = program_of(problem)
    simulated, closed = simulate(program).latency, estimate(program)
    assert closed <= simulated * 1.01
    assert closed >= simulated * 0.8
    if problem[1].nbytes == 0:
        assert closed == pytest.approx(simulated, rel=EXACT)


@slow
@given(problems())
def test_causality_and_events(problem):
    program = program_of(problem)
    run = simulate(program)
    for position, step in enumerate(program.steps):
        assert run.ended[position] >= run.started[position]
        for other in step.after:
            assert run.started[position] >= run.ended[other] * (1 - EXACT)
    assert run.events <= 5 * len(program.transfers) + 2 * program.ranks
    again = simulate(program)
    assert (again.latency, again.ended, again.events) == (run.latency, run.ended, run.events)


@slow
@given(problems(), st.floats(1e-6, 1e-3))
def test_time_shift(problem, shift):
    program = program_of(problem)
    moved = simulate(program, arrivals=[shift] * program.ranks)
    assert moved.latency == pytest.approx(simulate(program).latency, rel=1e-6)


@slow
@given(problems(), st.sampled_from([0.5, 2.0, 4.0]))
def test_scaling(problem, factor):
    """Bytes and rates together leave the time; latencies and bytes together scale it."""
    program = program_of(problem)
    before = simulate(program).latency
    fast = replace(
        program,
        capacity=tuple(rate * factor for rate in program.capacity),
        steps=tuple(
            step if isinstance(step, Local) else replace(step, nbytes=step.nbytes * factor, cap=step.cap * factor)
            for step in program.steps
        ),
    )
    assert simulate(fast).latency == pytest.approx(before, rel=1e-6)
    slow_one = replace(
        program,
        steps=tuple(
            replace(step, duration=step.duration * factor)
            if isinstance(step, Local)
            else replace(step, nbytes=step.nbytes * factor, latency=step.latency * factor)
            for step in program.steps
        ),
    )
    assert simulate(slow_one).latency == pytest.approx(before * factor, rel=1e-6)


@slow
@given(problems(), st.randoms())
def test_numbers_add_up(problem, random):
    """Integer payloads through the program's own steps: sums exact and the same on all ranks."""
    program = program_of(problem)
    kind, ranks = problem[1].kind, range(program.ranks)
    data = {
        (rank, chunk): random.randrange(-(10**9), 10**9) for rank in ranks for chunk in range(max(program.chunks, 8))
    }
    memory = _start(program, kind, data)
    for step in program.steps:
        if isinstance(step, Local):
            if step.write is not None:
                memory[step.rank][step.write] = sum(memory[step.rank][buffer] for buffer in step.reads)
            continue
        moved = [memory[step.source][read] for read, _ in step.moves]
        for (_, write), value in zip(step.moves, moved, strict=True):
            memory[step.target][write] = value + (memory[step.target][write] if step.merge else 0)
    for rank in ranks:
        if kind is CollectiveKind.ALL_REDUCE:
            for chunk in range(program.chunks):
                assert memory[rank]["data", chunk] == sum(data[other, chunk] for other in ranks)
        elif kind is CollectiveKind.REDUCE_SCATTER:
            assert memory[rank]["data", rank] == sum(data[other, rank] for other in ranks)
        elif kind is CollectiveKind.ALL_GATHER:
            assert all(memory[rank]["data", other] == data[other, other] for other in ranks)
        elif kind is CollectiveKind.ALL_TO_ALL:
            assert all(memory[rank]["out", other] == data[other, rank] for other in ranks if other != rank)


def _start(program, kind, data):
    if kind is CollectiveKind.ALL_GATHER:
        return [{("data", rank): data[rank, rank]} for rank in range(program.ranks)]
    chunks = range(program.ranks if kind is CollectiveKind.ALL_TO_ALL else program.chunks)
    return [{("data", chunk): data[rank, chunk] for chunk in chunks} for rank in range(program.ranks)]


@slow
@given(
    st.sampled_from(["oneshot-push", "oneshot-pull", "twoshot-push", "recursive-doubling", "staged-permutation"]),
    st.permutations(range(4)),
    st.sampled_from([0, 8192, 1 << 20]),
)
def test_relabelling(name, order, nbytes):
    """Ranks named otherwise, on the machine renamed alike: the same time."""
    plain, renamed = (
        box([[0, 1], [2, 3]], switched=True),
        box([[order[0], order[1]], [order[2], order[3]]], switched=True),
    )
    one = task(plain, nbytes)
    other = replace(task(renamed, nbytes), gpus=tuple(f"GPU{order[number]}" for number in range(4)))
    assert simulate(lower(name, other).program).latency == pytest.approx(
        simulate(lower(name, one).program).latency, rel=EXACT
    )


@slow
@given(st.sampled_from([name for name, entry in ALGORITHMS.items() if entry.needs.p2p and not entry.needs.refused]),
       st.integers(0, 1 << 22), st.integers(1, 1 << 20))  # fmt: skip
def test_more_bytes_take_no_less(name, nbytes, more):
    """On a symmetric box; anomalies of sharing need flows that differ. Mixtures change their algorithm with size."""
    assume(name not in {"pcie-ipc", "mscclpp"})
    fabric = box([[0, 1, 2, 3]], switched=True)
    try:
        small, large = (lower(name, task(fabric, size)).program for size in (nbytes, nbytes + more))
    except Infeasible:
        assume(False)
        raise
    assert simulate(large).latency >= simulate(small).latency * (1 - EXACT)


@pytest.mark.parametrize(("name", "kind"), CHOICES)
def test_one_rank_has_nothing_to_do(name, kind):
    fabric = box([[0]])
    program = lower(name, task(fabric, 1 << 20, kind=kind)).program
    assert simulate(program).latency == estimate(program) == 0.0


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER])
def test_a_ring_of_two_is_an_exchange(kind):
    fabric = box([[0, 1]])
    ring = lower("nccl-ring-simple", task(fabric, 1 << 20, kind=kind)).program
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    assert len(ring.transfers) == 2 * rounds
    assert {(step.source, step.target) for step in ring.transfers} == {(0, 1), (1, 0)}


@slow
@given(problems(), st.data())
def test_ranks_that_come_late(problem, data):
    """Latency counts from the first arrival: no less than the last one's wait, no more than that plus everything."""
    program = program_of(problem)
    delays = data.draw(st.lists(st.floats(0, 1e-4), min_size=program.ranks, max_size=program.ranks))
    skewed = simulate(program, arrivals=delays)
    spread = max(delays) - min(delays)
    assert skewed.latency >= spread * (1 - EXACT)
    assert skewed.latency <= spread + serial_sum(program) * (1 + 1e-6)
