"""Copy engines between host memory and GPUs: one, every pair, all; to the GPU, to the host, both.

A pair that is slower together than alone shares an uplink. Rows: ``pattern``, ``flows`` (GPU and direction), ``bytes``
(volume of each flow), ``seconds`` of each flow (equal volumes, begun together) and ``again``, the same once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pciesim.measure.flows import Issue, run_flows
from pciesim.measure.team import Team, Worker
from pciesim.units import MIB

__all__ = ["lone_or_all", "run"]

SIZE: Final = 256 * MIB
COPIES: Final = 4
DIRECTIONS: Final[dict[str, tuple[str, ...]]] = {"h2d": ("h2d",), "d2h": ("d2h",), "both": ("h2d", "d2h")}


def run(worker: Worker) -> None:
    """Alone, in pairs, all."""
    torch = worker.torch
    here = [torch.empty(SIZE, dtype=torch.uint8, device="cuda") for _ in range(2)]
    host = [torch.empty(SIZE, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    for each in host:
        each.random_(0, 255) if worker.full else each.fill_(worker.rank + 1)
    team = lone_or_all(worker)
    count = len(worker.gpus)
    groups: list[tuple[int, ...]] = [(rank,) for rank in range(count)]
    groups += [(a, b) for a in range(count) for b in range(a + 1, count) if worker.full or a == 0]
    if count > 2:
        groups.append(tuple(range(count)))
    for direction, parts in DIRECTIONS.items():
        for group in groups:
            issues: dict[str, Issue] = {
                "h2d": lambda stream: worker.driver.copy(here[0].data_ptr(), host[0].data_ptr(), SIZE, stream),
                "d2h": lambda stream: worker.driver.copy(host[1].data_ptr(), here[1].data_ptr(), SIZE, stream),
            }
            mine = [issues[part] for part in parts] if worker.rank in group else []
            copies = COPIES * (2 if worker.full else 1)
            times, again = (_flat(run_flows(team, mine, copies), group) for _ in range(2))
            flows = [{"gpu": worker.gpus[rank], "direction": part} for rank in group for part in parts]
            worker.row(pattern=direction, engine="ce", flows=flows, bytes=SIZE * copies, seconds=times, again=again)


def _flat(by_rank: Sequence[Sequence[float]], group: Sequence[int]) -> list[float]:
    return [seconds for rank in group for seconds in by_rank[rank]]


def lone_or_all(worker: Worker) -> Team:
    """The team of all ranks, also where that is one."""
    return worker.team(len(worker.gpus)) if len(worker.gpus) > 1 else _Lone(worker)


class _Lone(Team):
    """A team of one process, which has nobody to ask."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker=worker, ranks=(0,), group=None)

    def gather(self, value: Any) -> list[Any]:
        """What it passed."""
        return [value]
