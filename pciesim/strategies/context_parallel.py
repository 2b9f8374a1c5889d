"""Decode context parallelism: ranks that would hold copies of a KV cache hold parts of it, and exchange what it takes.

The exchange, its bytes and the copies around it are in :mod:`pciesim.schedule.context`. What stands in the way is what
vLLM refuses, as read in its releases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.errors import Infeasible, InputError
from pciesim.model import Absent, Attention, CompressedAttention, Mixer, Mla
from pciesim.scenario import Scenario
from pciesim.strategies.strategy import Strategy, Switch
from pciesim.workload import Phase

__all__ = ["CONTEXT_PARALLEL"]

# The first releases that have it, from their own sources: engine/arg_utils.py of 0.10.2 has the flag, that of 0.10.1.1
# has not; the attention backends for grouped queries know it from 0.11.1 (0.11.0: MLA only). 0.17.0 refuses hybrid
# models (v1/core/kv_cache_coordinator.py) and its sparse indexer does not know it; 0.33.0 has both. What lies between
# 0.17.0 and 0.33.0 was not read.
_FIRST: Final = "0.10.2"
_GROUPED: Final = "0.11.1"
_HYBRID: Final = "0.33.0"


def _apply(scenario: Scenario, argument: str) -> Scenario:
    """Raises Infeasible where no layer's cache is held that many times by ranks in a row."""
    if not argument.isdecimal() or int(argument) < 1:
        raise InputError(f"dcp={argument}: expected a whole number from 1 up")
    ways, tp = int(argument), scenario.parallelism.attention_tp
    if tp % ways:
        raise Infeasible(f"dcp={ways} does not divide TP {tp}")
    mixers = _mixers(scenario)
    if ways > 1 and not any(mixer.spread(tp, ways) == ways for mixer in mixers):
        raise Infeasible(f"dcp={ways} cannot be: {_why_not(scenario, mixers, tp)}")
    return replace(scenario, parallelism=replace(scenario.parallelism, dcp=ways))


def _mixers(scenario: Scenario) -> tuple[Mixer, ...]:
    """The different mixers of the model, in order."""
    return tuple(dict.fromkeys(layer.mixer for layer in scenario.model.layers if not isinstance(layer.mixer, Absent)))


def _why_not(scenario: Scenario, mixers: tuple[Mixer, ...], tp: int) -> str:
    heads = {mixer.kv_heads for mixer in mixers if isinstance(mixer, Attention) and not mixer.window}
    if not heads:
        return f"no layer of {scenario.model.name} has a cache that it could spread"
    count = max(heads)
    copies = tp // count
    if copies <= 1:
        return (
            f"TP {tp} holds each of the {count} KV heads of {scenario.model.name} once: there are no copies to spread"
        )
    return f"TP {tp} holds each of the {count} KV heads of {scenario.model.name} {copies} times: N must divide {copies}"


def _obstacle(scenario: Scenario, argument: str) -> str:
    engine, mixers = scenario.engine, _mixers(scenario)
    if not argument.isdecimal() or int(argument) < 2:
        return ""  # nothing is asked for, or what cannot be is told when it is applied
    if engine.name.partition("-")[0] != "vllm":
        return (
            f"{engine.title} {engine.version} has no decode context parallelism, vLLM has "
            "(hypothetically: without the small kernels around the exchange)"
        )
    sparse = any(isinstance(mixer, Attention) and mixer.sparse_top_k for mixer in mixers)
    reasons = (
        (scenario.workload.phase is Phase.PREFILL, "what a prompt pays for a spread cache is not modelled"),
        (
            any(isinstance(each, CompressedAttention) for each in mixers),
            "how vLLM spreads a compressed cache is not known",
        ),
        (sparse, "whether vLLM spreads the cache of grouped queries with a sparse indexer is not known"),
        (any(mixer.window for mixer in mixers), "vLLM spreads no windowed layers (v1/core/kv_cache_coordinator.py)"),
    )
    return next((reason for holds, reason in reasons if holds), _too_old(scenario, mixers))


def _too_old(scenario: Scenario, mixers: tuple[Mixer, ...]) -> str:
    """What this version of vLLM lacks of what the model needs."""
    needs = [("decode context parallelism", _FIRST)]
    if any(isinstance(mixer, Attention) for mixer in mixers):
        needs.append(("it for grouped queries", _GROUPED))
    if any(not isinstance(mixer, Attention | Mla) for mixer in mixers):
        needs.append(("it for models with recurrent layers", _HYBRID))
    if any(isinstance(mixer, Mla) and mixer.sparse_top_k for mixer in mixers):
        needs.append(("it for sparse attention", _HYBRID))
    engine = scenario.engine
    lacking = (
        f"vLLM {engine.version} does not have {what}, {since} has"
        for what, since in needs
        if not Switch(engine="vllm", since=since).serves("vllm", engine.version)
    )
    return next(lacking, "")


CONTEXT_PARALLEL: Final = Strategy(
    axis="dcp",
    name="ranks",
    argument="how many ways",
    sentence="ranks that would hold copies of a KV cache hold every Nth token of it instead",
    source="vllm-project/vllm 0.33.0 v1/attention/ops/dcp.py; local-inference-lab/rtx6kpro (Kimi-K2.5, DCP4)",
    apply=_apply,
    obstacle=_obstacle,
    turn_on=lambda argument: (Switch(engine="vllm", since=_FIRST, flags=("--decode-context-parallel-size", argument)),),
    number="two all-gathers (queries, log-sum-exps) and a reduce-scatter of partial outputs more an attention layer",
    size="from each rank rows x heads / TP times: query width x 2 bytes, N x 4, N x value width x 2",
    criticality="exposed",
    risk="attention backends must return log-sum-exps; windowed layers are refused",
    hurts="short contexts: three calls a layer cost more than the part of the cache that is not read",
)
