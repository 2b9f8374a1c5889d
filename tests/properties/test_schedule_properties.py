"""What holds for every model, split and engine: nothing is lost, nothing is paid for twice, waits point backwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pciesim.formats.engine_yaml import load_engine
from pciesim.formats.model import load_model
from pciesim.formats.shipped import find_input, shipped_names
from pciesim.model import ModelSpec
from pciesim.model_size import legal_tp, weight_bytes_read
from pciesim.schedule import (
    Category,
    Collective,
    CollectiveKind,
    Compute,
    Gemm,
    RoutedExperts,
    Schedule,
    build,
    members,
)
from pciesim.workload import Parallelism, Phase, Workload

ENGINES = {name: load_engine(name) for name in ("sglang", "sglang-0.5.9", "vllm", "vllm-0.17")}


@cache
def model_named(name: str) -> ModelSpec:
    return load_model(find_input("models", name))


@cache
def splits_of(name: str) -> tuple[int, ...]:
    return tuple(tp for tp in legal_tp(model_named(name), limit=8) if tp in (1, 2, 4, 8))


@st.composite
def cases(draw: st.DrawFn) -> tuple[ModelSpec, int, str]:
    name = draw(st.sampled_from(shipped_names("models")))
    return model_named(name), draw(st.sampled_from(splits_of(name))), draw(st.sampled_from(sorted(ENGINES)))


works = st.builds(
    Workload,
    phase=st.just(Phase.DECODE),
    batch=st.sampled_from([1, 2, 3, 8, 17, 64]),
    context=st.sampled_from([1, 1000, 40_000]),
    new_tokens=st.sampled_from([1, 2, 4]),
)


def collectives(schedule: Schedule) -> Counter[tuple[str, int, str]]:
    ops = (op for op in schedule.ops if isinstance(op, Collective))
    return Counter((op.kind.value, op.nbytes, op.precision.value) for op in ops)


def weights_of(schedule: Schedule) -> float:
    ops = (op for op in schedule.ops if isinstance(op, Compute) and isinstance(op.kernel, Gemm | RoutedExperts))
    return sum(op.nbytes for op in ops)


@given(cases(), works)
@settings(max_examples=60, deadline=None)
def test_one_gpu_has_no_collectives(case: tuple[ModelSpec, int, str], work: Workload) -> None:
    model, _, engine = case
    assert not collectives(build(model, work, Parallelism(), ENGINES[engine]))


@given(cases(), works)
@settings(max_examples=60, deadline=None)
def test_every_weight_is_read_once(case: tuple[ModelSpec, int, str], work: Workload) -> None:
    """The GEMMs and experts of a step read what ``model_size`` counts, less norms and other vectors (below 1 %)."""
    model, tp, engine = case
    read = weights_of(build(model, work, Parallelism(tp=tp), ENGINES[engine]))
    counted = weight_bytes_read(model, tp=tp, tokens=work.tokens)
    assert counted * 0.99 < read <= counted * (1 + 1e-9)


@given(cases(), works)
@settings(max_examples=40, deadline=None)
def test_spreading_experts_changes_no_collective(case: tuple[ModelSpec, int, str], work: Workload) -> None:
    """Partial sums of whole experts and of cut experts are summed by the same call."""
    model, tp, engine = case
    plain, spread = (build(model, work, Parallelism(tp=tp, ep=ep), ENGINES[engine]) for ep in (1, tp))
    assert collectives(plain) == collectives(spread)
    assert weights_of(plain) == pytest.approx(weights_of(spread))


@given(cases(), works)
@settings(max_examples=40, deadline=None)
def test_verifying_one_token_is_a_decode_step(case: tuple[ModelSpec, int, str], work: Workload) -> None:
    """A verification of one row a sequence issues the ops of a decode step, one after the other."""
    model, tp, engine = case
    one = replace(work, new_tokens=1)
    decode = build(model, one, Parallelism(tp=tp), ENGINES[engine])
    verify = build(model, replace(one, alike=0.7), Parallelism(tp=tp), ENGINES[engine])
    assert [op.name for op in verify.ops] == [op.name for op in decode.ops]
    assert verify.after == decode.after
    assert collectives(verify) == collectives(decode)
    assert weights_of(verify) == pytest.approx(weights_of(decode))


@given(cases(), works)
@settings(max_examples=60, deadline=None)
def test_sums_grow_with_the_rows_and_not_with_the_split(case: tuple[ModelSpec, int, str], work: Workload) -> None:
    """What each rank passes into the all-reduces is rows x columns, whatever the number of ranks."""
    model, tp, engine = case
    spec = ENGINES[engine]
    rows = spec.padded(work.batch) * work.new_tokens

    def total(schedule: Schedule) -> int:
        return sum(n * count for (kind, n, _), count in collectives(schedule).items() if kind == "all_reduce")

    two = [each for each in splits_of_model(model) if each > 1]
    if two:
        one_row = total(build(model, Workload(), Parallelism(tp=two[0]), spec))
        for each in two:
            assert total(build(model, work, Parallelism(tp=each), spec)) == rows * one_row
    assert tp >= 1


def splits_of_model(model: ModelSpec) -> tuple[int, ...]:
    return tuple(tp for tp in legal_tp(model, limit=8) if tp in (2, 4, 8))


@given(cases(), works)
@settings(max_examples=60, deadline=None)
def test_waits_point_backwards(case: tuple[ModelSpec, int, str], work: Workload) -> None:
    model, tp, engine = case
    schedule = build(model, work, Parallelism(tp=tp), ENGINES[engine])
    for position, waits in enumerate(schedule.after):
        assert all(0 <= other < position for other in waits)
    streams = {op.stream for op in schedule.ops}
    assert streams <= {0, 1}
    assert schedule.ops[-1].stream == 0


@given(cases(), works, st.sampled_from([2, 4]))
@settings(max_examples=40, deadline=None)
def test_stages_share_the_layers(case: tuple[ModelSpec, int, str], work: Workload, pp: int) -> None:
    """Stages compute and sum together what one would for a micro-batch, and send at each boundary."""
    model, tp, engine = case
    spec = ENGINES[engine]
    micro = replace(work, batch=-(-work.batch // pp))
    staged = build(model, work, Parallelism(tp=tp, pp=pp), spec)
    whole = build(model, micro, Parallelism(tp=tp), spec)

    def kernels(schedule: Schedule) -> Counter[object]:
        return Counter(op.kernel for op in schedule.ops if isinstance(op, Compute))

    assert kernels(staged) == kernels(whole)
    moved = [op for op in staged.ops if isinstance(op, Collective) and op.category is Category.PIPELINE]
    sent = [op for op in moved if op.kind is CollectiveKind.SEND_RECV]
    assert len(sent) == 2 * (pp - 1)
    assert len(moved) - len(sent) == (2 * (pp - 1) if tp > 1 else 0)
    assert [op.stage for op in staged.ops] == sorted(op.stage for op in staged.ops)
    assert all(op.stream // 2 == op.stage for op in staged.ops)
    for position, (before, op) in enumerate(zip(staged.ops, staged.ops[1:], strict=False), start=1):
        if op.stage != before.stage:
            assert staged.after[position], "a stage begins when its rows have arrived"


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]))
def test_groups_cover_every_rank_once(tp: int, pp: int, attention_dp: int) -> None:
    if tp % attention_dp:
        return
    split = Parallelism(tp=tp, pp=pp, attention_dp=attention_dp)
    for stage in range(pp):
        ranks = list(range(stage * tp, (stage + 1) * tp))
        for group in ("tp", "ep", "attention_tp"):
            assert sorted(rank for each in members(split, group, stage) for rank in each) == ranks
        if stage + 1 < pp:
            pairs = members(split, "pp", stage)
            assert sorted(rank for each in pairs for rank in each) == list(range(stage * tp, (stage + 2) * tp))


@given(st.sampled_from([2, 4, 8]), st.sampled_from([8, 16, 64]))
@settings(max_examples=9, deadline=None)
def test_a_gather_and_a_scatter_carry_what_one_sum_carries(attention_dp: int, batch: int) -> None:
    """Attention data parallelism over all GPUs: per layer (R - 1)/R of R x rows each way, as one all-reduce of all rows
    and half of the two that tensor parallelism needs."""
    model = model_named("qwen35_397b")
    plain = build(model, Workload(batch=batch), Parallelism(tp=attention_dp), ENGINES["sglang"])
    split = Parallelism(tp=attention_dp, attention_dp=attention_dp)
    data = build(model, Workload(batch=batch), split, ENGINES["sglang"])
    row = model.hidden * 2
    layers = len(model.layers)
    found = collectives(data)
    assert found["all_gather", batch // attention_dp * row, "bf16"] >= layers
    assert found["reduce_scatter", batch * row, "bf16"] == layers
    assert collectives(plain)["all_reduce", batch * row, "bf16"] == 1 + 2 * layers
