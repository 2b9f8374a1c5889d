"""Copies by kernels: stores and loads to peers and to host memory, by number of blocks, alone and from all GPUs.

Rows: ``engine`` (sm_store, sm_load), ``where`` (peer, host), ``blocks``, ``flows`` (issuer and owner of the far
memory), ``bytes``, ``seconds`` of each flow.
"""

from __future__ import annotations

from typing import Final

from pciesim.measure.driver import u64
from pciesim.measure.experiments.host_copies import lone_or_all
from pciesim.measure.flows import run_flows
from pciesim.measure.rows import read, states
from pciesim.measure.team import Shared, Worker
from pciesim.units import MIB

__all__ = ["run"]

SIZE: Final = 64 * MIB
COPIES: Final = 8
THREADS: Final = 512
CHECK: Final = "p2p_check"


def run(worker: Worker) -> None:
    """Host memory always, peers where the check allowed it."""
    kernel = worker.kernel("copy16")
    team = lone_or_all(worker)
    if not team.all_true(kernel is not None):
        return
    assert kernel is not None
    torch = worker.torch
    local = torch.randint(0, 255, (SIZE,), dtype=torch.uint8, device="cuda")
    pinned = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
    processors = torch.cuda.get_device_properties(worker.device).multi_processor_count
    count = len(worker.gpus)
    checks = read(worker.out / f"{CHECK}.jsonl")
    sound = all(row.get("right", True) and row.get("reachable", True) for row in checks)
    peers = count > 1 and sound and states(worker.out).get(CHECK) == "finished"
    memory = Shared.peer(team, SIZE) if team.all_true(peers) else None
    groups: list[list[tuple[int, int]]] = [[(0, 0)]]  # issuer and owner; the same rank means its host memory
    groups += [[(rank, rank) for rank in range(count)]] if count > 1 else []
    if memory is not None:
        groups += [[(0, other)] for other in range(1, count)]
        groups += [[(rank, (rank + 1) % count) for rank in range(count)]]
        groups += [[(0, other) for other in range(1, count)]] if count > 2 else []
    for store in (True, False):
        for group in groups:
            for blocks in (8, 32, processors) if worker.full or group == groups[0] else (processors,):
                mine = []
                for issuer, owner in group:
                    if issuer == worker.rank:
                        far = pinned.data_ptr() if owner == issuer or memory is None else memory.areas[owner]
                        target, source = (far, local.data_ptr()) if store else (local.data_ptr(), far)

                        def issue(stream: int, to: int = target, of: int = source, blocks: int = blocks) -> None:
                            kernel.launch(blocks, THREADS, stream, [u64(to), u64(of), u64(SIZE // 16)])

                        mine.append(issue)
                times, again = (run_flows(team, mine, COPIES) for _ in range(2))
                worker.row(
                    engine="sm_store" if store else "sm_load", where="host" if group[0][0] == group[0][1] else "peer",
                    blocks=blocks, threads=THREADS, bytes=SIZE * COPIES,
                    flows=[{"issuer": worker.gpus[a], "owner": worker.gpus[b]} for a, b in group],
                    seconds=[t for rank in times for t in rank], again=[t for rank in again for t in rank],
                )  # fmt: skip
    if memory is not None:
        memory.close()
