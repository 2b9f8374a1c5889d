"""One-shot all-reduce kernels over peer memory (push with sentinels, pull behind flags), by size and world, in a graph.

Rows: ``variant``, ``bytes``, ``world``, ``right`` (against a sum in float32 of fresh random data) and seconds a call,
launch included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pciesim.measure.allreduce import OneShot
from pciesim.measure.team import Team, Worker
from pciesim.measure.timing import in_graph
from pciesim.units import KIB, MIB

__all__ = ["run", "time_variants"]

SIZES: Final = tuple(KIB * 2**power for power in range(13))  # 1 KiB to 4 MiB
QUICK: Final = (KIB, 8 * KIB, 32 * KIB, 128 * KIB, MIB)


def run(worker: Worker) -> None:
    """Push and pull."""
    time_variants(worker, ("push_peer", "pull_peer"), SIZES if worker.full else QUICK)


def time_variants(worker: Worker, variants: Sequence[str], sizes: Sequence[int]) -> None:
    """Every variant, size and world up to eight ranks."""
    if not worker.team(len(worker.gpus)).all_true(worker.kernel("oneshot_push") is not None):
        return
    for team in worker.teams():
        if not team.member or team.size > 8:
            continue
        for variant in variants:
            for nbytes in sizes:
                _time(worker, team, variant, nbytes)


def _time(worker: Worker, team: Team, variant: str, nbytes: int) -> None:
    torch = worker.torch
    reduce = OneShot(team, variant, nbytes)
    target = torch.empty(nbytes // 2, dtype=torch.bfloat16, device="cuda")
    right = True
    for draw in range(4):  # more calls than buffer sets, each on new data
        source = _input(torch, worker.rank, draw, nbytes)
        target.fill_(float("nan"))
        reduce(source, target)
        right = right and _right(torch, team, draw, nbytes, target)
    found = in_graph(team, lambda: reduce(source, target))
    right = right and _right(torch, team, draw, nbytes, target)
    right = team.all_true(right and not reduce.timed_out())
    worker.row(variant=variant, bytes=nbytes, world=team.size, gpus=team.gpus, mode="graph", right=right, **found.row())
    if not right:
        worker.finding(f"one-shot {variant} of {nbytes} bytes over {team.size} GPUs gave a wrong result or timed out")
    reduce.close()


def _input(torch: Any, rank: int, draw: int, nbytes: int) -> Any:
    generator = torch.Generator().manual_seed(64 * draw + rank)
    return torch.randn(nbytes // 2, generator=generator).bfloat16().cuda()


def _right(torch: Any, team: Team, draw: int, nbytes: int, target: Any) -> bool:
    expected = sum(_input(torch, rank, draw, nbytes).float() for rank in team.ranks)
    return bool(torch.allclose(target.float(), expected, rtol=2.0**-7, atol=2.0**-7))
