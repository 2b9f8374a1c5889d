"""What to do: the best configurations with their switches, what would make that surer, and what is left to gain."""

from __future__ import annotations

from dataclasses import dataclass

from pciesim.compare.comparison import Gain
from pciesim.compare.outcome import Outcome
from pciesim.compare.response import change_of
from pciesim.units import Bytes, Seconds

__all__ = ["Advice", "BreakEven", "Doubt", "DraftRange", "Floor", "Proposal", "doubts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One configuration: its gain over the engine as it is, how it is turned on, and what to mind.

    ``switches`` are lines as typed (flags, variables, what to do to the box), all of which this version has;
    ``missing`` names what it needs beyond that (another version, a patched engine, a model change).
    """

    gain: Gain
    switches: tuple[str, ...]
    missing: tuple[str, ...]
    risks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A figure that widens the interval of the gain: by how many seconds a token, and how to settle it."""

    figure: str
    effect: Seconds
    evidence: str
    settle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What no all-reduce can beat on this box: one store a call and as many calls as the model has.

    ``traversals`` a token; ``wire`` the seconds these take at the latency of the farthest pair; ``nbytes`` and
    ``memory`` the bytes a GPU must read a step and the seconds that takes at the datasheet's bandwidth.
    """

    calls: int
    traversals: int
    wire: Seconds
    nbytes: Bytes
    memory: Seconds

    @property
    def step(self) -> Seconds:
        """Both, one after the other: a step cannot be shorter without fewer bytes or fewer calls."""
        return self.wire + self.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """For whoever writes a kernel: the all-reduces of the best proposal, and what a faster one would be worth.

    ``rate_per_microsecond`` is tokens per second a user for each microsecond a call takes less, ``zero`` the rate if
    calls took no time.
    """

    nbytes: int
    calls: int
    latency: Seconds
    algorithm: str
    rate_per_microsecond: float
    zero: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRange:
    """How many drafts serve one user fastest, and the least and most that cannot be told apart from that."""

    best: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """``met`` says whether the best proposal holds the stated limit on the time per token (True without one)."""

    title: str
    objective: str
    baseline: Outcome
    ready: tuple[Proposal, ...]
    later: tuple[Proposal, ...]
    doubts: tuple[Doubt, ...]
    floor: Floor
    break_even: BreakEven | None
    drafts: DraftRange | None
    limit: Seconds
    tried: int
    refused: int

    @property
    def best(self) -> Outcome:
        """The best that the engine as it is can do."""
        return self.ready[0].gain.outcome if self.ready else self.baseline

    @property
    def met(self) -> bool:
        """Whether the limit holds for the expected value."""
        return not self.limit or self.best.latency <= self.limit

    @property
    def met_surely(self) -> bool:
        """Whether it holds for the whole interval."""
        return not self.limit or self.best.latency_interval.high <= self.limit


# What settles a doubt, by how the figure's name begins.
_SETTLE = (
    ("host.", "profile a decode step: its length less the sum of its kernels and collectives"),
    ("kernels: routed_experts", "time the routed-expert kernels of this engine at this batch"),
    ("kernels: ", "time these kernels on this GPU: pciesim calibrate, kernel tables"),
    ("launch gap", "an nsys trace of one CUDA-graph step: pauses between kernels"),
    ("collective.", "'pciesim measure' and 'pciesim calibrate fit': two minutes on the box"),
    ("nccl.", "nccl-tests all_reduce_perf at 4 KiB to 1 MiB in a graph, imported by pciesim calibrate"),
    ("oneshot.", "time the kernel itself at 8 KiB and 512 KiB on this box"),
    ("latency.", "p2pmark or a flag ping-pong between the farthest GPUs"),
    ("share.", "p2pBandwidthLatencyTest between neighbours and across the root complex"),
    ("draft.", "time a draft pass: one iteration with 1 and with 3 drafts"),
    ("acceptance", "the engine's log of accepted tokens at your prompts"),
)


def doubts_of(gain: Gain, baseline: Outcome, count: int = 3) -> tuple[Doubt, ...]:
    """The figures whose intervals move the difference most."""
    mine, base = gain.outcome.responses, baseline.responses
    found: list[Doubt] = []
    for name in {**mine, **base}:
        known = mine.get(name) or base[name]
        effect = change_of(base.get(name), mine.get(name))
        if effect:
            found.append(Doubt(figure=name, effect=effect, evidence=known.evidence, settle=_how(name)))
    return tuple(sorted(found, key=lambda each: (-each.effect, each.figure))[:count])


def _how(name: str) -> str:
    return next((how for start, how in _SETTLE if name.startswith(start)), "measure it on this box")
