"""One entry point for topologies: a file to a :class:`~pciesim.fabric.Fabric`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pciesim.errors import InputError
from pciesim.fabric import Fabric
from pciesim.formats.documents import read_text
from pciesim.formats.nccl_xml import is_nccl_xml, read_nccl_xml
from pciesim.formats.topology_box import resolve
from pciesim.formats.topology_build import build_fabric
from pciesim.formats.topology_infer import infer
from pciesim.formats.topology_overlay import OverlayDocument, read_overlay
from pciesim.formats.topology_smi import TopologyMatrix, parse_matrix
from pciesim.formats.topology_sources import Disagreement, Source, read_source, reconcile

__all__ = ["LoadedTopology", "assemble", "find_overlay", "load_fabric", "load_topology"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTopology:
    """A fabric with what it was made of: the matrix, the one overlay its sources make, what they disagree about."""

    fabric: Fabric
    matrix: TopologyMatrix
    overlay: OverlayDocument
    disagreements: tuple[Disagreement, ...]


def load_fabric(path: Path, overlay: Path | None = None) -> Fabric:
    """The fabric of a topology file: ``nvidia-smi topo -m`` text, or NCCL's topology XML.

    The overlay is the one given, else ``name.yaml`` beside the file where it exists. Raises InputError (file, line,
    column, what was found) where a file is missing, binary, empty, cut or contradicts itself.
    """
    return load_topology(path, overlay).fabric


def load_topology(path: Path, overlay: Path | None = None, others: Sequence[Path] = ()) -> LoadedTopology:
    """As :func:`load_fabric`, with further descriptions of the box (``topo -p2p``, ``-q``, lspci, NCCL XML).

    The overlay wins over them, and an earlier one over a later.
    """
    text = read_text(path)
    found = overlay if overlay is not None else find_overlay(path)
    sources: list[Source] = []
    if found is not None:
        sources.append(Source(name=found.name, overlay=read_overlay(found)))
    if is_nccl_xml(text):
        matrix, own = read_nccl_xml(text, source=str(path))
        sources.append(Source(name=path.name, overlay=own))
    else:
        matrix = parse_matrix(text, source=str(path))
    sources += [read_source(other, matrix) for other in others]
    document = OverlayDocument.empty()
    disagreements: tuple[Disagreement, ...] = ()
    if len(sources) == 1:  # nothing to reconcile, and errors then name the file's own keys
        document = sources[0].overlay
    elif sources:
        document, disagreements = reconcile(matrix, sources)
    return LoadedTopology(
        fabric=assemble(matrix, document, name=path.stem, overlay_source=str(found or path)),
        matrix=matrix,
        overlay=document,
        disagreements=disagreements,
    )


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
