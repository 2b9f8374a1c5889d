"""What configurations share: timers of equal groups on equal fabrics under equal profiles, and their collectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pciesim.collectives.program import Program
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.scenario import Scenario
from pciesim.schedule import Schedule
from pciesim.step import schedule_of, timer_of
from pciesim.uncertainty import Shift, shifts_of

__all__ = ["Memo"]


@dataclass(slots=True, kw_only=True)
class Memo:
    """Kept as long as a comparison or a sweep runs. ``evaluator`` is ``simulate`` or ``estimate``."""

    evaluator: str = "estimate"
    _timers: dict[object, CollectiveTimer] = field(default_factory=dict)
    _schedules: dict[object, tuple[Scenario, Schedule]] = field(default_factory=dict)
    _prepared: dict[tuple[int, int], Any] = field(default_factory=dict)
    _traversals: dict[int, tuple[Program, int]] = field(default_factory=dict)
    _shifts: dict[int, tuple[CollectiveTimer, tuple[Shift, ...]]] = field(default_factory=dict)

    def timer(self, scenario: Scenario) -> CollectiveTimer:
        """The timer of a scenario's group."""
        key = (scenario.fabric, scenario.gpus, scenario.gpu.compute_capability, scenario.profile, scenario.own)
        if key not in self._timers:
            self._timers[key] = timer_of(scenario, self.evaluator)
        return self._timers[key]

    def schedule(self, scenario: Scenario) -> Schedule:
        """The ops of a scenario's step. Models and engines are told apart by identity: load each once."""
        key = (
            id(scenario.model), id(scenario.engine), scenario.workload, scenario.parallelism, scenario.speculation,
            scenario.transforms,
        )  # fmt: skip
        if key not in self._schedules:
            self._schedules[key] = (scenario, schedule_of(scenario))  # keeps the objects whose ids are in the key
        return self._schedules[key][1]

    def prepared(self, scenario: Scenario, prepare: Callable[[Schedule], Any]) -> Any:
        """What ``prepare`` makes of a scenario's schedule, made once."""
        schedule = self.schedule(scenario)
        key = (id(schedule), id(prepare))  # schedules live as long as this memo
        if key not in self._prepared:
            self._prepared[key] = prepare(schedule)
        return self._prepared[key]

    def traversals(self, program: Program) -> int:
        """Traversals of a program, counted once."""
        key = id(program)
        if key not in self._traversals:
            self._traversals[key] = (program, program.traversals)
        return self._traversals[key][1]

    def shifts(self, timer: CollectiveTimer) -> tuple[CollectiveTimer, tuple[Shift, ...]]:
        """The closed-form timers with one parameter moved each."""
        key = id(timer)  # timers live as long as this memo
        if key not in self._shifts:
            self._shifts[key] = shifts_of(timer)
        return self._shifts[key]
