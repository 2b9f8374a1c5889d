"""How the model is split: replicas, experts spread over ranks, data-parallel attention, pipeline stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.errors import Infeasible, InputError
from pciesim.model import Moe
from pciesim.model_size import check_parallelism
from pciesim.physics import RouteCosts
from pciesim.placement import farthest_replica
from pciesim.scenario import Scenario
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["ALL_TO_ALL", "ATTENTION_DATA", "EXPERT_PARALLEL", "PIPELINE", "REPLICAS"]


def _degree(axis: str, argument: str) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise InputError(f"{axis}={argument}: expected a whole number from 1 up")
    return int(argument)


def _check(scenario: Scenario, *, tp: int, ep: int) -> None:
    """A split that the model does not allow is an answer here: the degrees were well-formed."""
    try:
        check_parallelism(scenario.model, tp=tp, ep=ep)
    except InputError as error:
        raise Infeasible(str(error)) from None


def _replicas(scenario: Scenario, argument: str) -> Scenario:
    """Replicas take disjoint groups; the scenario is that of the one whose GPUs are farthest apart."""
    count = _degree("dp", argument)
    width = len(scenario.gpus)
    fabric, costs = scenario.fabric, RouteCosts.of(scenario.profile)
    if count * width > len(fabric.gpus):
        raise Infeasible(
            f"{count} replicas of {width} GPUs need {count * width}, '{fabric.name}' has {len(fabric.gpus)}"
        )
    slowest, _ = farthest_replica(fabric, scenario.gpus, count, costs)
    return replace(scenario, gpus=slowest, parallelism=replace(scenario.parallelism, dp=count))


def _experts(scenario: Scenario, argument: str) -> Scenario:
    ep = _degree("ep", argument)
    _check(scenario, tp=scenario.parallelism.tp, ep=ep)
    return replace(scenario, parallelism=replace(scenario.parallelism, ep=ep))


def _has_experts(scenario: Scenario, argument: str) -> str:
    if any(isinstance(layer.mlp, Moe) for layer in scenario.model.layers):
        return ""
    return f"{scenario.model.name} has no routed experts" if argument != "1" else ""


def _all_to_all(scenario: Scenario, _argument: str) -> Scenario:
    return replace(scenario, parallelism=replace(scenario.parallelism, all_to_all=True))


def _all_to_all_obstacle(scenario: Scenario, _argument: str) -> str:
    if scenario.parallelism.ep == 1:
        return "tokens can only be sent to the ranks of their experts when experts are spread: ep=N first"
    return "DeepEP's kernels need NVLink or an RDMA NIC; on PCIe they do not run (deepseek-ai/DeepEP issue 162)"


def _attention(scenario: Scenario, argument: str) -> Scenario:
    degree, tp = _degree("attention-dp", argument), scenario.parallelism.tp
    if tp % degree:
        raise Infeasible(f"attention-dp={degree} does not divide TP {tp}")
    return replace(scenario, parallelism=replace(scenario.parallelism, attention_dp=degree))


def _attention_obstacle(scenario: Scenario, argument: str) -> str:
    degree = int(argument) if argument.isdecimal() else 1
    if scenario.workload.batch < degree:
        return f"a batch of {scenario.workload.batch} leaves some of {degree} attention ranks without a sequence"
    return ""


def _pipeline(scenario: Scenario, argument: str) -> Scenario:
    stages, width = _degree("pp", argument), len(scenario.gpus)
    if stages == 1:
        return scenario
    if width % stages:
        raise Infeasible(f"pp={stages} does not divide the {width} GPUs of the group")
    tp = width // stages
    _check(scenario, tp=tp, ep=min(scenario.parallelism.ep, tp))
    return replace(scenario, parallelism=replace(scenario.parallelism, tp=tp, pp=stages))


REPLICAS: Final = Strategy(
    axis="dp",
    name="replicas",
    argument="how many",
    sentence="as many copies of the model serve different sequences, each on its own GPUs",
    source="SGLang --dp-size; gpustack (8x A100: two TP4 beat one TP8 by 13 to 59 %)",
    apply=_replicas,
    turn_on=lambda argument: (
        Switch(engine="sglang", flags=("--dp-size", argument)),
        Switch(
            engine="vllm", note=f"start {argument} servers on disjoint GPUs (CUDA_VISIBLE_DEVICES) behind a balancer"
        ),
    ),
    number="fewer hops a call: the group is smaller",
    size="same a sequence",
    criticality="replicas do not wait for each other",
    risk="none",
    hurts="one user: a smaller group reads more weights per GPU; memory holds the weights once a replica",
)

EXPERT_PARALLEL: Final = Strategy(
    axis="ep",
    name="experts",
    argument="how many ways",
    sentence="whole experts are spread over the ranks instead of cutting every expert",
    source="SGLang --ep-size, vLLM --enable-expert-parallel",
    apply=_experts,
    obstacle=_has_experts,
    turn_on=lambda argument: (
        Switch(engine="sglang", flags=("--ep-size", argument)),
        Switch(engine="vllm", flags=("--enable-expert-parallel",), note="experts over all ranks"),
    ),
    number="same: the partial sums of all ranks are still all-reduced",
    size="same",
    criticality="every call waits for the rank with most experts to run",
    risk="none",
    hurts="small batches: a few experts land on few ranks, the others wait",
)

ALL_TO_ALL: Final = Strategy(
    axis="a2a",
    name="on",
    sentence="tokens are sent to the ranks of their experts and back instead of being summed everywhere",
    source="DeepEP; SGLang --moe-a2a-backend",
    apply=_all_to_all,
    obstacle=_all_to_all_obstacle,
    turn_on=lambda _: (Switch(engine="sglang", flags=("--moe-a2a-backend", "deepep")),),
    number="2 all-to-alls instead of an all-reduce a MoE layer",
    size="hidden x expected distinct ranks a token",
    criticality="exposed unless two micro-batches hide it",
    risk="reports of EP on PCIe boxes: 1.4 to 2.6 tok/s; do not expect it to run",
    hurts="decode at small batch",
)

ATTENTION_DATA: Final = Strategy(
    axis="attention-dp",
    name="ranks",
    argument="how many ways",
    sentence="ranks attend to different sequences and meet for the MLPs only",
    source="SGLang layers/dp_attention.py",
    apply=_attention,
    obstacle=_attention_obstacle,
    turn_on=lambda argument: (
        Switch(engine="sglang", flags=("--enable-dp-attention", "--dp-size", argument)),
        Switch(engine="vllm", flags=("--data-parallel-size", argument, "--enable-expert-parallel")),
    ),
    number="an all-gather and a reduce-scatter a layer instead of two all-reduces",
    size="as one all-reduce of all ranks' tokens",
    criticality="exposed",
    risk="attention weights are held whole on every rank",
    hurts="one user: attention weights are read whole by each GPU",
)

PIPELINE: Final = Strategy(
    axis="pp",
    name="stages",
    argument="how many stages",
    sentence="layers are divided among stages of GPUs; the group's TP shrinks to GPUs / stages",
    source="SGLang --pp-size, vLLM --pipeline-parallel-size",
    apply=_pipeline,
    turn_on=lambda argument: (
        Switch(engine="sglang", flags=("--pp-size", argument)),
        Switch(engine="vllm", flags=("--pipeline-parallel-size", argument)),
    ),
    number="one send a stage; all-reduces over fewer GPUs",
    size="two rows of hidden a token and boundary",
    criticality="a token passes the stages one after the other",
    risk="none",
    hurts="one user: no stage works while another does",
)
