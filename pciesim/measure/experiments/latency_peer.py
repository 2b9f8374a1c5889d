"""Latencies to another GPU's memory: chain of dependent loads, flags, stores with a fence. Rows as ``latency_host``."""

from __future__ import annotations

from typing import Final

from pciesim.measure.experiments.latency_host import chain, fences, pair_flags
from pciesim.measure.team import Shared, Worker
from pciesim.units import MIB

__all__ = ["run"]

AREA: Final = 4 * MIB


def run(worker: Worker) -> None:
    """One GPU at a time loads from each of the others; then flags between pairs."""
    if not worker.team(len(worker.gpus)).all_true(worker.kernel("load_chain") is not None):
        return
    team = worker.team(len(worker.gpus))
    memory = Shared.peer(team, AREA)
    for loader in team.ranks if worker.full else team.ranks[:1]:
        for owner in team.ranks:
            if owner != loader and worker.rank == loader:
                pair = {"gpu": worker.device, "peer": worker.gpus[owner]}
                rows = [{"what": "load_chain", "where": "peer", **pair, "s": chain(worker, memory.areas[owner], AREA)}]
                if loader == team.ranks[0]:
                    rows += [{**row, **pair} for row in fences(worker, "peer", memory.areas[owner])]
            else:
                rows = []
            for part in team.gather(rows):
                for row in part:
                    worker.row(**row)
    pair_flags(worker, team, memory, "peer", others_area=True)
    memory.close()
