"""Collectives with the number of channels forced, in a graph: what one channel carries.

Rows as ``nccl_sizes``; ``setting`` is like ``ch4`` (protocol as NCCL chooses) or ``ch4_Ring_LL``. With the protocol
forced all-gathers and reduce-scatters as well: on two GPUs their blocks send once a loop where an all-reduce's send
twice, and all receive once more.
"""

from __future__ import annotations

from typing import Final

from pciesim.measure.experiments.nccl_sizes import time_sizes
from pciesim.measure.team import NcclGroup, Worker
from pciesim.units import KIB, MIB

__all__ = ["run"]

CHANNELS: Final = (1, 2, 4, 8, 16)
SIZES: Final = tuple(KIB * 4**power for power in range(9))  # 1 KiB to 64 MiB
FORCED_SIZES: Final = (32 * KIB, MIB, 16 * MIB)
RINGS: Final = ("all_reduce", "all_gather", "reduce_scatter")


def run(worker: Worker) -> None:
    """Every number of channels, every world; on a full run also with the protocol forced."""
    settings: list[tuple[str, dict[str, str]]] = [("", {})]
    if worker.full:
        settings += [
            (f"_Ring_{protocol}", {"NCCL_ALGO": "Ring", "NCCL_PROTO": protocol}) for protocol in ("LL", "Simple")
        ]
    for team in worker.teams():
        for suffix, variables in settings:
            for channels in CHANNELS:
                group = NcclGroup(team, variables, channels)
                for kind in (RINGS if suffix else RINGS[:1]) if team.member else ():
                    time_sizes(worker, group, kind, sizes=FORCED_SIZES if suffix else SIZES, modes=("graph",),
                               setting=f"ch{channels}{suffix}")  # fmt: skip
                group.close()
