"""What a prediction says: plain values, ready for a terminal, JSON or a plot."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from pciesim.fabric import Assumption
from pciesim.profile import Interval
from pciesim.units import Bytes, Flop, Seconds

__all__ = [
    "BreakEven", "BusiestLink", "CollectiveLine", "KernelLine", "Lever", "MemoryUse", "OpLine", "OwnKernelGain",
    "Prediction", "Request", "Sensitivity",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked, with every default filled in, as printed on the first line."""

    topology: str
    model: str
    gpu_model: str
    gpus: tuple[int, ...]
    tp: int
    batch: int
    context: int
    engine: str
    allreduce: str
    profile: str
    evaluator: str
    choice: str = ""  # how the GPUs were chosen, where they are fewer than the file's
    phase: str = "decode"
    prompt: int = 0  # prompt tokens a sequence, where the phase is prefill
    chunk: int = 0  # prompt tokens of one pass
    ep: int = 1
    dp: int = 1
    pp: int = 1
    attention_dp: int = 1
    strategies: tuple[str, ...] = ()  # as typed: axis=value


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLine:
    """All equal collectives of a step. ``nbytes`` is each rank's input, ``gathered`` the all-gather's output (else 0).

    ``latency`` is that of one call, ``traversals`` the sequential one-way PCIe traversals of one call's critical path.
    ``in_step`` (s) is the part of the latency that a call costs only among the other kernels of a step.
    """

    kind: str
    count: int
    nbytes: int
    gathered: int
    algorithm: str
    protocol: str
    transport: str
    channels: int
    latency: Interval
    traversals: int
    reason: str = ""  # why this algorithm, protocol and transport
    in_step: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Equal all-reduces of a step by a kernel of one's own, against what the engine would take by itself.

    ``own`` is the latency of one call, ``latency`` that of the engine's ``algorithm``: from there on one's own loses.
    """

    nbytes: int
    count: int
    own: Seconds
    latency: Seconds
    algorithm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKernelGain:
    """What an all-reduce of one's own ``saves`` of the whole step (negative: costs), and where it would break even."""

    saves: Seconds
    against: tuple[BreakEven, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """All equal kernels of a step: how many, how long each, and where the time comes from.

    ``source`` is ``measured``, ``interpolated``, ``borrowed``, ``roofline`` or ``assumed``; ``detail`` says which
    table or why. ``floor`` is the time its bytes need at the device memory's specified bandwidth.
    """

    name: str
    category: str
    count: int
    time: Interval
    floor: Seconds
    source: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpLine:
    """One op of the step as issued. ``kind`` is a collective's operation or the sort of kernel.

    ``duration`` of a kernel includes the gap after it. ``source`` is a kernel's (see :class:`KernelLine`) or a
    collective's algorithm and protocol.
    """

    name: str
    category: str
    kind: str
    nbytes: Bytes
    flop: Flop
    ranks: int
    group: str
    stage: int
    stream: int
    start: Seconds
    duration: Seconds
    source: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BusiestLink:
    """The link that carries most in a step. ``busy`` is the share of the step it would need at full rate."""

    name: str
    nbytes: Bytes
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A cost that could be removed: how much of the step, by what, and what stands in the way."""

    what: str
    how: str
    saves: Interval
    caveat: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes on the fullest GPU of the group, and what is left for more context or sequences.

    ``activations``, ``buffers`` (of communication) and ``graphs`` (with the driver's context) are estimates.
    ``most_context`` is how long each sequence of this batch could grow, ``most_sequences`` how many of this context
    would fit (0: not calculated, or no limit).
    """

    weights: Bytes
    kv_cache: Bytes
    state: Bytes
    capacity: Bytes
    activations: Bytes = 0.0
    buffers: Bytes = 0.0
    graphs: Bytes = 0.0
    most_context: int = 0
    most_sequences: int = 0

    @property
    def used(self) -> Bytes:
        """All of it."""
        return self.weights + self.kv_cache + self.state + self.activations + self.buffers + self.graphs


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How far one parameter's interval moves the step latency (half width)."""

    parameter: str
    effect: Seconds
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The answer to ``pciesim predict``. Breakdown entries add up to the step latency.

    ``tokens_per_step`` is what a step yields each sequence (1 without drafts), ``traversals`` the sequential one-way
    PCIe traversals on the critical path of a step. ``warnings`` are what the strategies asked for want known.
    """

    request: Request
    step_latency: Interval
    tokens_per_step: Interval
    tokens_per_second_user: Interval
    tokens_per_second_total: Interval
    breakdown: tuple[tuple[str, Interval], ...]
    collectives: tuple[CollectiveLine, ...]
    kernels: tuple[KernelLine, ...]
    traversals: int
    busiest_link: BusiestLink | None
    levers: tuple[Lever, ...]
    memory: MemoryUse
    sensitivities: tuple[Sensitivity, ...]
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...] = ()
    ops: tuple[OpLine, ...] = ()  # where they were asked for
    own_kernel: OwnKernelGain | None = None  # where an all-reduce of one's own was asked for

    @property
    def traversals_per_token(self) -> float:
        """The same for each token of one user."""
        return self.traversals / self.tokens_per_step.value

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        # By name: reports stand above this room, and only a notebook asks.
        text: str = importlib.import_module("pciesim.reports.html_tables").prediction_html(self)
        return text
