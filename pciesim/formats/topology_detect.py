"""The box at hand: runs the tools that describe it and makes one topology of what they say."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pciesim.errors import InputError
from pciesim.formats.catalogue import host_by_cpuid, host_type
from pciesim.formats.lspci import read_lspci
from pciesim.formats.smi_p2p import read_p2p
from pciesim.formats.smi_query import read_query
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import parse_matrix
from pciesim.formats.topology_sources import Disagreement, Source, reconcile

__all__ = ["Detected", "Runner", "detect", "run_tool"]

Runner: TypeAlias = Callable[[Sequence[str]], str]
"""Runs a command and gives its output; raises InputError where the tool is missing or fails."""

_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What was found: the matrix as printed, the overlay, what the tools disagree about, what they remarked."""

    text: str
    overlay: OverlayDocument
    disagreements: tuple[Disagreement, ...]
    notes: tuple[str, ...]


def run_tool(command: Sequence[str]) -> str:
    """A :data:`Runner` on this machine."""
    name = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except FileNotFoundError:
        raise InputError(f"'{command[0]}' is not installed here") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"'{name}' failed: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(f"'{name}' failed: {said[0] if said else f'exit code {done.returncode}'}")
    return done.stdout


def detect(run: Runner, busy: Callable[[], AbstractContextManager[None]], *, name: str) -> Detected:
    """Describes this box. ``busy`` keeps the links under load while their speed is read (idle GPUs train down).

    Raises InputError where nvidia-smi is missing; the other tools may be.
    """
    text = run(["nvidia-smi", "topo", "-m"])
    matrix = parse_matrix(text, source="nvidia-smi topo -m")
    gpus = len(matrix.gpus)
    notes: list[str] = []
    sources = [Source(name="pciesim", overlay=OverlayDocument.model_validate({"schema": _SCHEMA, "name": name}))]

    def add(tool: str, read: Callable[[], OverlayDocument]) -> None:
        try:
            overlay = read()
        except InputError as error:
            notes.append(f"{tool}: {error}")
            return
        if overlay.notes:
            notes.append(f"{tool}: {overlay.notes}")
        sources.append(Source(name=tool, overlay=overlay))

    with busy():
        add("nvidia-smi -q", lambda: read_query(run(["nvidia-smi", "-q"]), gpus, source="nvidia-smi -q"))
        add("lspci -vvv", lambda: read_lspci(run(["lspci", "-D", "-vvv"]), gpus, source="lspci -vvv"))
    if gpus > 1:
        command = ["nvidia-smi", "topo", "-p2p", "r"]
        add("nvidia-smi topo -p2p r", lambda: read_p2p(run(command), gpus, source="nvidia-smi topo -p2p r"))
    add("lscpu", lambda: _read_lscpu(run(["lscpu"])))
    overlay, disagreements = reconcile(matrix, sources)
    return Detected(text=text, overlay=overlay, disagreements=disagreements, notes=tuple(notes))


_SCHEMA: Final = "pciesim/topology/1"


def _read_lscpu(text: str) -> OverlayDocument:
    """CPU, sockets; a hypervisor is remarked, because it hides the wiring."""
    host: dict[str, Any] = {}
    notes: list[str] = []
    cpu = _cpu(text)
    if cpu is not None:
        host["cpu"] = cpu
    else:
        notes.append("the catalogue lacks this CPU")
    sockets = re.search(r"^Socket\(s\):\s*([1-8])$", text, re.MULTILINE)
    if sockets is not None:
        host["sockets"] = int(sockets[1])
    hypervisor = re.search(r"^Hypervisor vendor:\s*(.+)$", text, re.MULTILINE)
    if hypervisor is not None:
        notes.append(f"a virtual machine ({hypervisor[1].strip()}): switches and sockets may be hidden")
    return OverlayDocument.model_validate({"schema": _SCHEMA, "notes": "; ".join(notes), "host": host})


def _cpu(text: str) -> str | None:
    """The CPU by name, else (virtual machines hide it) the family by its CPUID numbers; None where neither is known."""

    def value(key: str) -> str:
        match = re.search(rf"^{re.escape(key)}:\s*(.+?)\s*$", text, re.MULTILINE)
        return match[1] if match else ""

    with suppress(InputError):
        host_type(value("Model name"))
        return value("Model name")
    vendor = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(value("Vendor ID"), "")
    family, model = value("CPU family"), value("Model")
    if family.isdecimal() and model.isdecimal() and len(family + model) < 9:
        found = host_by_cpuid(vendor, int(family), int(model))
        return found.key if found is not None else None
    return None
