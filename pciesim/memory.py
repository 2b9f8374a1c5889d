"""What a model puts on a GPU, and whether it fits."""

from __future__ import annotations

from typing import Final

from pciesim.errors import Infeasible
from pciesim.model_size import kv_bytes_per_sequence, legal_tp, state_bytes_per_sequence, weight_bytes_per_gpu
from pciesim.prediction import MemoryUse
from pciesim.scenario import Scenario
from pciesim.units import GB, format_bytes

__all__ = ["check_memory"]

_RESERVE: Final = 4 * GB  # CUDA context, graph pool, activations, communication buffers of one GPU: assumed


def check_memory(scenario: Scenario) -> MemoryUse:
    """Bytes on one GPU. Raises Infeasible, saying by how much and what would fit."""
    tp, ep = scenario.parallelism.tp, scenario.parallelism.ep
    use = _memory(scenario, tp, ep)
    needed = use.weights + use.kv_cache + use.state + _RESERVE
    if needed <= use.capacity:
        return use
    fits = [
        each
        for each in legal_tp(scenario.model)
        if each > tp and _sum_of(_memory(scenario, each, ep if each % ep == 0 else 1)) + _RESERVE <= use.capacity
    ]
    spare = use.capacity - _RESERVE - use.weights
    per_sequence = (use.kv_cache + use.state) / scenario.workload.batch
    options = []
    if fits:
        options.append(f"TP {fits[0]}" + (" (more GPUs)" if fits[0] > len(scenario.fabric.gpus) else ""))
    if spare > per_sequence:
        options.append(f"batch {int(spare // per_sequence)}")
    if spare > 0 and use.kv_cache:
        options.append(f"context {int(scenario.workload.context * (spare - use.state) / use.kv_cache)}")
    raise Infeasible(
        f"{scenario.model.name} at TP {tp} needs {format_bytes(needed)} a GPU (weights {format_bytes(use.weights)}, "
        f"KV cache and state {format_bytes(use.kv_cache + use.state)}, reserve {format_bytes(_RESERVE)}), "
        f"{format_bytes(needed - use.capacity)} more than the {format_bytes(use.capacity)} of {scenario.gpu.name}; "
        + (f"would fit: {', '.join(options)}" if options else "no tensor parallelism up to 64 would fit")
    )


def _sum_of(use: MemoryUse) -> float:
    """Everything a model puts on a GPU."""
    return use.weights + use.kv_cache + use.state


def _memory(scenario: Scenario, tp: int, ep: int) -> MemoryUse:
    model, workload = scenario.model, scenario.workload
    context = workload.context + workload.new_tokens
    return MemoryUse(
        weights=weight_bytes_per_gpu(model, tp=tp, ep=ep),
        kv_cache=workload.batch * kv_bytes_per_sequence(model, tp=tp, context=context),
        state=workload.batch * state_bytes_per_sequence(model, tp=tp),
        capacity=scenario.gpu.memory,
    )
