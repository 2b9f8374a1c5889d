"""``pciesim schema``: the JSON Schema of a file that pciesim reads or writes, for editors and for tools."""

from __future__ import annotations

import importlib
import json
from importlib import resources
from typing import Annotated, Final

import typer

from pciesim.errors import UnknownName

__all__ = ["SCHEMAS", "app", "schema_text"]

# A file in pciesim/schemas for what is written, a document class for what is read.
SCHEMAS: Final = {
    "prediction": "prediction.schema.json",
    "flows": "flows.schema.json",
    "collective": "collective.schema.json",
    "topology": "pciesim.formats.topology_overlay:OverlayDocument",
    "model": "pciesim.formats.model_yaml:ModelDocument",
    "profile": "pciesim.formats.profile_yaml:ProfileDocument",
    "engine": "pciesim.formats.engine_yaml:EngineDocument",
}

app = typer.Typer(rich_markup_mode=None, add_completion=False)


def schema_text(name: str) -> str:
    """The JSON Schema of that name as text. Raises UnknownName."""
    try:
        place = SCHEMAS[name]
    except KeyError:
        raise UnknownName("schema", name, SCHEMAS) from None
    module, colon, document = place.partition(":")
    if not colon:
        return (resources.files("pciesim") / "schemas" / place).read_text(encoding="utf-8").rstrip()
    schema = getattr(importlib.import_module(module), document).model_json_schema()
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(dialect | schema, indent=2, ensure_ascii=False)


@app.command(epilog="Example:  pciesim schema topology > topology.schema.json")
def schema(name: Annotated[str, typer.Argument(help=f"One of {', '.join(SCHEMAS)}.")]) -> None:
    """Print the JSON Schema of a file format."""
    typer.echo(schema_text(name))
