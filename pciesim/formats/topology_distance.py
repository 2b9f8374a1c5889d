"""How far apart the devices of a matrix are over PCIe, where NVLink hides it or the cells contradict each other.

The five PCIe words are levels of one tree (switch, switches, host bridge, NUMA node, machine), so distances are
ultrametric: of the three distances among any three devices the two larger are equal. That is what tells the PCIe path
of a pair for which the matrix prints only ``NV18``: a NIC or GPU that is nearer to one than to the other fixes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from pciesim.formats.topology_smi import TopologyMatrix

__all__ = ["Distances", "Level", "clusters", "measure"]


class Level(IntEnum):
    """PCIe distance, nearest first."""

    SELF = 0
    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5


_LEVELS = {level.name: level for level in Level} | {"X": Level.SELF, "SOC": Level.SYS, "PSB": Level.PIX}


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """Level of every pair (GPUs, then NICs). ``hidden`` lists GPU pairs whose level was not printed, ``guessed`` those
    of them that no third device fixes."""

    levels: tuple[tuple[Level, ...], ...]
    hidden: tuple[tuple[int, int], ...]
    guessed: tuple[tuple[int, int], ...]

    def of(self, one: int, other: int) -> Level:
        """Level of a pair."""
        return self.levels[one][other]


def measure(matrix: TopologyMatrix) -> Distances:
    """PCIe levels from the cells; what NVLink hides, from third devices, else from the NUMA columns."""
    size = len(matrix.names)
    printed = [[_LEVELS.get(cell) for cell in row] for row in matrix.cells]
    known = [  # as printed at either end, None where both ends print NVLink
        [own if own is not None else printed[other][one] for other, own in enumerate(row)]
        for one, row in enumerate(printed)
    ]
    hidden = [(one, other) for one in range(size) for other in range(one + 1, size) if known[one][other] is None]
    found: dict[tuple[int, int], Level] = {}
    guessed = []
    for one, other in hidden:
        level, certain = _witnessed(known, one, other)
        if level is None:
            level = _by_numa(matrix, one, other)
        elif not certain and level is Level.SYS:
            level = min(level, _by_numa(matrix, one, other))
        if not certain:
            guessed.append((one, other))
        found[one, other] = level
    levels = tuple(
        tuple(
            known_level if known_level is not None else found[min(one, other), max(one, other)]
            for other, known_level in enumerate(row)
        )
        for one, row in enumerate(known)
    )
    return Distances(levels=levels, hidden=tuple(hidden), guessed=tuple(guessed))


def _witnessed(known: list[list[Level | None]], one: int, other: int) -> tuple[Level | None, bool]:
    """(level, exact?) from devices with known distances to both: unequal ones give the level, equal ones bound it."""
    exact: list[Level] = []
    bounds: list[Level] = []
    for third, (to_one, to_other) in enumerate(zip(known[one], known[other], strict=True)):
        if to_one is None or to_other is None or third in (one, other):
            continue
        if to_one == to_other:
            bounds.append(to_one)
        else:
            exact.append(max(to_one, to_other))
    if exact:
        return min(exact), True
    return (min(bounds), min(bounds) is Level.PIX) if bounds else (None, False)


def _by_numa(matrix: TopologyMatrix, one: int, other: int) -> Level:
    """NODE within one NUMA node or where nothing is known, SYS between two."""
    first, second = matrix.numa(one), matrix.numa(other)
    return Level.SYS if first and second and not set(first) & set(second) else Level.NODE


def clusters(members: list[int], distances: Distances, limit: Level) -> list[list[int]]:
    """Members joined by chains of pairs no farther than ``limit``, each sorted, in order of their first."""
    group = {member: member for member in members}
    for position, one in enumerate(members):
        for other in members[position + 1 :]:
            if distances.levels[one][other] <= limit and group[one] != group[other]:
                keep, drop = sorted((group[one], group[other]))
                group = {member: keep if found == drop else found for member, found in group.items()}
    return [[member for member in members if group[member] == first] for first in sorted(set(group.values()))]
