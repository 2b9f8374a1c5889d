"""Configurations by names and files: loaded, changed by their strategies, and timed.

A configuration is (axis, value) pairs as a person types them. Some axes say what to load (``topo``, ``model``, ``tp``,
``batch``, ...), the others are strategies (:data:`pciesim.strategies.choice.AXES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pciesim.api import load_scenario, names_curve
from pciesim.compare.configuration import Configuration
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import Outcome, Refusal, outcome_of
from pciesim.compare.quick import quick_outcome
from pciesim.errors import CalibrationError, Infeasible, InputError, UnknownName
from pciesim.fabric import Fabric
from pciesim.formats.runs_csv import read_curve
from pciesim.model import ModelSpec
from pciesim.scenario import KernelClock, Scenario
from pciesim.schedule import EngineSpec
from pciesim.strategies.choice import AXES, Applied, apply_choices, check_choice
from pciesim.workload import Workload

__all__ = ["LOADED", "Loader", "check_axes", "evaluate", "parse_gpus", "parse_vary"]

LOADED: Final = ("topo", "overlay", "model", "engine", "profile", "gpus", "tp", "batch", "context")
"""Axes that say what to load; all other axes are strategies."""

_NUMBERS: Final = ("tp", "batch", "context")


def parse_vary(texts: Iterable[str], option: str = "--vary") -> dict[str, tuple[str, ...]]:
    """``['tp=4,8']`` -> {'tp': ('4', '8')}. Raises InputError for anything else, UnknownName for an unknown axis."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        axis, equals, values = text.partition("=")
        if not (axis and equals and values):
            raise InputError(f"{option} '{text}' is not AXIS=VALUE,VALUE; write it like '{option} tp=4,8'")
        if axis in found:
            raise InputError(f"{option} names {axis} twice")
        found[axis] = tuple(value.strip() for value in values.split(","))
    check_axes(found)
    return found


def check_axes(vary: Mapping[str, Sequence[str]]) -> None:
    """Raises UnknownName or InputError for an axis or a value that does not exist, before anything is loaded."""
    for axis, values in vary.items():
        if axis in _NUMBERS:
            for value in values:
                if not value.isdecimal() or int(value) < 1:
                    raise InputError(f"{axis}={value}: expected a whole number from 1 up")
        elif axis not in LOADED:
            if axis not in AXES:
                raise UnknownName("axis", axis, [*LOADED, *AXES])
            for value in values:
                if not (axis == "allreduce" and names_curve(value)):
                    check_choice(axis, value)


def parse_gpus(text: str) -> tuple[int, ...]:
    """``'0-3'`` or ``'0.1.4.5'`` -> GPU numbers. Raises InputError."""
    found: list[int] = []
    for part in text.replace(",", ".").split("."):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise InputError(f"gpus={text}: not a list of GPU numbers; write it like '0.1.2.3' or '0-3'")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


@dataclass(slots=True, kw_only=True)
class Loader:
    """Loads scenarios, each file once: configurations that name the same file share its value."""

    hypothetical: bool = False
    _loaded: dict[Configuration, Scenario] = field(default_factory=dict)
    _fabrics: dict[Fabric, Fabric] = field(default_factory=dict)
    _models: dict[str, ModelSpec] = field(default_factory=dict)
    _engines: dict[str, EngineSpec] = field(default_factory=dict)
    _clocks: dict[tuple[str, str, str], KernelClock] = field(default_factory=dict)

    def applied(self, configuration: Configuration) -> Applied:
        """The scenario of a configuration after its strategies. Raises InputError or Infeasible."""
        chosen = dict(configuration)
        loaded = tuple((axis, chosen[axis]) for axis in LOADED if axis in chosen and axis not in ("batch", "context"))
        if loaded not in self._loaded:
            self._loaded[loaded] = self._load(dict(loaded))
        base = self._loaded[loaded]
        workload = Workload(batch=int(chosen.get("batch", "1")), context=int(chosen.get("context", "1024")))
        rest = [(axis, value) for axis, value in configuration if axis not in LOADED]
        if "allreduce" in chosen and names_curve(chosen["allreduce"]):
            own = read_curve(Path(chosen["allreduce"]))
            base = replace(base, allreduce=own.title, own=own)
            rest.remove(("allreduce", chosen["allreduce"]))
        return apply_choices(replace(base, workload=workload), rest, hypothetical=self.hypothetical)

    def _load(self, chosen: Mapping[str, str]) -> Scenario:
        for axis in ("topo", "model"):
            if axis not in chosen:
                raise InputError(f"no {axis} is given")
        try:
            scenario = _loaded(chosen)
        except InputError as error:
            plain = {axis: value for axis, value in chosen.items() if axis not in ("tp", "gpus")}
            if plain == dict(chosen) or "gpus" in chosen:
                raise
            _loaded(plain)  # raises again where it is not the split that is wrong
            raise Infeasible(str(error)) from None
        fabric = self._fabrics.setdefault(scenario.fabric, scenario.fabric)
        clock = self._clocks.setdefault((scenario.gpu.key, scenario.engine.name, scenario.model.name), scenario.clock)
        return replace(
            scenario,
            fabric=fabric,
            clock=clock,
            model=self._models.setdefault(chosen["model"], scenario.model),
            engine=self._engines.setdefault(scenario.engine.name, scenario.engine),
        )


def _loaded(chosen: Mapping[str, str]) -> Scenario:
    scenario, _ = load_scenario(
        topo=chosen["topo"],
        model=chosen["model"],
        tp=int(chosen["tp"]) if "tp" in chosen else None,
        batch=1,
        context=0,  # both are replaced by the configuration's own
        gpus=parse_gpus(chosen["gpus"]) if "gpus" in chosen else None,
        engine=chosen.get("engine", "sglang"),
        allreduce="auto",
        profile=chosen.get("profile"),
        overlay=Path(chosen["overlay"]) if "overlay" in chosen else None,
        nccl=None,
    )
    return scenario


def evaluate(
    configurations: Iterable[Configuration],
    loader: Loader,
    memo: Memo,
    *,
    intervals: bool = True,
    progress: Callable[[], Any] | None = None,
) -> tuple[tuple[Outcome, ...], tuple[Refusal, ...]]:
    """Outcomes of the configurations that can run, and the reasons of those that cannot.

    Unreadable or unknown names are errors of the question and are raised.
    """
    outcomes: list[Outcome] = []
    refused: list[Refusal] = []
    for configuration in configurations:
        try:
            applied = loader.applied(configuration)
            time = outcome_of if intervals or memo.evaluator != "estimate" else quick_outcome
            outcomes.append(time(configuration, applied.scenario, memo, notes=applied.notes))
        except (Infeasible, CalibrationError) as error:
            refused.append(Refusal(configuration=configuration, reason=str(error)))
        if progress is not None:
            progress()
    return tuple(outcomes), tuple(refused)
