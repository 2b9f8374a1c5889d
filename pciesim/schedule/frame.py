"""The facts of one pass on one rank that every part of a schedule needs: rows, degrees, and how rows travel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pciesim.model import Layer, Mixer, ModelSpec
from pciesim.schedule.engine import AttentionData, EngineSpec
from pciesim.workload import Parallelism, Phase, Workload

__all__ = ["Exchange", "Frame", "stage_layers"]


class Exchange(StrEnum):
    """How rows and partial sums travel between the ranks around mixers and MLPs."""

    SUM = "sum"  # every rank has every row: all-reduces only (tensor parallelism, with or without experts spread)
    GATHER = "gather"  # attention data parallel, equal rows a rank: all-gather before an MLP, reduce-scatter after
    FILL = "fill"  # attention data parallel, unequal rows: both as all-reduce of a buffer of all rows
    DISPATCH = "dispatch"  # vLLM: rows of routed experts only are gathered and reduce-scattered
    ALL_TO_ALL = "all_to_all"  # rows of routed experts go to the ranks of their experts and back


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One pass of one micro-batch.

    ``sequences`` and ``rows`` are those of one attention rank, ``rows`` padded to a captured CUDA graph in decode;
    ``tokens`` are the real tokens of all attention ranks, which the router sees; ``all_rows`` are the rows of an MLP
    that every rank computes on. ``head_rows`` are the rows that need logits, per attention rank. ``draft`` marks a pass
    of a draft head: its rows are ``group`` tokens of each sequence.
    """

    model: ModelSpec
    parallelism: Parallelism
    engine: EngineSpec
    phase: Phase
    sequences: int
    new_tokens: int
    context: int
    rows: int
    tokens: int
    all_rows: int
    head_rows: int
    exchange: Exchange
    alike: float = 0.0

    @classmethod
    def of(
        cls,
        model: ModelSpec,
        workload: Workload,
        parallelism: Parallelism,
        engine: EngineSpec,
        *,
        exchange: Exchange | None = None,
        head_rows: int | None = None,
    ) -> Frame:
        """The frame of a workload. ``head_rows`` (sequences with logits per attention rank) None: as the phase needs.

        ``exchange`` overrides what the engine would do, to compare.
        """
        batch = -(-workload.batch // parallelism.pp)  # engines keep a micro-batch in every stage
        sequences = -(-batch // parallelism.attention_dp)
        decode = workload.phase is Phase.DECODE
        captured = engine.padded(sequences) if decode else sequences
        rows = captured * workload.new_tokens
        chosen = exchange or _exchange(parallelism, engine, decode=decode)
        tokens = batch * workload.new_tokens
        all_rows = tokens if chosen is Exchange.FILL else rows * parallelism.attention_dp
        return cls(
            model=model, parallelism=parallelism, engine=engine, phase=workload.phase, sequences=sequences,
            new_tokens=workload.new_tokens, context=workload.context, rows=rows, tokens=tokens, all_rows=all_rows,
            head_rows=head_rows or (rows if decode else sequences), exchange=chosen, alike=workload.alike,
        )  # fmt: skip

    @property
    def tp(self) -> int:
        """Ranks that share an MLP."""
        return self.parallelism.tp

    @property
    def attention_tp(self) -> int:
        """Ranks that share a mixer."""
        return self.parallelism.attention_tp

    def spread(self, mixer: Mixer) -> int:
        """Ranks over which the tokens of a mixer's cache are spread; 1 in a prompt, whose exchange is not modelled."""
        return mixer.spread(self.attention_tp, self.parallelism.dcp) if self.phase is Phase.DECODE else 1

    @property
    def local_rows(self) -> int:
        """Rows of one rank where the rows of an attention rank are spread over its ``attention_tp`` GPUs."""
        return -(-self.rows // self.attention_tp)

    @property
    def scattered(self) -> bool:
        """Whether router and shared experts run on a rank's own rows only, with whole weights."""
        return self.exchange in (Exchange.DISPATCH, Exchange.ALL_TO_ALL)

    @property
    def side_stream(self) -> bool:
        """Whether small projections and shared experts run beside the main stream: in graphs, up to a size."""
        limit = self.engine.side_stream_rows
        return self.engine.side_stream and (not limit or self.rows <= limit) and self.phase is Phase.DECODE


def _exchange(parallelism: Parallelism, engine: EngineSpec, *, decode: bool) -> Exchange:
    if parallelism.all_to_all:
        return Exchange.ALL_TO_ALL
    if parallelism.attention_dp == 1:
        return Exchange.SUM
    if engine.attention_data is AttentionData.DISPATCH:
        return Exchange.DISPATCH
    return Exchange.GATHER if decode else Exchange.FILL


def stage_layers(model: ModelSpec, pp: int) -> tuple[tuple[Layer, ...], ...]:
    """The layers of every pipeline stage: even, the last ``remainder`` stages one more (SGLang's get_pp_indices)."""
    layers = model.layers
    base, remainder = divmod(len(layers), pp)
    sizes = [base + (stage >= pp - remainder) for stage in range(pp)]
    starts = [sum(sizes[:stage]) for stage in range(pp)]
    return tuple(layers[start : start + size] for start, size in zip(starts, sizes, strict=True))
