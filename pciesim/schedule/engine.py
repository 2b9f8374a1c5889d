"""A serving engine as data: the kernels it issues around the GEMMs, how it splits work, what serves its collectives."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from pciesim.errors import UnknownName
from pciesim.schedule.dispatch import Backend, Box, Decision, decide
from pciesim.schedule.ops import Collective

__all__ = ["AttentionData", "EngineSpec", "ExpertBackend", "SpeculationStyle"]


class AttentionData(StrEnum):
    """What attention data parallelism exchanges: the rows of every MLP, or only those of routed experts."""

    GATHER = "gather"
    DISPATCH = "dispatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertBackend:
    """A kernel backend for routed experts (or FP4 GEMMs) and what is known of it. ``capabilities`` empty: all."""

    name: str
    precision: str
    runs: str
    capabilities: tuple[int, ...] = ()

    def serves(self, capability: int) -> bool:
        """Whether it is built for the GPU."""
        return not self.capabilities or capability in self.capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationStyle:
    """How an engine drafts with a draft head.

    ``extend_last``: the pass over all verified rows ends an iteration and gives the next one's first draft (SGLang);
    else it begins it (vLLM). ``extend_logits_all``: it computes logits of all its rows. ``gathered_projection``: the
    head's projection is column-parallel, so its result is gathered. ``broadcasts``: small tensors that rank 0 sends
    to the others after sampling that is not greedy.
    """

    extend_last: bool
    extend_logits_all: bool
    gathered_projection: bool
    broadcasts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """An engine and version.

    ``backends`` is the dispatch of collectives, in order. ``small_kernels`` maps a place in the layer to the small
    kernels issued there. ``expert_backends`` maps a precision of the routed experts to the kernel backend that serves
    it, ``known_backends`` lists what else there is. ``side_stream``: shared experts and small projections run beside
    the main stream inside CUDA graphs, up to ``side_stream_rows`` rows (0: any). ``graph_rows`` are the sizes of
    captured decode graphs: a batch is padded to the next one (none: no padding). ``prefill_chunk`` is the default
    prompt chunk. ``whole`` False leaves out what is not a layer (a benchmark's step). ``host_parameter`` names the
    profile's figure for the host's time between steps. ``ranks_route_alone``: every rank routes
    tokens of its own (a benchmark), so that ranks reach the sum after their experts apart. ``options`` are the flags
    and variables that were set.
    """

    name: str
    title: str
    version: str
    backends: tuple[Backend, ...]
    small_kernels: Mapping[str, tuple[str, ...]] = field(hash=False)
    expert_backends: Mapping[str, str] = field(hash=False)
    attention_backend: str
    side_stream: bool
    host_parameter: str
    source: str
    attention_data: AttentionData = AttentionData.GATHER
    known_backends: tuple[ExpertBackend, ...] = ()
    side_stream_rows: int = 0
    graph_rows: tuple[int, ...] = ()
    prefill_chunk: int = 8192
    speculation: SpeculationStyle = SpeculationStyle(
        extend_last=True, extend_logits_all=False, gathered_projection=False, broadcasts=0
    )
    kernel_rows: str = ""
    embedding_sum: bool = True
    whole: bool = True
    ranks_route_alone: bool = False
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def switches(self) -> tuple[str, ...]:
        """Every flag and variable that changes the dispatch."""
        return tuple(dict.fromkeys(n for each in self.backends if each.switch for n in each.switch.names))

    def with_options(self, options: Mapping[str, str]) -> EngineSpec:
        """The same engine started with flags or variables. Raises UnknownName for one that it does not know."""
        for name in options:
            if name not in self.switches:
                raise UnknownName(f"option of {self.title}", name, self.switches)
        return replace(self, options=MappingProxyType({**self.options, **options}))

    def decide(self, op: Collective, box: Box) -> Decision:
        """The backend that serves a collective on these GPUs, and why others do not."""
        return decide(self.backends, op, box, self.options)

    def padded(self, sequences: int) -> int:
        """Rows of the smallest captured graph that holds a batch; the batch itself where none is large enough."""
        index = bisect_left(self.graph_rows, sequences)
        return self.graph_rows[index] if index < len(self.graph_rows) else sequences
