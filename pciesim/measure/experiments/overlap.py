"""A stream of GEMMs and a stream of all-reduces, each alone and both together: overlap is not free.

Rows: sizes, how many of each, seconds of the GEMMs alone, the all-reduces alone, both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pciesim.measure.experiments.nccl_sizes import SCALE
from pciesim.measure.team import NcclGroup, Worker
from pciesim.measure.timing import in_graph
from pciesim.units import KIB, MIB

__all__ = ["run"]

SHAPES: Final = ((64, 512 * KIB), (2048, 16 * MIB))  # rows of the GEMM, bytes of the all-reduce
K: Final = 4096
N: Final = 14336
GEMMS: Final = 8


def run(worker: Worker) -> None:
    """Both shapes, every world on a full run, the largest otherwise."""
    for team in worker.teams() if worker.full else worker.teams()[:1]:
        group = NcclGroup(team, {})
        if team.member:
            for m, nbytes in SHAPES:
                _time(worker, group, m, nbytes)
        group.close()


def _time(worker: Worker, group: NcclGroup, m: int, nbytes: int) -> None:
    torch, team = worker.torch, group.team
    x = torch.randn(m, K, device="cuda", dtype=torch.bfloat16)
    weights = [torch.randn(N, K, device="cuda", dtype=torch.bfloat16) for _ in range(GEMMS)]
    out = torch.empty(m, N, device="cuda", dtype=torch.bfloat16)
    data = torch.randn(nbytes // 2, device="cuda", dtype=torch.bfloat16) * SCALE
    fresh = data.clone()
    side = torch.cuda.Stream()

    def gemms() -> None:
        for weight in weights:
            torch.mm(x, weight.t(), out=out)

    def reduces(count: int) -> Callable[[], None]:
        def call() -> None:
            for _ in range(count):
                worker.dist.all_reduce(data, group=group.handle)

        return call

    def together(count: int) -> Callable[[], None]:
        def call() -> None:
            current = torch.cuda.current_stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                reduces(count)()
            gemms()
            current.wait_stream(side)

        return call

    def clock(call: Callable[[], None]) -> Any:
        return in_graph(team, call, most_calls=1, before=lambda: data.copy_(fresh), align=reduces(1))

    alone = clock(gemms)
    one = clock(reduces(4)).median / 4
    count = max(1, min(40, round(team.gather(alone.median)[0] / team.gather(one)[0])))
    second, both = clock(reduces(count)), clock(together(count))
    worker.row(transport=worker.transport, world=team.size, gpus=team.gpus, M=m, K=K, N=N, bytes=nbytes, gemms=GEMMS,
               all_reduces=count, gemm_alone_s=alone.median, all_reduce_alone_s=second.median, both_s=both.median,
               both_halves_s=list(both.halves))  # fmt: skip
