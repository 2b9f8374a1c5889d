"""GEMM and all-reduce in tiles: the sum of a tile runs while the next tile is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pciesim.errors import InputError
from pciesim.scenario import Scenario
from pciesim.schedule import Category, Collective, CollectiveKind, Compute, Gemm, Op, Schedule
from pciesim.strategies.strategy import Strategy

__all__ = ["TILED_GEMM", "TileSums"]

_SUMS: Final = 7  # the stream of overlapped collectives
_MOST: Final = 16


@dataclass(frozen=True, slots=True)
class TileSums:
    """Cuts every GEMM that a sum directly follows, and its sum, into ``tiles`` along the output columns.

    Each tile's GEMM reads its share of the weights; its sum runs beside the next tile's GEMM. The op after the last
    sum waits for all of them.
    """

    tiles: int

    def __call__(self, schedule: Schedule) -> Schedule:
        """The schedule with tiles."""
        ops: list[Op] = []
        after: list[tuple[int, ...]] = []
        where: dict[int, int] = {}  # old position -> the new op that stands for its end
        owed: tuple[int, ...] = ()  # sums that the next op of the main stream waits for
        skip = -1
        for position, op in enumerate(schedule.ops):
            if position == skip:
                continue
            waits = tuple(where[other] for other in schedule.after[position])
            if op.stream == 0:
                waits, owed = tuple(sorted({*waits, *owed})), ()
            following = schedule.ops[position + 1] if position + 1 < len(schedule.ops) else None
            if not _tiled(op, following) or not isinstance(op, Compute) or not isinstance(following, Collective):
                where[position] = len(ops)
                ops.append(op)
                after.append(waits)
                continue
            sums: list[int] = []
            for number in range(self.tiles):
                ops.append(_share(op, self.tiles))
                after.append(waits if number == 0 else ())
                ops.append(replace(following, nbytes=max(1, following.nbytes // self.tiles), stream=_SUMS))
                after.append((len(ops) - 2,))
                sums.append(len(ops) - 1)
            where[position], where[position + 1] = len(ops) - 2, len(ops) - 1
            owed, skip = tuple(sums), position + 1
        return Schedule(ops=tuple(ops), after=tuple(after))


def _tiled(op: Op, following: Op | None) -> bool:
    return (
        isinstance(op, Compute)
        and isinstance(op.kernel, Gemm)
        and op.stream == 0
        and isinstance(following, Collective)
        and following.kind is CollectiveKind.ALL_REDUCE
        and following.category is Category.ALL_REDUCE
        and following.stream == 0
    )


def _share(op: Compute, tiles: int) -> Compute:
    kernel = op.kernel
    if not isinstance(kernel, Gemm):
        raise TypeError(f"{op.name} is no GEMM")
    return replace(op, kernel=replace(kernel, n=-(-kernel.n // tiles)), nbytes=op.nbytes / tiles, flop=op.flop / tiles)


def _apply(scenario: Scenario, argument: str) -> Scenario:
    if not argument.isdecimal() or not 2 <= int(argument) <= _MOST:
        raise InputError(f"overlap=tiles:{argument}: expected a number of tiles from 2 to {_MOST}")
    return replace(scenario, transforms=(*scenario.transforms, TileSums(tiles=int(argument))))


TILED_GEMM: Final = Strategy(
    axis="overlap",
    name="tiles",
    argument="how many, from 2 to 16",
    sentence="row-parallel GEMMs are cut into tiles, each summed while the next is computed",
    source="Flux, arXiv 2406.06858; FlashOverlap, arXiv 2504.19519; vLLM symm_mem_pcie_barrier.py (prefill)",
    apply=_apply,
    obstacle=lambda scenario, _: (
        f"{scenario.engine.title} {scenario.engine.version} has no tiled sums under CUDA graphs"
    ),
    number="as many calls as tiles",
    size="same in sum",
    criticality="all but the last tile's sum beside compute; routed experts' sums stay exposed",
    risk="kernels and sums share multiprocessors and memory: both slow down",
    hurts="decode: every tile pays a kernel and a call",
)
