"""All-reduce with algorithm and protocol forced, in a graph: the curves that NCCL chooses from.

Rows as ``nccl_sizes``; ``setting`` is like ``Ring_LL``. NCCL reads both variables whenever it makes a communicator.
"""

from __future__ import annotations

from typing import Final

from pciesim.measure.experiments.nccl_sizes import time_sizes
from pciesim.measure.team import NcclGroup, Worker
from pciesim.units import KIB

__all__ = ["run"]

SIZES: Final = tuple(KIB * 2**power for power in range(0, 17, 1))  # 1 KiB to 64 MiB
QUICK: Final = SIZES[::3]


def run(worker: Worker) -> None:
    """Every pair, every world."""
    for team in worker.teams():
        for algorithm in ("Ring", "Tree"):
            for protocol in ("LL", "LL128", "Simple"):
                group = NcclGroup(team, {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol})
                if team.member:
                    time_sizes(worker, group, "all_reduce", sizes=SIZES if worker.full else QUICK, modes=("graph",),
                               setting=f"{algorithm}_{protocol}")  # fmt: skip
                group.close()
