"""NCCL as it chooses itself: collectives by size, for every world, in a CUDA graph and launched one by one.

Rows: ``kind``, ``bytes`` (each rank's input; all-gather: the shard), ``world``, ``gpus``, ``mode`` (graph, eager),
``transport``, ``setting`` and seconds a call (see ``timing``). The slowest rank of a replay counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pciesim.measure.team import NcclGroup, Worker
from pciesim.measure.timing import in_graph, launched
from pciesim.units import GIB, KIB, MIB

__all__ = ["KINDS", "buffers", "issue", "run", "time_sizes"]

KINDS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
QUICK: Final = (512, 4 * KIB, 8 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 16 * MIB, 64 * MIB)
FULL: Final = tuple(512 * 2**power for power in range(20))  # to 256 MiB
MOST: Final = GIB  # of the larger side of a collective
SCALE: Final = 2.0**-100  # sums over and over do not overflow within a replay


def run(worker: Worker) -> None:
    """Largest world first."""
    for team in worker.teams():
        group = NcclGroup(team, {})
        if team.member:
            for kind in KINDS:
                modes = ("graph", "eager") if worker.full or kind == "all_reduce" else ("graph",)
                sizes = FULL if worker.full else QUICK
                time_sizes(worker, group, kind, sizes=sizes, modes=modes, setting="default")
        group.close()


def time_sizes(
    worker: Worker, group: NcclGroup, kind: str, *, sizes: Sequence[int], modes: Sequence[str], setting: str
) -> None:
    """One row per size and mode."""
    team = group.team
    for nbytes in sizes:
        larger = nbytes * team.size if kind == "all_gather" else nbytes
        if nbytes < 2 * team.size or larger > min(MOST, _memory(worker) // 16):
            continue
        source, target = buffers(worker.torch, kind, nbytes, team.size)
        fresh = worker.torch.randn_like(source) * SCALE

        def call(source: Any = source, target: Any = target) -> None:
            issue(worker, group, kind, source, target)

        def before(source: Any = source, fresh: Any = fresh) -> None:
            source.copy_(fresh)

        for mode in modes:
            clock = in_graph if mode == "graph" else launched
            repeats = 15 if worker.full and nbytes <= MIB else 7
            found = clock(team, call, before=before, repeats=repeats)
            worker.row(transport=worker.transport, setting=setting, kind=kind, bytes=nbytes, world=team.size,
                       gpus=team.gpus, mode=mode, **found.row())  # fmt: skip


def buffers(torch: Any, kind: str, nbytes: int, world: int) -> tuple[Any, Any]:
    """Input of ``nbytes`` and output of a collective, bf16 (all-reduce works in place)."""
    count = nbytes // 2
    source = torch.empty(count, dtype=torch.bfloat16, device="cuda")
    size = {"all_gather": count * world, "reduce_scatter": count // world, "all_to_all": count}.get(kind, 0)
    return source, torch.empty(size, dtype=torch.bfloat16, device="cuda")


def issue(worker: Worker, group: NcclGroup, kind: str, source: Any, target: Any) -> None:
    """Puts one collective on the current stream."""
    dist = worker.dist
    match kind:
        case "all_reduce":
            dist.all_reduce(source, group=group.handle)
        case "all_gather":
            dist.all_gather_into_tensor(target, source, group=group.handle)
        case "reduce_scatter":
            dist.reduce_scatter_tensor(target, source, group=group.handle)
        case _:
            dist.all_to_all_single(target, source, group=group.handle)


def _memory(worker: Worker) -> int:
    return int(worker.torch.cuda.get_device_properties(worker.device).total_memory)
