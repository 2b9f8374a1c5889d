"""Timing a collective: lowered and evaluated once per distinct question, kept in an explicit memo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pciesim.collectives.curve import lower_own
from pciesim.collectives.program import Program
from pciesim.collectives.select import lower
from pciesim.collectives.task import BackendCosts, Lowered, Task
from pciesim.errors import UnknownName
from pciesim.evaluate.estimate import estimate
from pciesim.evaluate.simulate import simulate
from pciesim.fabric import Fabric
from pciesim.profile import Profile
from pciesim.scenario import OwnKernel
from pciesim.schedule import CollectiveKind
from pciesim.units import Seconds

__all__ = ["EVALUATORS", "CollectiveTimer", "Timed"]


def _simulated(program: Program) -> Seconds:
    return simulate(program).latency


EVALUATORS: Final[Mapping[str, Callable[[Program], Seconds]]] = MappingProxyType(
    {"simulate": _simulated, "estimate": estimate}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A lowered collective and its latency when all ranks arrive together and nothing else uses the links.

    ``name`` is the algorithm it was asked for by. ``in_step`` is the part of the latency that a call costs only among
    the other kernels of a step: zero when it follows itself, as in a benchmark of collectives.
    """

    name: str
    lowered: Lowered
    latency: Seconds
    in_step: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimer:
    """Times collectives of one group of GPUs on one fabric under one profile.

    The memo is this object's: its key is the question itself. ``evaluator`` is ``simulate`` or ``estimate``. ``own``
    is a measured all-reduce that serves under its title.
    """

    fabric: Fabric
    gpus: tuple[str, ...]
    compute_capability: int
    profile: Profile
    evaluator: str = "simulate"
    own: OwnKernel | None = None
    _costs: list[BackendCosts] = field(init=False, compare=False, repr=False, default_factory=list)
    _neighbours: dict[Profile, CollectiveTimer] = field(init=False, compare=False, repr=False, default_factory=dict)
    _memo: dict[tuple[str, CollectiveKind, int], Timed] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )
    _groups: dict[tuple[str, ...], CollectiveTimer] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.evaluator not in EVALUATORS:
            raise UnknownName("evaluator", self.evaluator, EVALUATORS)
        self._costs.append(BackendCosts.of(self.profile))

    @property
    def costs(self) -> BackendCosts:
        """The communication parameters of the profile."""
        return self._costs[0]

    def time(self, algorithm: str, kind: CollectiveKind, nbytes: int) -> Timed:
        """The collective by that algorithm. Raises UnknownName or Infeasible as ``collectives.select.lower`` does."""
        key = (algorithm, kind, nbytes)
        if key not in self._memo:
            task = Task(
                kind=kind,
                nbytes=nbytes,
                fabric=self.fabric,
                gpus=self.gpus,
                compute_capability=self.compute_capability,
                costs=self.costs,
            )
            own = self.own
            lowered = lower_own(own, task) if own and algorithm == own.title else lower(algorithm, task)
            self._memo[key] = Timed(name=algorithm, lowered=lowered, latency=self.run(lowered.program))
        return self._memo[key]

    def run(self, program: Program) -> Seconds:
        """The latency of a program of this group by the timer's evaluator."""
        return EVALUATORS[self.evaluator](program) * self.costs.unmeasured

    def among(self, gpus: tuple[str, ...]) -> CollectiveTimer:
        """A timer of another group on the same fabric; it is kept, so that its memo is too."""
        if gpus == self.gpus:
            return self
        if gpus not in self._groups:
            self._groups[gpus] = replace(self, gpus=gpus)
        return self._groups[gpus]

    def under(self, profile: Profile) -> CollectiveTimer:
        """A timer of the same group by the closed form under another profile, kept with this one."""
        if profile not in self._neighbours:
            self._neighbours[profile] = CollectiveTimer(
                fabric=self.fabric,
                gpus=self.gpus,
                compute_capability=self.compute_capability,
                profile=profile,
                evaluator="estimate",
                own=self.own,
            )
        return self._neighbours[profile]

    def on(self, fabric: Fabric) -> CollectiveTimer:
        """A timer of the same group on another fabric with the same device names."""
        return replace(self, fabric=fabric)
