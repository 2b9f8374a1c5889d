"""All-reduce through host memory by copy engines (NCCL_SHM_USE_CUDA_MEMCPY=1), in a graph. Rows as ``nccl_sizes``."""

from __future__ import annotations

from typing import Final

from pciesim.measure.experiments.nccl_sizes import time_sizes
from pciesim.measure.team import NcclGroup, Worker
from pciesim.units import KIB

__all__ = ["run"]

SIZES: Final = tuple(KIB * 4**power for power in range(9))  # 1 KiB to 64 MiB


def run(worker: Worker) -> None:
    """Every world. Where NCCL refuses the mode this fails, which the manifest says."""
    for team in worker.teams():
        group = NcclGroup(team, {})
        if team.member:
            time_sizes(worker, group, "all_reduce", sizes=SIZES, modes=("graph",), setting="memcpy")
        group.close()
