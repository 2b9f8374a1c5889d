"""Other descriptions of the same box, and how they are made one.

Every source becomes a partial overlay, so one rule serves all: what an earlier source states wins, and where a later
one says otherwise the disagreement is kept for the owner to see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.formats.lspci import is_lspci, is_lspci_tree, read_lspci, read_lspci_tree
from pciesim.formats.nccl_xml import is_nccl_xml, read_nccl_xml
from pciesim.formats.smi_p2p import is_p2p, read_p2p
from pciesim.formats.smi_query import is_query, read_query
from pciesim.formats.topology_distance import Level, measure
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix

__all__ = ["Disagreement", "Source", "read_source", "reconcile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A partial overlay and where it is from."""

    name: str
    overlay: OverlayDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One thing that sources state differently; the first statement is the one that is used."""

    subject: str
    statements: tuple[tuple[str, str], ...]  # (source, value)

    def __str__(self) -> str:
        said = ", ".join(f"{value} ({source})" for source, value in self.statements)
        return f"{self.subject}: {said}; the first is used"


def _from_xml(text: str, gpus: int, *, source: str) -> OverlayDocument:
    matrix, overlay = read_nccl_xml(text, source=source)
    if len(matrix.gpus) != gpus:
        raise InputError(f"has {len(matrix.gpus)} GPUs, the topology has {gpus}", where=source)
    return overlay


_READERS: Final[tuple[tuple[str, Callable[[str], bool], Callable[..., OverlayDocument]], ...]] = (
    ("NCCL topology XML", is_nccl_xml, _from_xml),
    ("nvidia-smi topo -p2p", is_p2p, read_p2p),
    ("nvidia-smi -q", is_query, read_query),
    ("lspci -vvv", is_lspci, read_lspci),
    ("lspci -tv", is_lspci_tree, read_lspci_tree),
)


def read_source(path: Path, matrix: TopologyMatrix) -> Source:
    """A further description of a matrix's box, recognised by its content. Raises InputError."""
    text = read_text(path)
    for name, fits, read in _READERS:
        if fits(text):
            return Source(name=f"{name}, {path.name}", overlay=read(text, len(matrix.gpus), source=str(path)))
    valid = ", ".join(name for name, _, _ in _READERS)
    raise InputError(f"is none of {valid}", where=str(path))


def reconcile(matrix: TopologyMatrix, sources: Sequence[Source]) -> tuple[OverlayDocument, tuple[Disagreement, ...]]:
    """One overlay from several, the first to state something winning, and what they disagree about."""
    stated = [(source.name, _per_gpu(source.overlay, len(matrix.gpus))) for source in sources]
    found: list[Disagreement] = []
    merged = _merge("", stated, found)
    found += _against_cells(matrix, sources)
    found += _below_one_root(merged)
    merged["schema"] = "pciesim/topology/1"
    return OverlayDocument.model_validate(merged), tuple(found)


def _per_gpu(overlay: OverlayDocument, gpus: int) -> dict[str, Any]:
    """What a source states, with what it says of all GPUs said of each: so that sources can be compared."""
    data = overlay.model_dump(by_alias=True, exclude_unset=True, mode="python")
    common = {key: value for key, value in data.pop("link", {}).items() if value is not None}
    if (model := data.pop("gpu", None)) is not None:
        common["model"] = model
    own = data.pop("gpus", {})
    data["gpus"] = {gpu: common | {k: v for k, v in own.get(gpu, {}).items() if v is not None} for gpu in range(gpus)}
    data.pop("schema", None)
    if "root_complexes" in data:
        data["root_complexes"] = [_by_gpus(each, overlay) for each in data["root_complexes"]]
    return _in_units(data)


def _by_gpus(root_complex: dict[str, Any], overlay: OverlayDocument) -> dict[str, Any]:
    """A root complex with the GPUs behind the switches it holds listed as well."""
    below = {gpu for switch in overlay.switches or () if switch.name in root_complex.get("switches", ())
             for gpu in switch.gpus}  # fmt: skip
    return root_complex | {"gpus": sorted({*root_complex.get("gpus", ()), *below})}


