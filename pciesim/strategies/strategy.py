"""What a strategy is: a pure change of a scenario, and everything a person must know before trying it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pciesim.scenario import Scenario

__all__ = ["Strategy", "Switch", "no_obstacle", "no_switch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """How one engine turns a strategy on: command-line flags and environment variables, as read in its source.

    ``engine`` is a catalogue name (``sglang``, ``vllm``), ``nccl`` for variables every engine passes on, or ``box`` for
    what is done to the machine itself. ``since`` and ``until`` are the first and the last version known to have it
    (empty: no bound is known).
    """

    engine: str
    since: str = ""
    until: str = ""
    flags: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    note: str = ""

    def serves(self, engine: str, version: str) -> bool:
        """Whether this version of the engine has it."""
        if self.engine in ("nccl", "box"):
            return True
        return (
            self.engine == engine
            and (not self.since or _number(version) >= _number(self.since))
            and (not self.until or _number(version) <= _number(self.until))
        )

    @property
    def text(self) -> str:
        """As it would be typed, or what is to be done."""
        typed = [*(f"{key}={value}" for key, value in self.environment), *self.flags]
        return " ".join(typed) or self.note


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def no_obstacle(_scenario: Scenario, _argument: str) -> str:
    """Nothing stands in the way."""
    return ""


def no_switch(_argument: str) -> tuple[Switch, ...]:
    """No released engine has it."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A change of a scenario.

    ``axis`` is the option it belongs to and ``name`` its value there; ``argument`` says what follows a colon (empty:
    nothing may). ``apply`` holds no speed-up factor: it changes what is wired, issued or asked, and the evaluators find
    out what that is worth; it raises InputError for a bad argument. ``obstacle`` says why it cannot run on a scenario
    (empty: it can). ``number``, ``size`` and ``criticality`` say what becomes of the transfers. ``model_change`` marks
    what gives other outputs than the model as it was trained. ``note`` is shown with every result.
    """

    axis: str
    name: str
    sentence: str
    source: str
    apply: Callable[[Scenario, str], Scenario]
    number: str
    size: str
    criticality: str
    risk: str
    hurts: str
    argument: str = ""
    obstacle: Callable[[Scenario, str], str] = no_obstacle
    turn_on: Callable[[str], tuple[Switch, ...]] = no_switch
    model_change: bool = False
    note: str = ""
