"""What the machine says of itself: wiring, link state, versions. Serial numbers and host names are left out."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pciesim.units import Seconds

__all__ = ["gpu_indexes", "gpu_lines", "record_system", "scrub_log", "without_identities"]

PATIENCE: Final[Seconds] = 30.0
COMMANDS: Final = {
    "topo.txt": ("nvidia-smi", "topo", "-m"),
    "topo_p2p_read.txt": ("nvidia-smi", "topo", "-p2p", "r"),
    "topo_p2p_write.txt": ("nvidia-smi", "topo", "-p2p", "w"),
    "smi_query.txt": ("nvidia-smi", "-q"),
    "lscpu.txt": ("lscpu",),
    "lspci_tree.txt": ("lspci", "-tv"),
    "numa.txt": ("numactl", "--hardware"),
}
_IDENTITY: Final = re.compile(
    r"UUID|Serial|Board ID|Board Part|Chassis|GUID|Host ID|Peer Type|Module Id", re.IGNORECASE
)
_LOG_HOST: Final = re.compile(r"^\S+?:\d+:\d+ ", re.MULTILINE)


def gpu_lines() -> list[str]:
    """``index, name, driver, memory`` of every GPU; empty where there is none."""
    return _output(("nvidia-smi", "--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader")).split(
        "\n"
    )[:-1]


def gpu_indexes() -> tuple[int, ...]:
    """Indexes of the GPUs of this machine as nvidia-smi counts them."""
    return tuple(int(line.split(",")[0]) for line in gpu_lines() if line.split(",")[0].strip().isdecimal())


def record_system(out: Path) -> None:
    """Writes what each tool says into the run's folder; a tool that is missing writes nothing."""
    for name, command in COMMANDS.items():
        text = _output(command)
        if text and not (out / name).is_file():
            (out / name).write_text(without_identities(text) if name == "smi_query.txt" else text, encoding="utf-8")


def without_identities(text: str) -> str:
    """``nvidia-smi -q`` without what names one piece of hardware, and without the processes."""
    kept: list[str] = []
    in_processes = False
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        if line.strip().startswith("Processes"):
            in_processes = True
        elif in_processes and depth <= 4 and line.strip():
            in_processes = False
        if not in_processes and not _IDENTITY.search(line):
            kept.append(line)
    return "\n".join(kept) + "\n"


def scrub_log(path: Path) -> None:
    """Takes host name, process numbers and the folder it lies in out of an NCCL log."""
    if path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace").replace(f"{path.parent}/", "")
        path.write_text(_LOG_HOST.sub("host:0:0 ", text), encoding="utf-8")


def _output(command: Sequence[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
