"""Is the data right that one GPU puts into or takes from another's memory? Some boxes say OK and return rubbish.

Rows: ``source``, ``target``, ``method`` (copy engine or kernel, issued by the source or by the target), ``right``.
``reachable`` False: the driver does not open a peer's memory here.
"""

from __future__ import annotations

from typing import Any, Final

from pciesim.measure.driver import DriverError, u64
from pciesim.measure.team import Shared, Team, Worker
from pciesim.units import MIB

__all__ = ["run"]

SIZE: Final = 4 * MIB + 16  # not a power of two: the last bytes count
METHODS: Final = ("copy_write", "kernel_store", "copy_read", "kernel_load")


def run(worker: Worker) -> None:
    """Every ordered pair, every method."""
    team = worker.team(len(worker.gpus))
    able = [worker.driver.peer_access(worker.device, peer) for peer in worker.gpus if peer != worker.device]
    if not team.all_true(all(able)):
        worker.row(reachable=False, why="cuDeviceCanAccessPeer says no for some pair")
        worker.finding("GPUs cannot reach each other's memory (cuDeviceCanAccessPeer)")
        return
    try:
        memory, why = Shared.peer(team, SIZE * team.size), ""
    except DriverError as error:
        memory, why = None, str(error)
    if not team.all_true(memory is not None):
        worker.row(reachable=False, why=why)
        worker.finding(f"peer memory cannot be opened by another process: {why}")
        return
    assert memory is not None
    wrong = [pair_method for method in METHODS for pair_method in _check(worker, team, memory, method)]
    if wrong:
        worker.finding(f"peer copies returned WRONG DATA: {', '.join(wrong)}; peer-to-peer is not to be trusted here")
    memory.close()


def _check(worker: Worker, team: Team, memory: Shared, method: str) -> list[str]:
    torch, driver = worker.torch, worker.driver
    reads = method in {"copy_read", "kernel_load"}
    kernel = worker.kernel("copy16") if method.startswith("kernel") else None
    if method.startswith("kernel") and kernel is None:
        return []
    right: list[tuple[int, int, bool]] = []
    scratch = torch.empty(SIZE // 4, dtype=torch.int32, device="cuda")
    for distance in range(1, team.size):
        # A write: rank r sends to r + distance. A read: rank r takes from r + distance what that rank laid out.
        peer = (worker.rank + distance) % team.size
        behind = (worker.rank - distance) % team.size
        sender, receiver = (behind, worker.rank) if not reads else (peer, worker.rank)
        laid = _pattern(torch, method, worker.rank, behind if reads else peer).cuda()
        scratch.fill_(-1)
        driver.fill(memory.areas[worker.rank], 0xABABABAB, SIZE * team.size // 4, worker.stream)
        torch.cuda.synchronize()
        team.barrier()
        if reads:
            driver.copy(memory.areas[worker.rank], laid.data_ptr(), SIZE, worker.stream)
            torch.cuda.synchronize()
            team.barrier()
        target = scratch.data_ptr() if reads else memory.areas[peer]
        source = memory.areas[peer] if reads else laid.data_ptr()
        if kernel is None:
            driver.copy(target, source, SIZE, worker.stream)
        else:
            kernel.launch(64, 256, worker.stream, [u64(target), u64(source), u64(SIZE // 16)])
        torch.cuda.synchronize()
        team.barrier()
        if not reads:
            driver.copy(scratch.data_ptr(), memory.areas[worker.rank], SIZE, worker.stream)
            torch.cuda.synchronize()
        good = bool(torch.equal(scratch.cpu(), _pattern(torch, method, sender, receiver)))
        right += team.gather((sender, receiver, good))
        team.barrier()
    wrong: list[str] = []
    for source_rank, target_rank, good in right:
        pair = (worker.gpus[source_rank], worker.gpus[target_rank])
        worker.row(source=pair[0], target=pair[1], method=method, right=good, bytes=SIZE)
        if not good:
            wrong.append(f"{pair[0]}->{pair[1]} {method}")
    return wrong


def _pattern(torch: Any, method: str, source: int, target: int) -> Any:
    """What a rank sends to another, known to both."""
    seed = (METHODS.index(method) * 64 + source) * 64 + target
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31 - 1, (SIZE // 4,), dtype=torch.int32, generator=generator)