def _in_units(data: dict[str, Any]) -> dict[str, Any]:
    """Quantities with their unit again, as the document wants them."""
    roots = (*data.get("root_complexes", ()), *data.get("quadrants", ()))
    for holder in (data.get("host", {}), data.get("host", {}).get("socket_link", {}), *roots):
        for key in ("bandwidth", "memory_bandwidth"):
            if holder.get(key) is not None:
                holder[key] = f"{holder[key]!r} B/s"
    if data.get("p2p", {}).get("bar1") is not None:
        data["p2p"]["bar1"] = f"{data['p2p']['bar1']!r} B"
    return data


_SILENT: Final = ("notes", "name", "label")  # words of the writer, not facts of the box


def _merge(subject: str, stated: Sequence[tuple[str, dict[str, Any]]], found: list[Disagreement]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    keys = list(dict.fromkeys(key for _, data in stated for key in data))
    for key in keys:
        values = [(name, data[key]) for name, data in stated if data.get(key) is not None]
        if not values:
            continue
        where = f"{subject}.{key}" if subject else str(key)
        first = values[0][1]
        if isinstance(first, dict):
            merged[key] = _merge(where, values, found)
            continue
        merged[key] = first
        shown = [(name, _shown(key, value)) for name, value in values]
        if key not in _SILENT and any(text != shown[0][1] for _, text in shown):
            found.append(Disagreement(subject=where, statements=tuple(shown)))
    return merged


def _shown(key: str, value: Any) -> str:
    """A value for comparison and print: switches and root complexes by the GPUs they hold, whatever their names."""
    if key in ("switches", "root_complexes"):
        return " + ".join(sorted(str(list(holder["gpus"])) for holder in value if holder.get("gpus"))) or "none"
    return str(value)


def _against_cells(matrix: TopologyMatrix, sources: Sequence[Source]) -> list[Disagreement]:
    """Switches and root complexes that a source states, against PIX, PHB and NODE of the matrix."""
    distances = measure(matrix)
    printed = [pair for pair in combinations(range(len(matrix.gpus)), 2) if pair not in distances.hidden]
    found = []
    for source in sources:
        for one, other in printed:
            said = _contradicts(source.overlay, one, other, distances.of(one, other))
            if said:
                statements = ((source.name, said), ("the matrix", matrix.cells[one][other]))
                found.append(Disagreement(subject=f"{matrix.gpus[one]}-{matrix.gpus[other]}", statements=statements))
    return found


def _below_one_root(merged: dict[str, Any]) -> list[Disagreement]:
    """Takes GPUs out of root complexes where another holds the switch they are behind: switches and root complexes may
    come from sources that see the bridges differently."""
    above = {switch["name"]: switch.get("behind") for switch in merged.get("switches", ())}
    holders = {gpu: switch["name"] for switch in merged.get("switches", ()) for gpu in switch.get("gpus", ())}
    owners: dict[str, str] = {}
    found = []
    for entry in merged.get("root_complexes", ()):
        kept = []
        for gpu in entry["gpus"]:
            top = holders.get(gpu)
            while top is not None and above[top] is not None:
                top = above[top]
            owner = entry["name"] if top is None else owners.setdefault(top, entry["name"])
            if owner == entry["name"]:
                kept.append(gpu)
                continue
            statements = (("by its switch", owner), ("as listed", entry["name"]))
            found.append(Disagreement(subject=f"root complex of GPU{gpu}", statements=statements))
        entry["gpus"] = kept
    return found


def _contradicts(overlay: OverlayDocument, one: int, other: int, level: Level) -> str:
    """What an overlay says of two GPUs where it is not what was printed, empty where it is."""
    if overlay.switches is not None and level is not Level.PXB:
        holder = {gpu: switch for switch in overlay.switches for gpu in switch.gpus}
        together = one in holder and other in holder and holder[one].name == holder[other].name
        chips = {holder[gpu].chip for gpu in (one, other) if gpu in holder}
        if together != (level is Level.PIX) and not (len(chips) == 1 and chips != {""}):
            return "one switch" if together else "different switches"
    if overlay.root_complexes and level in (Level.PHB, Level.NODE):
        roots = [_by_gpus({"name": each.name, "gpus": each.gpus, "switches": each.switches}, overlay)
                 for each in overlay.root_complexes]  # fmt: skip
        at = {gpu: each["name"] for each in roots for gpu in each["gpus"]}
        if one in at and other in at and (at[one] == at[other]) != (level is Level.PHB):
            return "one root complex" if at[one] == at[other] else "different root complexes"
    return ""
