"""Strategies against figures derived by hand."""

from __future__ import annotations

import pytest

from pciesim.compare.memo import Memo
from pciesim.compare.outcome import outcome_of
from pciesim.fabric import LinkKind
from pciesim.schedule import Category, CollectiveKind
from pciesim.step import schedule_of
from pciesim.strategies.choice import apply_choices
from tests.support.scenarios import scenario


def timed(*choices, **box):
    applied = apply_choices(scenario(**box), choices)
    return outcome_of((), applied.scenario, Memo(evaluator="estimate"))


def test_one_shot_push_pays_one_traversal_a_call() -> None:
    """121 all-reduces of one traversal and a ring all-gather of eight ranks: 121 + 7; NCCL alone 121 x 14 + 7."""
    assert timed(("allreduce", "oneshot-push")).traversals == 128
    assert timed().traversals == 121 * 14 + 7


def test_host_memory_costs_three_traversals_a_hop() -> None:
    """Rings of eight through host memory: 3 x (121 x 14 + 7)."""
    assert timed(("p2p", "off")).traversals == 3 * (121 * 14 + 7)


def test_half_the_lanes_are_half_the_bandwidth() -> None:
    wide = scenario()
    narrow = apply_choices(wide, [("slots", "x8")]).scenario.fabric
    for before, after in zip(wide.fabric.links, narrow.links, strict=True):
        if before.kind is LinkKind.PCIE and before.source.startswith("GPU"):
            assert after.bandwidth == pytest.approx(before.bandwidth / 2)
    one = apply_choices(wide, [("slots", "gen4x16@3")]).scenario.fabric
    assert one.link("GPU3", "root_port3").bandwidth == pytest.approx(16e9 * 128 / 130 / 8 * 16)
    assert one.link("GPU2", "root_port2") == wide.fabric.link("GPU2", "root_port2")


def test_a_moved_card_is_where_it_was_put() -> None:
    """GPU4 on socket 0: NODE to the four that were there, SYS to the three left on socket 1."""
    fabric = apply_choices(scenario(), [("move", "4@root_complex0")]).scenario.fabric
    assert fabric.matrix[4] == ("NODE",) * 4 + ("X",) + ("SYS",) * 3
    assert fabric.route("GPU4", "GPU0").socket_hops == 0
    assert fabric.route("GPU4", "GPU5").socket_hops == 1


def test_a_switch_joins_its_cards() -> None:
    fabric = apply_choices(scenario(), [("switch", "0.1.2.3")]).scenario.fabric
    assert fabric.matrix[0] == ("X", "PIX", "PIX", "PIX", "SYS", "SYS", "SYS", "SYS")
    assert fabric.islands == ((0, 1, 2, 3),)
    inside = fabric.route("GPU0", "GPU1")
    assert (inside.switches, inside.root_complexes) == (1, 0)


def test_replicas_multiply_the_box_and_not_the_user() -> None:
    one, two = timed(tp=4), timed(("dp", "2"), tp=4)
    assert two.sequences == 2 * one.sequences
    assert two.latency >= one.latency
    assert two.total.value == pytest.approx(2 / two.latency)


def test_drafts_issue_their_own_all_reduces() -> None:
    """SGLang, three drafts: 121 of the model and 3 of each draft pass, 130 in all; 3 + 1 logits gathers."""
    drafted = apply_choices(scenario(), [("spec", "mtp:3")]).scenario
    ops = schedule_of(drafted).ops
    sums = [op for op in ops if getattr(op, "kind", None) is CollectiveKind.ALL_REDUCE]
    gathers = [op for op in ops if op.category is Category.LOGITS_GATHER]
    assert (len(sums), len(gathers)) == (130, 4)
    assert sorted({op.nbytes for op in sums}) == [8192, 4 * 8192]


def test_sums_dropped_by_half_are_thirty_of_sixty() -> None:
    ops = schedule_of(apply_choices(scenario(), [("sync", "drop:50%")]).scenario).ops
    assert sum(op.category is Category.ALL_REDUCE for op in ops) == 121 - 30


def test_sequence_parallel_has_two_calls_for_one() -> None:
    base = scenario(batch=8)
    ops = schedule_of(apply_choices(base, [("sequence", "parallel")]).scenario).ops
    kinds = [op.kind for op in ops if op.category is Category.ALL_REDUCE]
    assert kinds.count(CollectiveKind.REDUCE_SCATTER) == kinds.count(CollectiveKind.ALL_GATHER)
    assert kinds.count(CollectiveKind.REDUCE_SCATTER) + kinds.count(CollectiveKind.ALL_REDUCE) == 121
    assert kinds.count(CollectiveKind.ALL_REDUCE) <= 1


def test_tiles_multiply_calls_and_keep_their_bytes() -> None:
    """60 mixers end in a GEMM and a sum: four tiles make 240 of these 60, a quarter of the bytes each."""
    base = scenario()
    ops = schedule_of(apply_choices(base, [("overlap", "tiles:4")], hypothetical=True).scenario).ops
    sums = [op for op in ops if op.category is Category.ALL_REDUCE]
    assert len(sums) == 121 - 60 + 4 * 60
    assert sum(op.nbytes for op in sums) == 121 * 8192
    assert {op.nbytes for op in sums if op.stream} == {2048}


def test_a_hidden_sum_pays_no_traversal() -> None:
    """Ladder residual: only sums that outlast the block beside them stay on the critical path."""
    assert timed(("sync", "ladder"), ("allreduce", "oneshot-push")).traversals < 121
