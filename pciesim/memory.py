"""What a model puts on a GPU, whether it fits, and what is left for context and sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.errors import Infeasible
from pciesim.model import Layer, Linear, Module, Precision, Vector
from pciesim.model_size import weight_bytes_per_gpu, wider_tp
from pciesim.prediction import MemoryUse
from pciesim.scenario import Scenario
from pciesim.schedule import AttentionData
from pciesim.schedule.frame import stage_layers
from pciesim.units import GB, MB, Bytes, format_bytes
from pciesim.workload import Parallelism

__all__ = ["check_memory", "memory_use", "stage_weights"]

# Assumed, not measured: CUDA context and libraries 0.7 GB, pool of the captured graphs 1.3 GB; NCCL's channel buffers
# (4 MiB a channel and peer, both directions) with the engine's own workspaces.
_GRAPHS: Final = 2 * GB
_BUFFERS: Final = 500 * MB
_COPIES: Final = 6  # hidden-state sized tensors alive at once in a prompt chunk: residual, norm, mixer, sum, two spare

_ACTIVATION: Final = Precision.BF16.bytes_per_parameter


def check_memory(scenario: Scenario) -> MemoryUse:
    """Bytes on one GPU. Raises Infeasible, saying by how much and what would fit."""
    use = memory_use(scenario)
    if use.used <= use.capacity:
        return use
    tp = scenario.parallelism.tp
    options = [_wider(scenario), f"batch {use.most_sequences}" if use.most_sequences else ""]
    options.append(f"context {use.most_context}" if use.most_context else "")
    would = ", ".join(filter(None, options))
    reserve = use.activations + use.buffers + use.graphs
    raise Infeasible(
        f"{scenario.model.name} at TP {tp} needs {format_bytes(use.used)} a GPU (weights {format_bytes(use.weights)}, "
        f"KV cache and state {format_bytes(use.kv_cache + use.state)}, reserve {format_bytes(reserve)}), "
        f"{format_bytes(use.used - use.capacity)} more than the {format_bytes(use.capacity)} of {scenario.gpu.name}; "
        + (f"would fit: {would}" if would else "no tensor parallelism up to 64 would fit")
    )


def memory_use(scenario: Scenario) -> MemoryUse:
    """Bytes on the fullest GPU, and how far context or batch could grow."""
    model, workload, parallelism = scenario.model, scenario.workload, scenario.parallelism
    tp = parallelism.attention_tp
    sequences = -(-workload.batch // parallelism.attention_dp)
    context = workload.context + workload.new_tokens
    stages = stage_layers(model, parallelism.pp)
    per_stage = [
        (
            stage_weights(scenario, stage),
            sequences * sum(_cache(layer, context, parallelism, model.kv_precision) for layer in layers),
            sequences * sum(layer.mixer.state_bytes_per_sequence(tp) for layer in layers),
            sequences
            * sum(_cache(layer, 1, parallelism, model.kv_precision) for layer in layers if not layer.mixer.window),
        )
        for stage, layers in enumerate(stages)
    ]
    weights, cache, state, per_token = max(per_stage, key=lambda each: sum(each[:3]))
    use = MemoryUse(
        weights=weights, kv_cache=cache, state=state, capacity=scenario.gpu.memory,
        activations=_activations(scenario), buffers=_BUFFERS if len(scenario.gpus) > 1 else 0.0, graphs=_GRAPHS,
    )  # fmt: skip
    spare = use.capacity - use.used + cache + state
    one = (cache + state) / sequences
    fixed = cache - per_token * context
    return replace(
        use,
        most_sequences=max(0, int(spare // one)) * parallelism.attention_dp if one else 0,
        most_context=max(0, int((spare - state - fixed) // per_token)) if per_token else 0,
    )


def stage_weights(scenario: Scenario, stage: int) -> Bytes:
    """Weight bytes that a GPU of a pipeline stage holds.

    Attention data parallelism holds mixers whole on each attention rank; SGLang the embedding too, while vLLM cuts
    everything but routed experts over the GPUs that share a sequence, shared experts not at all.
    """
    model, parallelism = scenario.model, scenario.parallelism
    if parallelism.pp == parallelism.attention_dp == 1 and not parallelism.all_to_all:
        return weight_bytes_per_gpu(model, tp=parallelism.tp, ep=parallelism.ep)
    dispatch = parallelism.attention_dp > 1 and scenario.engine.attention_data is AttentionData.DISPATCH
    stages = stage_layers(model, parallelism.pp)
    held = sum(_held(layer, model.hidden, parallelism, scattered=dispatch or parallelism.all_to_all)
               for layer in stages[stage])  # fmt: skip
    first, last = stage == 0, stage == len(stages) - 1
    outer = parallelism.attention_tp if dispatch else parallelism.tp
    if first:
        held += model.embedding.local_bytes(1 if parallelism.attention_dp > 1 and not dispatch else outer)
    if last:
        held += sum(vector.local_bytes(parallelism.tp) for vector in model.vectors)
        shared = model.tied_embeddings and first and (parallelism.attention_dp == 1 or dispatch)
        held += 0.0 if shared else model.head.local_bytes(outer)
    return held


def _held(layer: Layer, hidden: int, parallelism: Parallelism, *, scattered: bool) -> Bytes:
    tp, attention_tp, ep = parallelism.tp, parallelism.attention_tp, parallelism.ep
    weights: tuple[Linear | Vector, ...] = (*layer.linears(hidden), *layer.vectors(hidden))
    mixers = {linear.name for linear in layer.mixer.linears(hidden)}
    mixers |= {vector.name for vector in layer.mixer.vectors(hidden)}
    held = 0.0
    for weight in weights:
        if weight.name in mixers:
            held += weight.local_bytes(attention_tp)
        elif scattered and isinstance(weight, Linear):
            held += weight.local_bytes(1 if weight.module is Module.SHARED_EXPERTS else attention_tp)
        else:
            held += weight.local_bytes(tp)
    if layer.moe is not None:
        held += layer.moe.expert_bytes(hidden) * -(-layer.moe.experts // ep) / (tp // ep)
    return held


def _cache(layer: Layer, context: int, parallelism: Parallelism, precision: Precision) -> Bytes:
    """Of one sequence, up to the window; the share of a rank where ranks spread its tokens."""
    mixer, tp = layer.mixer, parallelism.attention_tp
    kept = min(context, mixer.window) if mixer.window else context
    return kept * mixer.kv_bytes_per_token(tp, precision) / mixer.spread(tp, parallelism.dcp)


def _activations(scenario: Scenario) -> Bytes:
    """Tensors alive in one prompt chunk: hidden states, the widest projection, and the routed rows of a MoE layer."""
    model, parallelism = scenario.model, scenario.parallelism
    rows = scenario.workload.chunk or scenario.engine.prefill_chunk
    layers = {id(layer): layer for layer in model.layers}.values()
    widest = max(
        (linear.local_shape(parallelism.tp)[0] for layer in layers for linear in layer.linears(model.hidden)), default=0
    )
    routed = max(
        (
            2 * moe.top_k * (moe.expert_width(model.hidden) / parallelism.ep + moe.intermediate / parallelism.tp)
            for moe in (layer.moe for layer in layers)
            if moe is not None
        ),
        default=0.0,
    )
    logits = scenario.workload.batch * model.vocabulary * (_ACTIVATION + Precision.FP32.bytes_per_parameter)
    return rows * (_COPIES * model.hidden + 2 * widest + routed) * _ACTIVATION + logits


def _wider(scenario: Scenario) -> str:
    """The next tensor-parallel size at which it would fit, or nothing."""
    parallelism, width = scenario.parallelism, len(scenario.gpus)
    for tp in wider_tp(scenario.model, parallelism.tp):
        if tp % parallelism.attention_dp:
            continue
        ep = parallelism.ep if tp % parallelism.ep == 0 else 1
        wider = replace(scenario, parallelism=replace(parallelism, tp=tp, ep=ep))
        use = memory_use(wider)
        if use.used <= use.capacity:
            more = tp * width // parallelism.tp > len(scenario.fabric.gpus)
            return f"TP {tp}" + (" (more GPUs)" if more else "")
    return ""
