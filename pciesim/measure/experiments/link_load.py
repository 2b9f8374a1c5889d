"""PCIe generation and width while every GPU copies: an idle GPU trains its link down, and so says too little.

Rows: one per GPU, the fields as nvidia-smi gives them. The whole ``nvidia-smi -q`` under load is a file of the run.
"""

from __future__ import annotations

import csv
import subprocess
from typing import Final

from pciesim.measure.rows import read
from pciesim.measure.system import without_identities
from pciesim.measure.team import Worker
from pciesim.units import MIB, Seconds

__all__ = ["run"]

SIZE: Final = 256 * MIB
COPIES: Final = 400  # about two seconds at 50 GB/s
PATIENCE: Final[Seconds] = 20.0
FIELDS: Final = ("index", "name", "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current",
                 "pcie.link.width.max", "clocks.sm", "clocks.mem", "power.limit")  # fmt: skip


def run(worker: Worker) -> None:
    """All ranks copy both ways; the first one asks meanwhile."""
    torch = worker.torch
    here = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    up, down = (torch.empty(SIZE, dtype=torch.uint8, pin_memory=True) for _ in range(2))
    streams = (torch.cuda.Stream(), torch.cuda.Stream())
    for _ in range(COPIES):
        worker.driver.copy(here.data_ptr(), up.data_ptr(), SIZE, streams[0].cuda_stream)
        worker.driver.copy(down.data_ptr(), here.data_ptr(), SIZE, streams[1].cuda_stream)
    if worker.rank == 0 and not read(worker.out / f"{worker.experiment}.jsonl"):
        _ask(worker)
    torch.cuda.synchronize()


def _ask(worker: Worker) -> None:
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
        full = subprocess.run(
            ["nvidia-smi", "-q"], capture_output=True, text=True, timeout=PATIENCE, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        worker.finding(f"nvidia-smi did not answer under load: {error}")
        return
    (worker.out / "smi_query_load.txt").write_text(without_identities(full), encoding="utf-8")
    for values in csv.reader(said.splitlines(), skipinitialspace=True):
        row = dict(zip(FIELDS, values, strict=False))
        worker.row(**row)
        for what in ("gen", "width"):
            now, most = row.get(f"pcie.link.{what}.current"), row.get(f"pcie.link.{what}.max")
            if now != most:
                worker.finding(f"GPU {row['index']}: PCIe {what} {now} under load, the card could {most}")
