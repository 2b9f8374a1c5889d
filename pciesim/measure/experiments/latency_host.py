"""Latencies to pinned host memory: a chain of dependent loads, flags between two GPUs, stores with a fence.

Rows: ``what`` (load_chain, local_chain, ping_pong, fence), ``gpu`` or ``gpus``, ``where``, seconds a load, round trip
or round.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final

from pciesim.measure.driver import u32, u64
from pciesim.measure.team import Shared, Team, Worker
from pciesim.units import KIB, MIB, NS, Seconds

__all__ = ["chain", "fences", "pair_flags", "run"]

LINE: Final = 256  # bytes between the links of a chain: no two share a cache line
LOADS: Final = 2000
ROUNDS: Final = 2000
REPEATS: Final = 4  # the first is left out
WARM: Final = 200
PATIENCE: Final[Seconds] = 5.0
AREA: Final = 4 * MIB
DRAM: Final = 512 * MIB  # several times the L2: most of it has left the cache when it is read
FLAG_WORDS: Final = 64  # flags lie in cache lines of their own
WORDS: Final = (1, 256, 2048, 16 * KIB)


def run(worker: Worker) -> None:
    """Each GPU by itself, then each pair with the first GPU."""
    if worker.kernel("load_chain") is None:
        return
    torch, team = worker.torch, worker.team(len(worker.gpus)) if len(worker.gpus) > 1 else None
    pinned = torch.empty(AREA, dtype=torch.uint8, pin_memory=True)
    far = torch.empty(DRAM, dtype=torch.uint8, device="cuda")
    near = far[:AREA]
    mine: list[dict[str, Any]] = []
    for where, area, size in (("host", pinned, AREA), ("local_l2", near, AREA), ("local_dram", far, DRAM)):
        mine.append({"what": "load_chain", "where": where, "gpu": worker.device,
                     "s": chain(worker, area.data_ptr(), size)})  # fmt: skip
    mine += fences(worker, "host", pinned.data_ptr()) + fences(worker, "local", near.data_ptr())
    for rows in team.gather(mine) if team else [mine]:
        for row in rows:
            worker.row(**row)
    if team is None:
        return
    memory = Shared.host(team, 2 * FLAG_WORDS * 4)
    pair_flags(worker, team, memory, "host", others_area=False)
    memory.close()


def chain(worker: Worker, address: int, size: int) -> list[Seconds]:
    """Seconds a load, some times: one thread follows addresses in random order through ``size`` bytes at an address.

    ``address`` is what this GPU sees; the links are written by a copy of this GPU.
    """
    torch = worker.torch
    slots = list(range(min(size // LINE, REPEATS * LOADS)))
    spread = size // LINE // len(slots)
    random.Random(1).shuffle(slots)
    words = torch.zeros(size // 8, dtype=torch.int64)
    at = torch.tensor(slots) * spread * (LINE // 8)
    words[at] = address + at.roll(-1) * 8
    staged = words.cuda()
    worker.driver.copy(address, staged.data_ptr(), size, worker.stream)
    result = torch.zeros(2, dtype=torch.int64, device="cuda")
    kernel = worker.kernel("load_chain")
    assert kernel is not None
    found: list[Seconds] = []
    for repeat in range(REPEATS):  # each on a part of the chain that nobody has read yet
        first = address + int(at[repeat * LOADS % len(slots)]) * 8
        kernel.launch(1, 1, worker.stream, [u64(first), u32(LOADS), u64(result.data_ptr())])
        torch.cuda.synchronize()
        found.append(int(result[0]) * NS / LOADS)
    return found[1:]


def fences(worker: Worker, where: str, address: int) -> list[dict[str, Any]]:
    """Rounds of stores by one block, without and with a fence for the whole system after them."""
    torch = worker.torch
    result = torch.zeros(1, dtype=torch.int64, device="cuda")
    kernel = worker.kernel("fence_rounds")
    assert kernel is not None
    rows: list[dict[str, Any]] = []
    for words in WORDS:
        for fence in (0, 1):
            times: list[Seconds] = []
            for _ in range(4):
                kernel.launch(1, 256, worker.stream, [u64(address), u32(words), u32(ROUNDS // 4), u32(fence),
                                                      u64(result.data_ptr())])  # fmt: skip
                torch.cuda.synchronize()
                times.append(int(result[0]) * NS / (ROUNDS // 4))
            rows.append({"what": "fence", "where": where, "gpu": worker.device, "words": words, "fence": bool(fence),
                         "s": times[1:]})  # fmt: skip
    return rows


def pair_flags(worker: Worker, team: Team, memory: Shared, where: str, *, others_area: bool) -> None:
    """Round trips of a flag between pairs of GPUs.

    Each rank of a pair polls a flag and stores to the other's. ``others_area``: a flag lies in the area of the rank
    that polls it (peer memory); otherwise both lie in the first rank's area.
    """
    torch = worker.torch
    kernel = worker.kernel("ping_pong")
    assert kernel is not None
    result = torch.zeros(2, dtype=torch.int64, device="cuda")
    for first, second in _pairs(team, full=worker.full):
        times: list[Seconds] = []
        for _ in range(4):
            result.zero_()
            if worker.rank in (first, second):
                polled = _flag(memory, worker.rank, first, second, others_area=others_area)
                _zero(worker, polled)
            torch.cuda.synchronize()
            team.barrier()
            if worker.rank in (first, second):
                other = second if worker.rank == first else first
                theirs = _flag(memory, other, first, second, others_area=others_area)
                kernel.launch(1, 1, worker.stream, [
                    u64(polled), u64(theirs), u32(worker.rank == first), u32(ROUNDS), u32(WARM),
                    u64(int(PATIENCE / NS)), u64(result.data_ptr()),
                ])  # fmt: skip
            torch.cuda.synchronize()
            gathered = team.gather([int(each) for each in result])
            done = gathered[first][1] and gathered[second][1]
            times.append(gathered[first][0] * NS / ROUNDS if done else float("nan"))
        pair = [worker.gpus[first], worker.gpus[second]]
        if any(math.isnan(each) for each in times):
            worker.finding(f"flags between GPUs {pair[0]} and {pair[1]} through {where} memory were not seen in time")
        worker.row(what="ping_pong", where=where, gpus=pair, s=[each for each in times[1:] if not math.isnan(each)])


def _flag(memory: Shared, poller: int, first: int, second: int, *, others_area: bool) -> int:
    if others_area:
        return memory.areas[poller]
    return memory.areas[first] + (poller == second) * FLAG_WORDS * 4


def _zero(worker: Worker, address: int) -> None:
    zero = worker.torch.zeros(1, dtype=worker.torch.int32, device="cuda")
    worker.driver.copy(address, zero.data_ptr(), 4, worker.stream)


def _pairs(team: Team, *, full: bool) -> Sequence[tuple[int, int]]:
    """Every pair on a full run, those with the first rank otherwise."""
    ranks = team.ranks
    return [(a, b) for a in ranks for b in ranks if a < b and (full or a == ranks[0])]
