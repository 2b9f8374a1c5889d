"""Recipes: how a profile was made. Figures taken from a named source, figures to fit, and the runs to fit them to."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from pciesim.calibrate.fit import Free
from pciesim.errors import UnknownName
from pciesim.formats.documents import Document, read_document
from pciesim.formats.profile_yaml import PARAMETERS, ParameterDocument, parse_parameter, to_parameter
from pciesim.profile import Evidence, Parameter, Profile

__all__ = ["FreeDocument", "ReadingsDocument", "RecipeDocument", "read_recipe"]


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
    """A recipe file (schema ``pciesim/recipe/1``). What ``readings`` tell goes before what is ``given``."""

    schema_: Literal["pciesim/recipe/1"] = Field(alias="schema")
    name: str
    gpu: str
    description: str
    given: dict[str, ParameterDocument]
    fit: dict[str, FreeDocument]
    runs: tuple[str, ...]
    fit_source: str
    steps: tuple[str, ...] = ()
    readings: ReadingsDocument | None = None
    iterations: tuple[str, ...] = ()

    def start_profile(self, where: str) -> Profile:
        """The profile before fitting: what is given, and the starts of what is not."""
        parameters = {name: to_parameter(name, each, where) for name, each in self.given.items()}
        for name, free in self.free(where).items():
            parameters[name] = Parameter(
                value=free.start, low=free.least, high=free.most, evidence=Evidence.ASSUMED, source="start of the fit"
            )
        return Profile(name=self.name, gpu=self.gpu, description=self.description, parameters=tuple(parameters.items()))

    def free(self, where: str) -> dict[str, Free]:
        """What is to be fitted. Raises UnknownName for a parameter pciesim does not have."""
        for name in self.fit:
            if name not in PARAMETERS:
                raise UnknownName("parameter", name, PARAMETERS, where=where)
        return {name: each.to_domain(name, where) for name, each in self.fit.items()}


def read_recipe(path: Path) -> RecipeDocument:
    """A recipe from its file. Raises InputError on any fault."""
    return read_document(path, RecipeDocument)
