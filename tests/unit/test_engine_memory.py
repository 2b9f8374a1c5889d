"""Memory: what each split puts on a GPU, and what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pciesim.api import load_scenario
from pciesim.errors import Infeasible
from pciesim.formats.engine_yaml import load_engine
from pciesim.memory import check_memory, memory_use, stage_weights
from pciesim.model_size import weight_bytes_per_gpu
from pciesim.scenario import Scenario
from pciesim.workload import Parallelism, Workload


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    found, _ = load_scenario(
        topo="rtx6000x8", model="qwen35_397b", tp=None, batch=8, context=4096, gpus=None, engine="sglang",
        allreduce="auto", profile=None, overlay=None, nccl=None,
    )  # fmt: skip
    return found


def under(scenario: Scenario, **degrees: int) -> Scenario:
    return replace(scenario, parallelism=Parallelism(**degrees))


def test_tensor_parallel_weights_are_those_of_the_model(scenario: Scenario) -> None:
    assert stage_weights(scenario, 0) == pytest.approx(weight_bytes_per_gpu(scenario.model, tp=8))


def test_stages_hold_the_model_between_them(scenario: Scenario) -> None:
    """The stages of TP2 x PP4 add up to one TP2 stage (embedding first, head last)."""
    staged = under(scenario, tp=2, pp=4)
    total = sum(stage_weights(staged, stage) for stage in range(4))
    assert total == pytest.approx(weight_bytes_per_gpu(scenario.model, tp=2))


def test_whole_attention_weighs_more(scenario: Scenario) -> None:
    plain, data = (stage_weights(under(scenario, tp=8, ep=8, attention_dp=dp), 0) for dp in (1, 8))
    assert data > 1.3 * plain
    vllm = replace(under(scenario, tp=8, ep=8, attention_dp=8), engine=load_engine("vllm"))
    assert stage_weights(vllm, 0) > data  # the vocabulary whole on every rank


def test_limits_are_where_it_stops_fitting(scenario: Scenario) -> None:
    use = memory_use(scenario)
    longest = replace(scenario, workload=Workload(batch=8, context=use.most_context - 1))
    assert check_memory(longest).used <= use.capacity
    with pytest.raises(Infeasible):
        check_memory(replace(scenario, workload=Workload(batch=8, context=use.most_context + 16)))
    most = replace(scenario, workload=Workload(batch=use.most_sequences, context=4096))
    assert memory_use(most).used == pytest.approx(use.capacity, rel=0.02)


def test_attention_ranks_share_the_sequences(scenario: Scenario) -> None:
    """Eight sequences: one on each of eight attention ranks, whose cache holds both KV heads instead of one."""
    plain, data = (memory_use(under(scenario, tp=8, attention_dp=dp)) for dp in (1, 8))
    assert data.kv_cache == pytest.approx(plain.kv_cache / 8 * 2)
    assert data.state == pytest.approx(plain.state)
