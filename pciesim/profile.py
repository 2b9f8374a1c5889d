"""Calibrated parameters: value, interval, evidence, source.

A :class:`Profile` is a table from a dotted name to a :class:`Parameter`. The rooms that need parameters read them once
into a small frozen view of plain floats (``physics.RouteCosts``, ``collectives.costs.BackendCosts``), so a name is
spelled in one place only. How a parameter was obtained is not known here; see ``calibrate`` and ``calibration/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from pciesim.errors import CalibrationError

__all__ = ["UNMEASURED", "Evidence", "Interval", "Parameter", "Profile"]

UNMEASURED: Final = "collective.unmeasured"
"""The parameter of a profile for a box that nobody has measured: a factor on every collective's time."""


class Evidence(StrEnum):
    """Where a figure comes from, from strongest to weakest."""

    MEASURED = "measured"
    FITTED = "fitted"
    DATASHEET = "datasheet"
    PUBLISHED = "published"
    BORROWED = "borrowed"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with the range that holds it with about 90 % confidence. Same unit throughout."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval {self.low} .. {self.value} .. {self.high} is not ordered")

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A value without uncertainty (a count, a size)."""
        return cls(value=value, low=value, high=value)

    def scaled(self, factor: float) -> Interval:
        """Value and bounds times a factor >= 0."""
        return Interval(value=self.value * factor, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One calibrated figure in SI units."""

    value: float
    low: float
    high: float
    evidence: Evidence
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named set of parameters for a kind of box.

    ``gpu`` is the catalogue key of the GPU it was calibrated on. ``parameters`` is sorted by name, so equal profiles
    are equal values.
    """

    name: str
    gpu: str
    description: str
    parameters: tuple[tuple[str, Parameter], ...]
    _table: Mapping[str, Parameter] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple(sorted(self.parameters)))
        object.__setattr__(self, "_table", dict(self.parameters))

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name. Raises CalibrationError when this profile lacks it."""
        try:
            return self._table[name]
        except KeyError:
            raise CalibrationError(f"profile '{self.name}' has no parameter '{name}'") from None

    def value(self, name: str) -> float:
        """The value of a parameter. Raises CalibrationError when this profile lacks it."""
        return self.parameter(name).value

    def with_value(self, name: str, value: float) -> Profile:
        """The same profile with one value moved (its interval collapses): for what-ifs and error propagation."""
        moved = replace(self.parameter(name), value=value, low=value, high=value)
        return replace(self, parameters=tuple((n, moved if n == name else p) for n, p in self.parameters))

    def borrowed(self) -> Profile:
        """The same figures for another box: what was measured or fitted here is borrowed there, and says from where."""
        own = (Evidence.MEASURED, Evidence.FITTED)
        return replace(
            self,
            parameters=tuple(
                (name, replace(each, evidence=Evidence.BORROWED, source=f"profile {self.name}: {each.source}"))
                if each.evidence in own
                else (name, each)
                for name, each in self.parameters
            ),
        )

    def with_default(self, name: str, parameter: Parameter) -> Profile:
        """The same profile, or one that has this parameter where it had none of the name."""
        return self if name in self else replace(self, parameters=(*self.parameters, (name, parameter)))
