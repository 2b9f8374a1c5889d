"""Sizes of a model: parameters by module, bytes a GPU holds and reads, caches, and the sums of tensor parallelism.

Pure functions of a :class:`~pciesim.model.ModelSpec`. Tensor parallelism ``tp`` is the size of the group; expert
parallelism ``ep`` divides it: a rank holds ``experts / ep`` experts, each cut ``tp / ep`` ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pciesim.errors import InputError
from pciesim.model import Layer, Linear, ModelSpec, Module, Moe, Precision, Split, Sum, Vector
from pciesim.routing import distinct_experts
from pciesim.units import Bytes

__all__ = [
    "ModuleSize", "active_parameters", "all_reduce_calls", "check_parallelism",
    "kv_bytes_per_sequence", "kv_bytes_per_token", "legal_tp", "module_sizes", "mtp_parameters",
    "state_bytes_per_sequence", "total_parameters", "weight_bytes_per_gpu", "weight_bytes_read", "wider_tp",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSize:
    """All weights of one module kind at one precision: in the whole model and those one token uses."""

    module: Module
    precision: Precision
    parameters: int
    active_parameters: int
    nbytes: Bytes


# -- parameters -----------------------------------------------------------------------------------------------------


def module_sizes(model: ModelSpec) -> tuple[ModuleSize, ...]:
    """Parameters and bytes by module and precision, in the order of the forward pass; MTP last, vision not at all."""
    total: Counter[tuple[Module, Precision]] = Counter()
    active: Counter[tuple[Module, Precision]] = Counter()
    nbytes: Counter[tuple[Module, Precision]] = Counter()

    def add(module: Module, precision: Precision, parameters: int, used: int, size: float) -> None:
        key = (module, precision)
        total[key] += parameters
        active[key] += used
        nbytes[key] += size  # type: ignore[assignment]  # a Counter of floats

    def add_layer(layer: Layer, count: int, only: Module | None) -> None:
        for linear in layer.linears(model.hidden):
            parameters = linear.parameters * count
            add(only or linear.module, linear.precision, parameters, parameters, linear.nbytes * count)
        for vector in layer.vectors(model.hidden):
            parameters = vector.parameters * count
            add(only or Module.NORMS, vector.precision, parameters, parameters, vector.local_bytes(1) * count)
        for moe in _moes(layer):
            expert = moe.expert_parameters(model.hidden) * count
            module = only or Module.ROUTED_EXPERTS
            size = moe.expert_bytes(model.hidden) * moe.experts * count
            add(module, moe.precision, expert * moe.experts, expert * moe.top_k, size)

    embedding = model.embedding
    add(Module.EMBEDDING, embedding.precision, embedding.parameters, embedding.parameters, embedding.nbytes)
    for run in model.runs:
        for layer in run.pattern:
            add_layer(layer, run.repeat, None)
    for vector in model.vectors:
        add(Module.NORMS, vector.precision, vector.parameters, vector.parameters, vector.local_bytes(1))
    if not model.tied_embeddings:
        head = model.head
        add(Module.LM_HEAD, head.precision, head.parameters, head.parameters, head.nbytes)
    if model.mtp is not None:
        for weight in _mtp_outside_layers(model):
            size = weight.local_bytes(1) * model.mtp.modules
            parameters = weight.parameters * model.mtp.modules
            add(Module.MTP, weight.precision, parameters, parameters, size)
        for layer in model.mtp.layers:
            add_layer(layer, model.mtp.modules, Module.MTP)
    order = list(Module)
    keys = sorted(total, key=lambda key: (order.index(key[0]), key[1]))
    return tuple(
        ModuleSize(
            module=module,
            precision=precision,
            parameters=total[module, precision],
            active_parameters=active[module, precision],
            nbytes=nbytes[module, precision],
        )
        for module, precision in keys
    )


def total_parameters(model: ModelSpec) -> int:
    """All parameters of the language model, without MTP and vision (as names of models count)."""
    return sum(size.parameters for size in module_sizes(model) if size.module is not Module.MTP)


def active_parameters(model: ModelSpec, *, embedding: bool = True) -> int:
    """Parameters that one token uses: all but the experts it is not routed to.

    ``embedding`` False leaves the input embedding out, of which a token reads one row (unless the head shares it).
    """
    left_out = {Module.MTP} if embedding or model.tied_embeddings else {Module.MTP, Module.EMBEDDING}
    return sum(size.active_parameters for size in module_sizes(model) if size.module not in left_out)


def mtp_parameters(model: ModelSpec) -> int:
    """Parameters of the multi-token-prediction modules (0 without any)."""
    return sum(size.parameters for size in module_sizes(model) if size.module is Module.MTP)


# -- bytes ----------------------------------------------------------------------------------------------------------


def weight_bytes_per_gpu(model: ModelSpec, *, tp: int, ep: int = 1, mtp: bool = False) -> Bytes:
    """Weight bytes that one GPU of the group holds, with ``mtp`` those of the MTP modules too."""
    held = sum(weight.local_bytes(tp) for weight in _outside_layers(model))
    if model.tied_embeddings:
        held -= model.head.local_bytes(tp)
    held += sum(run.repeat * sum(_held(layer, model.hidden, tp, ep) for layer in run.pattern) for run in model.runs)
    if mtp and model.mtp is not None:
        outside = sum(weight.local_bytes(tp) for weight in _mtp_outside_layers(model))
        layers = sum(_held(layer, model.hidden, tp, ep) for layer in model.mtp.layers)
        held += model.mtp.modules * (outside + layers)
    return held


def weight_bytes_read(model: ModelSpec, *, tp: int, tokens: int = 1) -> Bytes:
    """Weight bytes that one GPU reads in a forward pass of ``tokens`` tokens under uniform routing.

    Expert parallelism leaves the mean over ranks as it is. The embedding is a look-up of one row a token, shared by
    its owners, and left out.
    """
    read = sum(
        weight.local_bytes(tp)
        for weight in _outside_layers(model)
        if not (isinstance(weight, Linear) and weight.module is Module.EMBEDDING)
    )
    for run in model.runs:
        read += run.repeat * sum(_read(layer, model.hidden, tp, tokens) for layer in run.pattern)
    return read


def kv_bytes_per_token(model: ModelSpec, *, tp: int) -> Bytes:
    """KV-cache bytes that one more token costs on each GPU while no window is full."""
    return sum(
        run.repeat * sum(layer.mixer.kv_bytes_per_token(tp, model.kv_precision) for layer in run.pattern)
        for run in model.runs
    )


def kv_bytes_per_sequence(model: ModelSpec, *, tp: int, context: int) -> Bytes:
    """KV-cache bytes of one sequence of ``context`` tokens on each GPU; windowed layers keep their window only."""
    total = 0.0
    for run in model.runs:
        for layer in run.pattern:
            kept = min(context, layer.mixer.window) if layer.mixer.window else context
            total += run.repeat * kept * layer.mixer.kv_bytes_per_token(tp, model.kv_precision)
    return total


def state_bytes_per_sequence(model: ModelSpec, *, tp: int) -> Bytes:
    """Recurrent and convolution state of one sequence on each GPU."""
    return sum(
        run.repeat * sum(layer.mixer.state_bytes_per_sequence(tp) for layer in run.pattern) for run in model.runs
    )


# -- parallelism ----------------------------------------------------------------------------------------------------


def all_reduce_calls(model: ModelSpec) -> tuple[tuple[Sum, int], ...]:
    """The all-reduces of one forward pass under plain tensor parallelism, equal ones together, with their number.

    One after the vocabulary-parallel embedding, then those of every layer; the logits are gathered, not summed.
    """
    calls: Counter[Sum] = Counter({Sum(after="embedding", columns=model.hidden): 1})
    for run in model.runs:
        for layer in run.pattern:
            for each in layer.sums(model.hidden):
                calls[each] += run.repeat
    return tuple(calls.items())


def legal_tp(model: ModelSpec, *, limit: int = 64) -> tuple[int, ...]:
    """The tensor-parallel sizes up to ``limit`` that this model can run at with whole experts cut TP ways."""
    return tuple(wider_tp(model, 0, limit=limit))


def wider_tp(model: ModelSpec, tp: int, *, limit: int = 64) -> Iterator[int]:
    """Those of them above ``tp``, as asked for."""
    return (each for each in range(tp + 1, limit + 1) if not _obstacle(model, each, 1))


def check_parallelism(model: ModelSpec, *, tp: int, ep: int = 1) -> None:
    """Raises InputError, naming what does not divide and which sizes would, when the model cannot be split so.

    KV heads fewer than TP are replicated and no obstacle.
    """
    if tp < 1 or ep < 1:
        raise InputError(f"tensor parallelism {tp} and expert parallelism {ep} must be at least 1")
    if tp % ep:
        raise InputError(f"expert parallelism {ep} does not divide tensor parallelism {tp}")
    if obstacle := _obstacle(model, tp, ep):
        legal = ", ".join(str(size) for size in legal_tp(model))
        valid = [size for size in range(1, tp + 1) if tp % size == 0 and not _obstacle(model, tp, size)]
        hint = f"; at TP {tp} expert parallelism {', '.join(map(str, valid))} would do" if valid else ""
        raise InputError(f"{model.name} cannot run at TP {tp}, EP {ep}: {obstacle} (valid TP: {legal}{hint})")


def _obstacle(model: ModelSpec, tp: int, ep: int) -> str:
    """What forbids the split, or nothing."""
    layers = {layer for run in model.runs for layer in run.pattern}
    for layer in sorted(layers, key=repr):
        for linear in layer.linears(model.hidden):
            if found := _linear_obstacle(linear, tp):
                return found
        for moe in _moes(layer):
            if moe.experts % ep:
                return f"{moe.experts} experts do not divide over EP {ep}"
            if moe.intermediate % (tp // ep):
                return f"the expert width {moe.intermediate} does not divide by TP / EP = {tp // ep}"
            block = _BLOCK.get(moe.precision, 1)
            if tp > ep and moe.intermediate // (tp // ep) % block:
                share = moe.intermediate // (tp // ep)
                return f"the expert width {moe.intermediate} leaves {share} a GPU, not a multiple of the block {block}"
    return ""


# Blocks and groups that share a scale must stay whole: engines refuse a share that is not a multiple. Groups lie along
# the inputs, blocks along both sides. Groups of 16 and 32 divide every width in use or are padded.
_BLOCK = {Precision.FP8_BLOCK: 128, Precision.INT4_AWQ: 128}


def _linear_obstacle(linear: Linear, tp: int) -> str:
    if broken := _broken_block(linear, tp):
        return broken
    match linear.split:
        case Split.COLUMN | Split.ROW:
            if linear.units % tp:
                return (
                    f"TP {tp} does not divide the {linear.units} {_UNIT.get(linear.name, 'columns')} of {linear.name}"
                )
        case Split.KV_HEADS:
            if linear.units % tp and tp % linear.units:
                unit = _UNIT.get(linear.name, "KV heads")
                return f"TP {tp} neither divides nor is a multiple of the {linear.units} {unit}"
        case Split.REPLICATED | Split.VOCAB:
            pass
    return ""


def _broken_block(linear: Linear, tp: int) -> str:
    if tp == 1 or linear.precision not in _BLOCK or linear.split not in (Split.COLUMN, Split.ROW):
        return ""
    if linear.split is Split.COLUMN and linear.precision is not Precision.FP8_BLOCK:
        return ""
    halves = 2 if linear.name.endswith("gate_up_proj") else 1
    width = linear.inputs if linear.split is Split.ROW else linear.outputs // halves
    block = _BLOCK[linear.precision]
    if width % tp or width // tp % block:
        return (
            f"TP {tp} cuts the {width} columns of {linear.name} into shares that are no multiple of the block {block}"
        )
    return ""


_UNIT = {
    "q_proj": "query heads", "q_b_proj": "query heads", "o_proj": "heads", "in_proj_qkvz": "key heads",
    "in_proj_ba": "value heads", "in_proj_bc": "state groups", "out_proj": "value heads",
}  # fmt: skip


# -- parts ----------------------------------------------------------------------------------------------------------


def _moes(layer: Layer) -> tuple[Moe, ...]:
    return () if layer.moe is None else (layer.moe,)


def _outside_layers(model: ModelSpec) -> tuple[Linear | Vector, ...]:
    return (model.embedding, *model.vectors, model.head)


def _mtp_outside_layers(model: ModelSpec) -> tuple[Linear | Vector, ...]:
    if model.mtp is None:
        return ()
    return (model.mtp.projection(model.hidden), *model.mtp.vectors(model.hidden))


def _fixed(layer: Layer, hidden: int, tp: int) -> Bytes:
    """Everything of a layer but the routed experts."""
    weights: tuple[Linear | Vector, ...] = (*layer.linears(hidden), *layer.vectors(hidden))
    return sum(weight.local_bytes(tp) for weight in weights)


def _held(layer: Layer, hidden: int, tp: int, ep: int) -> Bytes:
    experts = sum(moe.expert_bytes(hidden) * -(-moe.experts // ep) / (tp // ep) for moe in _moes(layer))
    return _fixed(layer, hidden, tp) + experts


def _read(layer: Layer, hidden: int, tp: int, tokens: int) -> Bytes:
    experts = sum(
        moe.expert_bytes(hidden) * distinct_experts(experts=moe.experts, top_k=moe.top_k, tokens=tokens) / tp
        for moe in _moes(layer)
    )
    return _fixed(layer, hidden, tp) + experts
