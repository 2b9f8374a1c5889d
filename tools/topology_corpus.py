"""Reads every file of a folder of ``nvidia-smi topo -m`` texts and prints what became of each, as Markdown.

python tools/topology_corpus.py ../shared/topo-corpus > docs/topology-corpus.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pciesim.errors import InputError
from pciesim.fabric import DeviceKind, Fabric
from pciesim.formats.topology import LoadedTopology, load_topology

__all__ = ["REFUSED", "report"]

# What may be refused, decided by reading the texts, not by what the reader makes of them.
REFUSED = {
    "corrupt-8xa100-nv12-12nic-swapped-digits.txt": "not a real output: digits altered, CPU ranges run backwards",
    "k8s-53497-8gpu-mlx4-padded-lines.txt": "cut: rows of GPU5 to GPU7 and of the NIC are missing",
    "nccl-tests-78-16xv100-nv6-10mlx5-truncated.txt": "cut: 11 of 16 GPU rows and all NIC rows are missing",
    "sglang-1872-16xa100-sxm4-80gb-node-nv12-phb-sys.txt": "cut inside a word of row NIC5; three NIC rows are missing",
    "vllm-14537-8xh100-76nics-notice-truncated.txt": "cut after the first cell of row GPU2",
}

_HEAD = """\
# Topologies as people post them

About 400 real outputs of `nvidia-smi topo -m`, collected from public issues and pages, read by
`pciesim topo show`. The texts are not part of this project; this table holds what was read from each. It is made by

    python tools/topology_corpus.py ../shared/topo-corpus > docs/topology-corpus.md

and a test keeps it up to date where the folder is there.

May be refused, decided beforehand by reading the texts:

"""


def report(folder: Path) -> str:
    """The page for a folder."""
    paths = sorted(folder.glob("*.txt"))
    rows = [_row(path) for path in paths]
    refused = sum(1 for row in rows if "refused:" in row)
    lines = [f"- `{name}`: {reason}" for name, reason in REFUSED.items()]
    count = f"\n{len(paths)} files, {len(paths) - refused} read, {refused} refused.\n\n"
    table = (
        "| file | GPUs | NICs | types | sockets | switches | islands | NVLink pairs | remarks |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    return _HEAD + "\n".join(lines) + "\n" + count + table + "\n".join(rows) + "\n"


def _row(path: Path) -> str:
    try:
        loaded = load_topology(path)
    except InputError as error:
        reason = str(error).removeprefix(f"{path}:").strip()
        return f"| {path.name} | | | | | | | | refused: line {_escaped(reason)} |"
    return f"| {path.name} | {' | '.join(_facts(loaded.fabric))} | {_escaped('; '.join(_remarks(loaded)))} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _facts(fabric: Fabric) -> Iterator[str]:
    words = sorted({cell for row in (*fabric.matrix, *fabric.nic_matrix) for cell in row} - {"X"})
    count = len(fabric.gpus)
    bridged = sum(
        1
        for one in range(count)
        for other in range(one + 1, count)
        if fabric.matrix[one][other].startswith("NV") and fabric.matrix[other][one].startswith("NV")
    )
    yield str(count)
    yield str(len(fabric.nics))
    yield " ".join(words)
    yield str(len(fabric.of_kind(DeviceKind.SOCKET)))
    yield str(len(fabric.of_kind(DeviceKind.SWITCH)))
    yield " ".join("+".join(map(str, island)) for island in fabric.islands) or "-"
    yield str(bridged) if bridged else "-"


def _remarks(loaded: LoadedTopology) -> Iterator[str]:
    """What was repaired, and the traps among the assumptions."""
    traps = ("SYS inside one NUMA", "all pairs are", "NUMA nodes per socket", "no NUMA column", "cells are believed")
    yield from (note for note in loaded.matrix.notes)
    yield from (
        assumption.text.split(" (")[0]
        for assumption in loaded.fabric.assumptions
        if any(trap in assumption.text for trap in traps)
    )


if __name__ == "__main__":
    sys.stdout.write(report(Path(sys.argv[1])))
