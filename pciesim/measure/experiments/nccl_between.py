"""What an all-reduce adds to a step: between GEMMs whose result it sums, in a graph.

A collective among other kernels is not the one that follows itself: its code is no longer in the caches, ranks arrive
apart, its launch hides behind the kernel before. Rows: ``variant`` (nccl, or a kernel of our own), ``bytes``, seconds
of the chain without (``without_s``) and with it (``with_s``), and the difference per call (``added_s``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pciesim.measure.allreduce import OneShot
from pciesim.measure.team import NcclGroup, Worker
from pciesim.measure.timing import in_graph

__all__ = ["run"]

WIDTH: Final = 4096
GEMMS: Final = 16
TOKENS: Final = (1, 4, 16, 64, 256)  # 8 KiB to 2 MiB
OWN: Final = {"p2p": ("push_peer", "pull_peer"), "host": ("push_host", "pull_host")}
MOST_OWN: Final = 64  # tokens


def run(worker: Worker) -> None:
    """Every world, NCCL and own kernels."""
    torch = worker.torch
    weights = [torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(GEMMS)]
    for team in worker.teams():
        group = NcclGroup(team, {})
        if team.member:
            possible = worker.kernel("oneshot_push") is not None and _reachable(worker)
            own = OWN[worker.transport] if team.all_true(possible) and team.size <= 8 else ()
            for tokens in TOKENS if worker.full else TOKENS[:3]:
                for variant in ("nccl", *(own if tokens <= MOST_OWN else ())):
                    _time(worker, group, variant, tokens, weights)
        group.close()


def _reachable(worker: Worker) -> bool:
    """Whether the memory that own kernels meet in can be reached: host memory always, peers where the driver says."""
    others = [peer for peer in worker.gpus if peer != worker.device]
    return worker.transport == "host" or all(worker.driver.peer_access(worker.device, peer) for peer in others)


def _time(worker: Worker, group: NcclGroup, variant: str, tokens: int, weights: list[Any]) -> None:
    torch, team = worker.torch, group.team
    x, y = (torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    result, first = torch.empty_like(y), torch.ones(8, device="cuda")
    nbytes = y.numel() * 2
    own = OneShot(team, variant, nbytes) if variant != "nccl" else None

    def chain(reduce: Callable[[], None] | None) -> Callable[[], None]:
        def call() -> None:
            for weight in weights:
                torch.mm(x, weight, out=y)
                if reduce is not None:
                    reduce()

        return call

    def by_nccl() -> None:
        worker.dist.all_reduce(y, group=group.handle)

    def by_own() -> None:
        assert own is not None
        own(y, result)

    def clock(call: Callable[[], None]) -> Any:
        return in_graph(team, call, most_calls=2, repeats=15,
                        align=lambda: worker.dist.all_reduce(first, group=group.handle))  # fmt: skip

    plain = clock(chain(None))
    summed = clock(chain(by_nccl if own is None else by_own))
    again = clock(chain(None))
    late = own is not None and own.timed_out()
    if own is not None:
        own.close()
    if team.all_true(not late):
        without = min(plain.median, again.median)
        worker.row(transport=worker.transport, variant=variant, bytes=nbytes, world=team.size, gpus=team.gpus,
                   gemms=len(weights), with_s=summed.median, without_s=[plain.median, again.median],
                   added_s=(summed.median - without) / len(weights), halves_s=list(summed.halves))  # fmt: skip
    else:
        worker.finding(f"{variant} of {nbytes} bytes between GEMMs over {team.size} GPUs timed out")
