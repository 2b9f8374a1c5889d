"""What ``pciesim model show`` says of a model, as plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from pciesim.model import (
    Absent,
    Attention,
    CompressedAttention,
    DenseAndMoe,
    DenseMlp,
    GatedDeltaNet,
    KimiDelta,
    Layer,
    Mamba2,
    Mla,
    ModelSpec,
    Module,
    Moe,
    Sum,
)
from pciesim.model_size import (
    ModuleSize,
    active_parameters,
    all_reduce_calls,
    check_parallelism,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    legal_tp,
    module_sizes,
    mtp_parameters,
    state_bytes_per_sequence,
    total_parameters,
    weight_bytes_per_gpu,
    weight_bytes_read,
)
from pciesim.units import Bytes

__all__ = ["GpuShare", "ModelSummary", "summarise"]

# Group sizes people build boxes with; the summary shows those that the model allows.
_GROUPS: Final = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """Bytes on one GPU of a group: weights held, weights read for one decoded token, and the caches of one sequence."""

    tp: int
    ep: int
    weights: Bytes
    weights_read: Bytes
    kv_per_token: Bytes
    kv_at_context: Bytes
    state_per_sequence: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """Sizes of a model and what tensor parallelism does with them. ``kinds`` counts layers by what they are made of."""

    model: ModelSpec
    layers: int
    kinds: tuple[tuple[str, int], ...]
    total: int
    active: int
    active_without_embedding: int
    mtp: int
    modules: tuple[ModuleSize, ...]
    all_reduces: tuple[tuple[Sum, int], ...]
    context: int
    shares: tuple[GpuShare, ...]
    legal_tp: tuple[int, ...]

    @property
    def nbytes(self) -> Bytes:
        """Bytes of the language model's weights, without MTP and vision."""
        return sum(size.nbytes for size in self.modules if size.module is not Module.MTP)


def summarise(model: ModelSpec, *, tp: int | None = None, ep: int = 1, context: int) -> ModelSummary:
    """The summary, with the share of a GPU at ``tp`` (None: at every usual group size that the model allows).

    Raises InputError when the model cannot be split so.
    """
    legal = legal_tp(model)
    if tp is not None:
        check_parallelism(model, tp=tp, ep=ep)
    groups = [(tp, ep)] if tp is not None else [(size, 1) for size in _GROUPS if size in legal]
    return ModelSummary(
        model=model,
        layers=len(model.layers),
        kinds=tuple(Counter(_kind(layer) for layer in model.layers).items()),
        total=total_parameters(model),
        active=active_parameters(model),
        active_without_embedding=active_parameters(model, embedding=False),
        mtp=mtp_parameters(model),
        modules=module_sizes(model),
        all_reduces=all_reduce_calls(model),
        context=context,
        shares=tuple(_share(model, tp=size, ep=experts, context=context) for size, experts in groups),
        legal_tp=legal,
    )


def _share(model: ModelSpec, *, tp: int, ep: int, context: int) -> GpuShare:
    return GpuShare(
        tp=tp,
        ep=ep,
        weights=weight_bytes_per_gpu(model, tp=tp, ep=ep),
        weights_read=weight_bytes_read(model, tp=tp),
        kv_per_token=kv_bytes_per_token(model, tp=tp),
        kv_at_context=kv_bytes_per_sequence(model, tp=tp, context=context),
        state_per_sequence=state_bytes_per_sequence(model, tp=tp),
    )


_WORDS: Final = {
    Attention: "attention",
    CompressedAttention: "compressed attention",
    DenseAndMoe: "dense MLP beside experts",
    DenseMlp: "dense MLP",
    GatedDeltaNet: "gated delta rule",
    KimiDelta: "Kimi delta rule",
    Mamba2: "Mamba2",
    Mla: "latent attention",
    Moe: "experts",
}


def _kind(layer: Layer) -> str:
    """``attention (window 128) + experts``: what the halves are, and what sets layers of one model apart."""
    words = []
    for half in (layer.mixer, layer.mlp):
        if isinstance(half, Absent):
            continue
        marks = []
        if isinstance(half, Attention) and half.window:
            marks.append(f"window {half.window}")
        if isinstance(half, CompressedAttention):
            marks.append(f"{half.ratio} to 1" if half.ratio else f"window {half.local_window} only")
        if isinstance(half, Attention | CompressedAttention | Mla) and half.indexer is not None:
            marks.append("indexer")
        words.append(_WORDS[type(half)] + (f" ({', '.join(marks)})" if marks else ""))
    return " + ".join(words)
