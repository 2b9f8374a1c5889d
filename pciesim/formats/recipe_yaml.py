"""Recipes: how a profile was made. Figures taken from a named source, figures to fit, and the runs to fit them to."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from pciesim.calibrate.fit import Free
from pciesim.calibrate.points import Point
from pciesim.calibrate.ranges import free_of
from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import Document, read_document
from pciesim.formats.points_csv import read_points
from pciesim.formats.profile_yaml import PARAMETERS, ParameterDocument, parse_parameter, to_parameter
from pciesim.profile import Evidence, Parameter, Profile

__all__ = ["FreeDocument", "ReadingsDocument", "RecipeDocument", "read_recipe"]


_OF_CODE: Final = (".base", ".step", "_extra")


class FreeDocument(Document):
    """A parameter to fit: a start and the physically possible range."""

    start: str | float
    least: str | float
    most: str | float

    def to_domain(self, name: str, where: str) -> Free:
        """In SI units."""
        start, least, most = (parse_parameter(name, each, where) for each in (self.start, self.least, self.most))
        return Free(start=start, least=least, most=most)


class ReadingsDocument(Document):
    """A run of ``pciesim measure`` whose load chains, flags and copies are parameters as they stand."""

    run: str
    topology: str


class RecipeDocument(Document):
    """A recipe file (schema ``pciesim/recipe/1``). What ``readings`` tell goes before what is ``given``.

    ``base`` is the shipped profile of the nearest box: what the recipe neither gives nor fits is borrowed from it. A
    parameter to fit may then be named alone: it starts at the base's figure, within its physical range. ``datasets``
    are the ones to fit to, by the start of their names (all where none is named); the others only check. ``collected``
    is the day on which the figures were measured, or taken from their sources.
    """

    schema_: Literal["pciesim/recipe/1"] = Field(alias="schema")
    name: str
    gpu: str
    description: str
    collected: date
    base: str = ""
    given: dict[str, ParameterDocument] = Field(default_factory=dict)
    fit: dict[str, FreeDocument | None]
    runs: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    fit_source: str
    steps: tuple[str, ...] = ()
    readings: ReadingsDocument | None = None
    iterations: tuple[str, ...] = ()

    def points(self, runs: Path) -> list[Point]:
        """What the runs measured; only rows marked fit, of the datasets named, are fitted to."""
        found = [point for name in self.runs for point in read_points(runs / name)]
        if not self.datasets:
            return found
        return [replace(point, fitted=point.fitted and point.dataset.startswith(self.datasets)) for point in found]

    def start_profile(self, where: str, base: Profile | None = None) -> Profile:
        """The profile before fitting: what is given, what is borrowed, and the starts of what is fitted."""
        parameters = dict(base.borrowed().parameters) if base else {}
        parameters |= {name: to_parameter(name, each, where) for name, each in self.given.items()}
        for name, free in self.free(where, base).items():
            parameters[name] = Parameter(
                value=free.start, low=free.least, high=free.most, evidence=Evidence.ASSUMED, source="start of the fit"
            )
        return Profile(name=self.name, gpu=self.gpu, description=self.description, parameters=tuple(parameters.items()))

    def free(self, where: str, base: Profile | None = None) -> dict[str, Free]:
        """What is to be fitted.

        Raises UnknownName for a parameter pciesim does not have, InputError where nothing says where to start.
        """
        found: dict[str, Free] = {}
        for name, each in self.fit.items():
            if name not in PARAMETERS:
                raise UnknownName("parameter", name, PARAMETERS, where=where)
            if each is not None:
                found[name] = each.to_domain(name, where)
            elif base is None or name not in base:
                raise InputError(f"fit.{name}: no start, least and most, and no base that has it", where=where)
            else:
                # What a kernel spends is of its code; rates are of the GPU and its links.
                believed = base.gpu == self.gpu or name.endswith(_OF_CODE)
                found |= free_of(base, (name,), believed=believed)
        return found


def read_recipe(path: Path) -> RecipeDocument:
    """A recipe from its file. Raises InputError on any fault."""
    return read_document(path, RecipeDocument)
