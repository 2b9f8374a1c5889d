"""One entry point for topologies: a file to a :class:`~pciesim.fabric.Fabric`."""

from __future__ import annotations

from pathlib import Path

from pciesim.errors import InputError
from pciesim.fabric import Fabric
from pciesim.formats.documents import read_text
from pciesim.formats.topology_box import resolve
from pciesim.formats.topology_build import build_fabric
from pciesim.formats.topology_infer import infer
from pciesim.formats.topology_overlay import OverlayDocument, read_overlay
from pciesim.formats.topology_smi import TopologyMatrix, parse_matrix

__all__ = ["assemble", "find_overlay", "load_fabric"]


def load_fabric(path: Path, overlay: Path | None = None) -> Fabric:
    """The fabric of a topology file (``nvidia-smi topo -m`` text).

    The overlay is the one given, else ``name.yaml`` beside ``name.txt`` where it exists. Raises InputError (file, line,
    column, what was found) where a file is missing, binary, empty, cut or contradicts itself.
    """
    matrix = parse_matrix(read_text(path), source=str(path))
    found = overlay if overlay is not None else find_overlay(path)
    document = read_overlay(found) if found is not None else OverlayDocument.empty()
    return assemble(matrix, document, name=path.stem, overlay_source=str(found or ""))


def find_overlay(path: Path) -> Path | None:
    """``name.yaml`` (or ``.yml``) beside ``name.txt``, None where there is none."""
    if path.suffix in (".yaml", ".yml"):
        raise InputError("is an overlay; give the topology text, the overlay beside it is found", where=str(path))
    beside = (path.with_suffix(suffix) for suffix in (".yaml", ".yml"))
    return next((each for each in beside if each.is_file()), None)


def assemble(matrix: TopologyMatrix, overlay: OverlayDocument, *, name: str, overlay_source: str = "") -> Fabric:
    """Matrix and overlay to a fabric, without files."""
    plan = infer(matrix, overlay, source=overlay_source)
    return build_fabric(resolve(matrix, overlay, plan, source=overlay_source), name=name)
