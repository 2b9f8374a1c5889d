"""A line of the catalogue: a lowering, what it costs in words, what it needs, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pciesim.collectives.islands import equal_islands
from pciesim.collectives.task import Lowered, Task
from pciesim.errors import Infeasible
from pciesim.schedule import CollectiveKind

__all__ = ["AlgorithmEntry", "Cost", "Needs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Counts as formulas in n ranks, S input bytes a rank, k GPUs an island, m islands (``log2`` is allowed).

    ``traversals`` are sequential one-way crossings on the critical path; ``messages`` are those with data that the
    busiest rank issues; ``nbytes`` is the payload through the busiest rank's port in its busier direction, without the
    flags of a protocol. Tests hold them against the programs.
    """

    traversals: str
    messages: str
    nbytes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What must be there. ``nvlink`` is why it needs NVLink between all ranks, ``refused`` why it never runs here."""

    p2p: bool = True
    power_of_two: bool = False
    islands: bool = False
    worlds: tuple[int, ...] = ()
    nvlink: str = ""
    refused: str = ""

    @property
    def text(self) -> str:
        """In words, for the catalogue."""
        found = [
            "peer-to-peer" if self.p2p else "",
            "a power of two of ranks" if self.power_of_two else "",
            "equal islands (switches or sockets)" if self.islands else "",
            f"{' or '.join(map(str, self.worlds))} ranks" if self.worlds else "",
            f"NVLink: {self.nvlink}" if self.nvlink else "",
            f"refused: {self.refused}" if self.refused else "",
        ]
        return ", ".join(filter(None, found)) or "nothing"

    def check(self, name: str, task: Task) -> None:
        """Raises Infeasible with the reason where a task lacks something."""
        n = len(task.gpus)
        if self.refused:
            raise Infeasible(f"'{name}' cannot run on '{task.fabric.name}': {self.refused}")
        if self.nvlink and not _all_nvlink(task):
            raise Infeasible(f"'{name}' cannot run over PCIe: {self.nvlink}")
        if self.p2p:
            _check_p2p(name, task)
        if self.worlds and n not in self.worlds:
            raise Infeasible(f"'{name}' serves {' or '.join(map(str, self.worlds))} ranks, not {n}")
        if self.power_of_two and n & (n - 1):
            raise Infeasible(f"'{name}' needs a power of two of ranks, not {n}")
        if self.islands and equal_islands(task) is None:
            raise Infeasible(
                f"'{name}' needs equal islands of GPUs (behind one switch, or on one socket): "
                f"the {n} ranks on '{task.fabric.name}' do not form any"
            )


def _all_nvlink(task: Task) -> bool:
    return all(
        task.fabric.route(one, other).nvlink for one in task.gpus for other in task.gpus if one != other
    )  # fmt: skip


def _check_p2p(name: str, task: Task) -> None:
    fabric = task.fabric
    if not fabric.nccl.p2p:
        raise Infeasible(f"'{name}' needs peer-to-peer, which is off on '{fabric.name}'")
    for one in task.gpus:
        for other in task.gpus:
            if one != other and not fabric.can_peer(one, other):
                raise Infeasible(f"'{name}' needs peer-to-peer between {one} and {other}, which the driver refuses")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmEntry:
    """A lowering, its costs by collective, its needs, one sentence and its source."""

    lower: Callable[[Task], Lowered]
    costs: Mapping[CollectiveKind, Cost]
    about: str
    source: str
    needs: Needs = Needs()

    @property
    def kinds(self) -> frozenset[CollectiveKind]:
        """The collectives it serves."""
        return frozenset(self.costs)

    @property
    def needs_p2p(self) -> bool:
        """Whether GPUs must reach each other's memory."""
        return self.needs.p2p
