"""Choices as text (``allreduce=oneshot-pull``, ``dp=2``, ``nccl=p2p-level:SYS+graph``) applied to a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pciesim.collectives.select import ALGORITHMS
from pciesim.errors import Infeasible, InputError, UnknownName
from pciesim.scenario import Scenario
from pciesim.strategies import STRATEGIES
from pciesim.strategies.allreduce import chooses
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["AXES", "Applied", "apply_choices", "check_choice", "chosen", "switches"]

_NEUTRAL: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "allreduce": ("auto",), "nccl": ("default",), "dp": ("1",), "pp": ("1",), "ep": ("1",), "attention-dp": ("1",),
    "dcp": ("1",), "a2a": ("off",), "wire": ("bf16",),
})  # fmt: skip

AXES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        axis: (*_NEUTRAL.get(axis, ("none",)), *(name for other, name in STRATEGIES if other == axis))
        for axis in dict.fromkeys(axis for axis, _ in STRATEGIES)
    }
)
"""Every axis a strategy belongs to, in the order of application, with its values; the first changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A scenario after its strategies. ``notes`` say what is hypothetical and what makes another model of it."""

    scenario: Scenario
    used: tuple[tuple[Strategy, str], ...]
    notes: tuple[str, ...]


def chosen(axis: str, value: str) -> tuple[tuple[Strategy, str], ...]:
    """The strategies (with their arguments) that a value of an axis stands for; none where it changes nothing.

    Values may be joined by ``+``. An axis of one strategy takes its argument directly: ``dp=2``. Raises UnknownName.
    """
    if axis not in AXES:
        raise UnknownName("axis", axis, AXES)
    found: list[tuple[Strategy, str]] = []
    for part in value.split("+"):
        if part in _NEUTRAL.get(axis, ()) or part in ("none", ""):
            continue
        found.append(_one(axis, part))
    return tuple(found)


def _one(axis: str, text: str) -> tuple[Strategy, str]:
    own = [each for (other, _), each in STRATEGIES.items() if other == axis]
    name, colon, argument = text.partition(":")
    strategy = STRATEGIES.get((axis, name))
    if strategy is None and axis == "allreduce" and text in ALGORITHMS:
        return _from_catalogue(text), ""
    if strategy is None and len(own) == 1 and own[0].argument:
        strategy, argument = own[0], text
    if strategy is None:
        more = ALGORITHMS if axis == "allreduce" else ()
        raise UnknownName(f"value of {axis}", text, {*AXES[axis], *more})
    if colon and strategy.name == name and not strategy.argument:
        raise InputError(f"{axis}={text}: '{name}' takes nothing after a colon")
    if strategy.argument and not argument:
        raise InputError(f"{axis}={text}: '{name}' needs {strategy.argument} after a colon")
    return strategy, argument


def _from_catalogue(name: str) -> Strategy:
    """An algorithm of the catalogue without a strategy of its own."""
    entry = ALGORITHMS[name]
    return Strategy(
        axis="allreduce",
        name=name,
        sentence=entry.about,
        source=entry.source,
        apply=chooses(name),
        number="see pciesim collective",
        size="see pciesim collective",
        criticality="exposed",
        risk="whether an engine has it is not known",
        hurts="see pciesim collective",
    )


def check_choice(axis: str, value: str) -> None:
    """Raises UnknownName or InputError for what cannot be a choice, before anything is calculated."""
    chosen(axis, value)


def apply_choices(scenario: Scenario, choices: Iterable[tuple[str, str]], *, hypothetical: bool = False) -> Applied:
    """Applies strategies in the order of the table, whatever the order they are given in.

    Raises Infeasible with the reason where one cannot run; with ``hypothetical`` it is applied all the same, and noted.
    """
    order = list(AXES)
    wanted = sorted(choices, key=lambda each: order.index(each[0]) if each[0] in AXES else len(order))
    used: list[tuple[Strategy, str]] = []
    notes: list[str] = []
    for axis, value in wanted:
        for strategy, argument in chosen(axis, value):
            obstacle = strategy.obstacle(scenario, argument)
            if obstacle and not hypothetical:
                raise Infeasible(f"{axis}={value}: {obstacle}")
            if obstacle:
                notes.append(f"hypothetical, {axis}={value}: {obstacle}")
            if strategy.model_change:
                notes.append(f"changes the model, {axis}={value}: {strategy.risk}")
            if strategy.note:
                notes.append(f"{axis}={strategy.name}: {strategy.note}")
            scenario = strategy.apply(scenario, argument)
            used.append((strategy, argument))
    return Applied(scenario=scenario, used=tuple(used), notes=tuple(notes))


def switches(
    used: Iterable[tuple[Strategy, str]], engine: str, version: str
) -> tuple[tuple[Strategy, tuple[Switch, ...], tuple[Switch, ...]], ...]:
    """For every strategy: the switches that this version of the engine has, and those that other versions have."""
    found = []
    for strategy, argument in used:
        all_of_them = strategy.turn_on(argument)
        here = tuple(each for each in all_of_them if each.serves(engine, version))
        found.append((strategy, here, tuple(each for each in all_of_them if each not in here)))
    return tuple(found)
