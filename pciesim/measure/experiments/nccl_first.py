"""First collectives of every world: do they end, are they right, what did NCCL choose (its log is a file of the run).

Rows: ``kind``, ``bytes``, ``world``, ``right``; and the seconds that making a communicator took.
"""

from __future__ import annotations

import time
from typing import Any, Final

from pciesim.measure.experiments.nccl_sizes import KINDS, buffers, issue
from pciesim.measure.team import NcclGroup, Worker
from pciesim.units import KIB, MIB

__all__ = ["run"]

SIZES: Final = (512, 2 * KIB, 8 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB)


def run(worker: Worker) -> None:
    """Smallest world first, so that the largest one's dumps are the ones that stay."""
    torch = worker.torch
    for team in reversed(worker.teams()):
        begin = time.perf_counter()
        group = NcclGroup(team, {})
        if team.member:
            worker.row(transport=worker.transport, world=team.size, gpus=team.gpus, init_s=time.perf_counter() - begin)
            for kind in KINDS:
                for nbytes in SIZES:
                    source, target = buffers(torch, kind, nbytes, team.size)
                    pattern = torch.arange(source.numel(), device="cuda") % 4 + 1
                    source.copy_(pattern * (worker.rank + 1))
                    issue(worker, group, kind, source, target)
                    torch.cuda.synchronize()
                    right = team.all_true(
                        _right(
                            torch,
                            kind,
                            rank=worker.rank,
                            world=team.size,
                            pattern=pattern,
                            source=source,
                            target=target,
                        )
                    )
                    worker.row(transport=worker.transport, world=team.size, kind=kind, bytes=nbytes, right=right)
                    if not right:
                        worker.finding(f"{kind} of {nbytes} bytes over {team.size} GPUs gave a WRONG result")
        group.close()


def _right(torch: Any, kind: str, *, rank: int, world: int, pattern: Any, source: Any, target: Any) -> bool:
    """Small whole numbers, so that the sums are exact in bf16."""
    everyone = world * (world + 1) // 2
    match kind:
        case "all_reduce":
            return bool(torch.equal(source.long(), pattern * everyone))
        case "all_gather":
            expected = torch.cat([pattern * (other + 1) for other in range(world)])
        case "reduce_scatter":
            expected = pattern.chunk(world)[rank] * everyone
        case _:
            expected = torch.cat([pattern.chunk(world)[rank] * (other + 1) for other in range(world)])
    return bool(torch.equal(target.long(), expected))
