"""Every input that travels with pciesim can be read, and the schemas for editors accept it too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from pciesim.commands.schema import SCHEMAS, schema_text
from pciesim.formats import catalogue
from pciesim.formats.documents import read_document
from pciesim.formats.engine_yaml import engine_names, load_engine
from pciesim.formats.model import load_model
from pciesim.formats.profile_yaml import read_profile
from pciesim.formats.topology_overlay import OverlayDocument

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"topology": "topologies", "model": "models", "profile": "calibration/profiles"}
READERS: dict[str, Callable[[Path], Any]] = {
    "topology": lambda path: read_document(path, OverlayDocument),
    "model": load_model,
    "profile": read_profile,
}
YAML_INPUTS = [(kind, path) for kind, folder in FOLDERS.items() for path in sorted((ROOT / folder).glob("*.yaml"))]
every_input = pytest.mark.parametrize(("kind", "path"), YAML_INPUTS, ids=[path.name for _, path in YAML_INPUTS])


@every_input
def test_can_be_read(kind: str, path: Path) -> None:
    assert READERS[kind](path)


@every_input
def test_an_editor_agrees(kind: str, path: Path) -> None:
    """What the JSON Schema refuses would be underlined in the editor of whoever opens the sample."""
    document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    plain = json.loads(json.dumps(document, default=str))  # dates are text for JSON
    jsonschema.validate(plain, json.loads(schema_text(kind)), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(name)))


@pytest.mark.parametrize("name", engine_names())
def test_engines(name: str) -> None:
    assert load_engine(name)


def test_the_catalogue() -> None:
    assert all(catalogue.gpu_type(name).source for name in catalogue.gpu_names())
    assert all(catalogue.host_type(name) for name in catalogue.host_names())
    assert all(catalogue.switch_type(name) for name in catalogue.switch_names())
