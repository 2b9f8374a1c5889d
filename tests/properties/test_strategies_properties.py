"""What must hold for strategies on any question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pciesim.collectives.select import ALGORITHMS
from pciesim.errors import Infeasible
from pciesim.schedule import Category, Collective, Compute, Elementwise, Schedule
from pciesim.schedule.ops import CollectiveKind
from pciesim.step import Step, evaluate_step, schedule_of, timer_of
from pciesim.strategies import STRATEGIES
from pciesim.strategies.choice import apply_choices
from pciesim.strategies.rewrite import rewritten
from tests.support.scenarios import at_no_cost, scenario

COMMUNICATION = {
    Category.ALL_REDUCE, Category.LOGITS_GATHER, Category.TOKEN_EXCHANGE, Category.SAMPLING, Category.CONTEXT_EXCHANGE,
}  # fmt: skip
SUMS = sorted(name for axis, name in STRATEGIES if axis == "allreduce")


def timed(one) -> Step:
    return evaluate_step(one, timer_of(one, "estimate"))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_no_all_reduce_is_faster_where_communication_is_free(name: str, tp: int) -> None:
    """A strategy that held a speed-up factor would show here: every all-reduce gives the compute-only step."""
    free = at_no_cost(scenario(tp=tp))
    try:
        chosen = apply_choices(free, [("allreduce", name)], hypothetical=True).scenario
        step = timed(chosen)
    except Infeasible:
        pytest.skip("cannot run on this group")
    parts = step.timeline.by_category(step.schedule)
    base = timed(free)
    assert sum(parts.get(each, 0.0) for each in COMMUNICATION) == pytest.approx(0.0, abs=1e-9)
    assert step.timeline.length == pytest.approx(base.timeline.length, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize(
    ("axis", "value"),
    [("sequence", "parallel"), ("sync", "drop:50%"), ("sync", "ladder"), ("gather", "argmax"), ("wire", "fp8"),
     ("nccl", "p2p-level:PXB"), ("nccl", "channels:4"), ("p2p", "off"), ("order", "7.6.5.4.3.2.1.0"),
     ("bar1", "default"), ("switch", "0.1.2.3"), ("move", "4@root_complex0")],
)  # fmt: skip
def test_only_compute_and_launch_effects_remain_where_communication_is_free(axis: str, value: str) -> None:
    """Sums dropped, delayed, split or sent another way: nothing is gained where they cost nothing."""
    free = at_no_cost(scenario(batch=8))
    base = timed(free).timeline.length
    then = timed(apply_choices(free, [(axis, value)], hypothetical=True).scenario).timeline.length
    if axis == "sequence":  # the norms between scatter and gather work on fewer rows
        assert then <= base * (1 + 1e-9)
        assert then > 0.98 * base
    else:
        assert then == pytest.approx(base, rel=1e-6)


@pytest.mark.parametrize(("model", "ways"), [("qwen35_397b", "4"), ("kimi_k25_nvfp4", "8"), ("deepseek_v32", "2")])
@pytest.mark.parametrize("context", [1024, 65536])
def test_a_spread_cache_changes_its_kernels_only_where_communication_is_free(
    model: str, ways: str, context: int
) -> None:
    """What remains are other attention (and index) kernels and the small kernels around the exchange."""
    free = at_no_cost(scenario(model=model, batch=8, engine="vllm-0.33"))
    free = replace(free, workload=replace(free.workload, context=context))
    base, then = timed(free), timed(apply_choices(free, [("dcp", ways)]).scenario)
    parts = then.timeline.by_category(then.schedule)
    assert sum(parts.get(each, 0.0) for each in COMMUNICATION) == pytest.approx(0.0, abs=1e-9)

    def attending(step: Step) -> float:
        changed = (Category.ATTENTION, Category.SPARSE_INDEX, Category.SMALL)
        ops = [op for op in step.schedule.ops if isinstance(op, Compute) and op.category in changed and not op.stream]
        return sum(step.kernels[op.kernel].value + step.gap.value for op in ops)

    assert then.timeline.length - base.timeline.length == pytest.approx(attending(then) - attending(base), rel=1e-6)


def test_a_fused_norm_saves_its_kernel_and_its_gap_and_nothing_else() -> None:
    free = apply_choices(at_no_cost(scenario()), [("allreduce", "oneshot-push")]).scenario
    base, fused = timed(free), timed(apply_choices(free, [("fused", "norm")]).scenario)
    norms = [
        op for op in base.schedule.ops
        if isinstance(op, Compute) and isinstance(op.kernel, Elementwise) and op.kernel.kind == "rmsnorm_add"
    ]  # fmt: skip
    each = base.kernels[norms[0].kernel].value + base.gap.value
    gone = len(base.schedule.ops) - len(fused.schedule.ops)
    assert gone == len(norms), "every norm of this model follows a sum"
    assert base.timeline.length - fused.timeline.length == pytest.approx(gone * each, rel=1e-6)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_rewriting_keeps_order_and_waits(data: st.DataObject) -> None:
    """Whatever is dropped or doubled: waits point backwards, and who waited (through others) still waits."""
    size = data.draw(st.integers(2, 12))
    ops, after = [], []
    for position in range(size):
        stream = data.draw(st.integers(0, 1))
        ops.append(
            Collective(
                name=str(position), category=Category.ALL_REDUCE, kind=CollectiveKind.ALL_REDUCE, nbytes=8, ranks=2,
                stream=stream,
            )
        )  # fmt: skip
        after.append(tuple(sorted(data.draw(st.sets(st.integers(0, position - 1), max_size=2))) if position else ()))
    schedule = Schedule(ops=tuple(ops), after=tuple(after))
    copies = [data.draw(st.integers(0, 2)) for _ in range(size)]
    new = rewritten(schedule, lambda position, op: [replace(op, nbytes=8 + n) for n in range(copies[position])])
    assert len(new.ops) == sum(copies)
    assert all(other < position for position, waits in enumerate(new.after) for other in waits)
    old_before, new_before = _before(schedule), _before(new)
    where: dict[str, list[int]] = {}
    for position, op in enumerate(new.ops):
        where.setdefault(op.name, []).append(position)
    for later in range(size):
        for earlier in old_before[later]:
            if copies[later] and copies[earlier]:
                last, first = where[str(earlier)][-1], where[str(later)][0]
                assert last in new_before[first], f"{later} no longer waits for {earlier}"


def _before(schedule: Schedule) -> list[set[int]]:
    """Every op that must be done before each one starts."""
    found: list[set[int]] = []
    latest: dict[int, int] = {}
    for position, op in enumerate(schedule.ops):
        direct = set(schedule.after[position]) | ({latest[op.stream]} if op.stream in latest else set())
        found.append(direct | {other for each in direct for other in found[each]})
        latest[op.stream] = position
    return found


@given(order=st.permutations(["allreduce=oneshot-push", "fused=norm", "slots=x8", "ep=2", "gather=argmax"]))
@settings(max_examples=15, deadline=None)
def test_the_order_of_choices_does_not_matter(order: list[str]) -> None:
    pairs = [tuple(each.split("=")) for each in order]
    reference = apply_choices(scenario(), sorted(pairs)).scenario
    assert apply_choices(scenario(), pairs).scenario == reference  # type: ignore[arg-type]


@given(batch=st.sampled_from([1, 2, 7, 32]), name=st.sampled_from(sorted(ALGORITHMS)))
@settings(max_examples=30, deadline=None)
def test_strategies_change_neither_bytes_nor_compute_of_the_schedule(batch: int, name: str) -> None:
    """An all-reduce by another name is the same op of the same schedule."""
    base = scenario(batch=batch)
    chosen = apply_choices(base, [("allreduce", name)], hypothetical=True).scenario
    assert schedule_of(chosen) == schedule_of(base)
