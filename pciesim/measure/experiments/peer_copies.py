"""Copy engines between GPUs: every pair alone, both ways at once, rings by distance, all to all.

A copy is issued by the GPU that it leaves (``write``) or by the one it comes to (``read``). Rows as ``host_copies``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pciesim.measure.flows import Issue, run_flows
from pciesim.measure.team import Shared, Worker
from pciesim.units import MIB

__all__ = ["Flow", "patterns", "run"]

SIZE: Final = 256 * MIB
COPIES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A copy from one rank to another; ``read`` means that the target issues it."""

    source: int
    target: int
    read: bool

    @property
    def issuer(self) -> int:
        """The rank whose GPU moves the bytes."""
        return self.target if self.read else self.source


def run(worker: Worker) -> None:
    """All patterns."""
    team = worker.team(len(worker.gpus))
    memory = Shared.peer(team, SIZE)
    for name, flows in patterns(len(worker.gpus), full=worker.full):
        mine: list[Issue] = []
        for flow in flows:
            if flow.issuer == worker.rank:
                source, target = memory.areas[flow.source], memory.areas[flow.target]

                def issue(stream: int, source: int = source, target: int = target) -> None:
                    worker.driver.copy(target, source, SIZE, stream)

                mine.append(issue)
        copies = max(1, COPIES * 2 // max(1, len(flows) // len(worker.gpus)))
        times, again = (_in_order(run_flows(team, mine, copies), flows) for _ in range(2))
        named = [{"source": worker.gpus[flow.source], "target": worker.gpus[flow.target], "read": flow.read}
                 for flow in flows]  # fmt: skip
        worker.row(pattern=name, engine="ce", flows=named, bytes=SIZE * copies, seconds=times, again=again)
    memory.close()


def patterns(count: int, *, full: bool) -> list[tuple[str, list[Flow]]]:
    """Names and flows. Few GPUs, or a full run: every pair; otherwise those of the first GPU."""
    ranks = range(count)
    found: list[tuple[str, list[Flow]]] = []
    for read in (False, True):
        way = "read" if read else "write"
        some = [(a, b) for a in ranks for b in ranks if a != b and (full or count <= 4 or 0 in (a, b))]
        found += [(f"{way} alone", [Flow(source=a, target=b, read=read)]) for a, b in some]
        found += [
            (f"{way} both ways", [Flow(source=a, target=b, read=read), Flow(source=b, target=a, read=read)])
            for a, b in some
            if a < b
        ]
        for distance in range(1, count) if count > 2 else ():
            ring = [Flow(source=a, target=(a + distance) % count, read=read) for a in ranks]
            found.append((f"{way} ring +{distance}", ring))
        if count > 2:
            everyone = [Flow(source=a, target=(a + d) % count, read=read) for d in range(1, count) for a in ranks]
            found.append((f"{way} all to all", everyone))
        half = count // 2
        for apart in _disjoint(count) if full and count > 3 else ():
            found.append((f"{way} two pairs", [Flow(source=a, target=b, read=read) for a, b in apart]))
        if count > 3:
            across = [Flow(source=a, target=a + half, read=read) for a in range(half)]
            found.append((f"{way} first half to second", across))
    return found


def _disjoint(count: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Two flows that share neither source nor target GPU: where they slow each other, they share a link."""
    return [((0, a), (b, c)) for a in range(1, count) for b in range(1, count) for c in range(1, count)
            if len({0, a, b, c}) == 4 and b < c and (count <= 4 or a in (1, count // 2))]  # fmt: skip


def _in_order(by_rank: Sequence[Sequence[float]], flows: Sequence[Flow]) -> list[float]:
    """Seconds in the order of ``flows``; each rank gives those it issued, in that order."""
    waiting = [iter(times) for times in by_rank]
    return [next(waiting[flow.issuer]) for flow in flows]
