"""``manifest.yaml`` of a run: what was measured, on what, with what, and what was found on the way."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pciesim.measure.options import Options
from pciesim.measure.plan import EXPERIMENTS
from pciesim.measure.rows import STATUS, read
from pciesim.measure.system import gpu_lines, scrub_log

__all__ = ["manifest_text", "write_manifest"]

NAME: Final = "manifest.yaml"
SOFTWARE: Final = "software.jsonl"
ABOUT: Final[Mapping[str, str]] = {
    "topo.txt": "nvidia-smi topo -m",
    "topo_p2p_read.txt": "nvidia-smi topo -p2p r",
    "topo_p2p_write.txt": "nvidia-smi topo -p2p w",
    "smi_query.txt": "nvidia-smi -q before the run, without identities",
    "smi_query_load.txt": "nvidia-smi -q while all GPUs copied, without identities",
    "lscpu.txt": "lscpu",
    "lspci_tree.txt": "lspci -tv",
    "numa.txt": "numactl --hardware",
    "nccl_topo.p2p.xml": "NCCL topology dump",
    "nccl_topo.host.xml": "NCCL topology dump, NCCL_P2P_DISABLE=1",
    "nccl_graph.p2p.xml": "NCCL graph dump",
    "nccl_graph.host.xml": "NCCL graph dump, NCCL_P2P_DISABLE=1",
    "nccl_log.p2p.txt": "NCCL log of the first all-reduces (INIT, GRAPH, TUNING)",
    "nccl_log.host.txt": "NCCL log of the first all-reduces, NCCL_P2P_DISABLE=1",
    STATUS: "what was started, finished and found, with times",
    SOFTWARE: "versions as the processes saw them",
}


def write_manifest(options: Options, gpus: tuple[int, ...]) -> None:
    """Writes the manifest beside the rows. Files written meanwhile are hashed as they are now."""
    for path in options.out.glob("nccl_log.*.txt"):
        scrub_log(path)
    text = manifest_text(options, gpus, hardware=gpu_lines(), commit=options.commit or _commit())
    (options.out / NAME).write_text(text, encoding="utf-8")


def manifest_text(options: Options, gpus: tuple[int, ...], *, hardware: Iterable[str], commit: str) -> str:
    """The YAML text; every string is written as JSON writes it, which YAML reads."""
    status = read(options.out / STATUS)
    software = (read(options.out / SOFTWARE) or [{}])[-1]
    names = [line.split(",")[1].strip() for line in hardware if "," in line]
    lines = [
        "# A run of `pciesim measure`. Latencies in seconds, sizes in bytes. A row that stands twice: the last.",
        "schema: pciesim/run/1",
        f"date: {datetime.now(UTC).date().isoformat()}",
        f"hardware: {_text(f'{len(gpus)} of {len(names)} GPUs: ' + ', '.join(sorted(set(names))))}",
        f"cpu: {_text(_cpu())}",
        f"gpus: [{', '.join(map(str, gpus))}]",
        f"topology: {{matrix: topo.txt{', nccl: nccl_topo.p2p.xml' * (options.out / 'nccl_topo.p2p.xml').is_file()}}}",
        f"versions: {_text({**software, 'kernel': platform.release(), 'python': platform.python_version()})}",
        'transports: {p2p: "as NCCL chooses by itself", host: "NCCL_P2P_DISABLE=1: every byte through host memory"}',
        f"command: {_text(options.command.replace(str(options.out), options.out.name))}",
        f"size: {'full' if options.full else 'quick'}",
        f"tool: {{commit: {_text(commit)}, sources_sha256: {_sources()}}}",
        "findings:",
    ]
    findings = [row for row in status if row["state"] == "finding"]
    lines += [f"  - {{experiment: {row['experiment']}, text: {_text(row['text'])}}}" for row in findings]
    if not findings:
        lines[-1] += " []"
    lines.append("experiments:")
    last = {row["experiment"]: row for row in status if row["state"] != "finding"}
    lines += [
        f"  {name}: {{state: {row['state']}, seconds: {row.get('seconds', 0)}, what: {_text(_about(name))}}}"
        for name, row in last.items()
    ]
    if not last:
        lines[-1] += " {}"
    lines.append("files:")
    for path in sorted(options.out.iterdir()):
        if path.is_file() and path.name != NAME:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"  {path.name}: {{sha256: {digest}, what: {_text(_about(path.name))}}}")
    return "\n".join(lines) + "\n"


def _about(name: str) -> str:
    stem = name.removesuffix(".jsonl")
    return EXPERIMENTS[stem].about if stem in EXPERIMENTS else ABOUT.get(name, "")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    found = {key.strip(): value.strip() for key, value in fields.items()}
    kind = f"family {found.get('cpu family', '?')}, model {found.get('model', '?')}"
    return f"{found.get('model name', platform.machine())} ({kind})"


def _commit() -> str:
    """The commit the tool runs from, with a plus sign where the folder differs from it; empty where git cannot say."""
    folder = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--", "."], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "") if head.returncode == 0 else ""


def _sources() -> str:
    """One hash over the tool's own files."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted([*folder.rglob("*.py"), *folder.glob("*.cu")]):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
