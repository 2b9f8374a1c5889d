"""One-shot all-reduce kernels of our own, with their buffers: push and pull, over peer memory or host memory."""

from __future__ import annotations

from typing import Any, Final

from pciesim.measure.driver import u32, u64
from pciesim.measure.team import Shared, Team
from pciesim.units import NS, Seconds

__all__ = ["VARIANTS", "OneShot"]

PACKET: Final = 16  # bytes one thread moves at once
THREADS: Final = 256
MOST_BLOCKS: Final = 64  # all of them run at once on any GPU, so that ranks cannot wait for blocks that never start
SENTINEL: Final = 0x80008000  # as in kernels.cu
PATIENCE: Final[Seconds] = 2.0
VARIANTS: Final = ("push_peer", "pull_peer", "push_host", "pull_host")


class OneShot:
    """An all-reduce of bf16 tensors up to ``most_bytes``. Made, used and closed by all members of a team together."""

    __slots__ = ("_calls", "_error", "_flags", "_kernel", "_memory", "_stride", "_tables", "size", "team", "variant")

    def __init__(self, team: Team, variant: str, most_bytes: int) -> None:
        worker = team.worker
        kernel = {"push_peer": "oneshot_push", "push_host": "oneshot_shared"}.get(variant, "oneshot_pull")
        found = worker.kernel(kernel)
        if found is None:
            raise RuntimeError("own kernels cannot be compiled here")
        self.team, self.variant, self._kernel, self.size = team, variant, found, 0
        self._stride = most_bytes // PACKET
        slot = most_bytes
        areas = {"push_peer": 3 * team.size * slot, "push_host": 3 * slot}.get(variant, 2 * slot)
        flags = MOST_BLOCKS * team.size * 4
        over_host = variant.endswith("_host")
        if over_host:
            self._memory = Shared.host(team, areas, SENTINEL.to_bytes(4, "little"))
        else:
            self._memory = Shared.peer(team, areas)
        self._flags: Shared | None = None
        if variant.startswith("pull"):
            self._flags = Shared.host(team, flags) if over_host else Shared.peer(team, flags)
        torch = worker.torch
        where = {"device": f"cuda:{worker.device}"}
        self._calls = torch.zeros(MOST_BLOCKS, dtype=torch.int32, **where)
        self._error = torch.zeros(1, dtype=torch.int32, **where)
        tables = [self._memory, *([self._flags] if self._flags else [])]
        self._tables = [torch.tensor(each.areas, dtype=torch.int64, **where) for each in tables]
        self._clear(areas // 4, flags // 4)

    def _clear(self, words: int, flags: int) -> None:
        """Fresh buffers on the GPU; those in host memory were made fresh."""
        worker, rank = self.team.worker, self.team.worker.rank
        if self.variant.endswith("_peer"):
            worker.driver.fill(self._memory.areas[rank], SENTINEL, words, worker.stream)
            if self._flags is not None:
                worker.driver.fill(self._flags.areas[rank], 0, flags, worker.stream)
        worker.torch.cuda.synchronize()
        self.team.barrier()

    def __call__(self, source: Any, target: Any) -> None:
        """Puts one all-reduce on the current stream. Every call of one object must be of the same size."""
        worker = self.team.worker
        packets = source.numel() * 2 // PACKET
        if self.size not in {0, packets}:
            raise RuntimeError("a one-shot buffer serves one size")
        self.size = packets
        blocks = min(MOST_BLOCKS, -(-packets // THREADS))
        arguments = [
            *(u64(table.data_ptr()) for table in self._tables),
            u64(source.data_ptr()), u64(target.data_ptr()), u32(packets), u32(self._stride),
            u32(self.team.ranks.index(worker.rank)), u32(self.team.size), u64(self._calls.data_ptr()),
            u64(int(PATIENCE / NS)), u64(self._error.data_ptr()),
        ]  # fmt: skip
        self._kernel.launch(blocks, THREADS, worker.stream, arguments)

    def timed_out(self) -> bool:
        """Whether some call waited too long; then its result is wrong."""
        return bool(self._error.item())

    def close(self) -> None:
        """Gives the buffers back; all members together."""
        self._memory.close()
        if self._flags is not None:
            self._flags.close()
