"""The processes of a run, one per GPU: who they are, how they agree on a number, where their rows go."""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pciesim.measure.compiler import CompileError, compile_kernels
from pciesim.measure.driver import Driver, Kernel
from pciesim.measure.rows import append, finding

__all__ = ["NcclGroup", "Shared", "Team", "Worker", "load_torch"]

KERNELS: Final = ("load_chain", "ping_pong", "fence_rounds", "empty_kernel", "copy16", "oneshot_push", "oneshot_shared",
                  "oneshot_pull")  # fmt: skip
SHM: Final = Path("/dev/shm")


@dataclass(slots=True, kw_only=True)
class Worker:
    """One process with one GPU. ``device`` is its CUDA index, ``gpus`` those of all ranks."""

    torch: Any
    rank: int
    gpus: tuple[int, ...]
    out: Path
    transport: str
    full: bool
    experiment: str = ""
    driver: Driver = field(default_factory=Driver)
    _kernels: dict[str, Kernel] = field(default_factory=dict)
    _teams: dict[int, Team] = field(default_factory=dict)
    _compile_failed: bool = False

    @property
    def device(self) -> int:
        """CUDA index of this rank's GPU."""
        return self.gpus[self.rank]

    @property
    def dist(self) -> Any:
        """``torch.distributed``."""
        return self.torch.distributed

    @property
    def stream(self) -> int:
        """Address of PyTorch's current stream, for kernels of our own."""
        return int(self.torch.cuda.current_stream().cuda_stream)

    def row(self, **values: Any) -> None:
        """Writes a row of the experiment at hand; only the first rank writes."""
        if self.rank == 0:
            append(self.out / f"{self.experiment}.jsonl", {"experiment": self.experiment, **values})

    def finding(self, text: str) -> None:
        """Says something about the machine in the manifest; only the first rank does."""
        if self.rank == 0:
            finding(self.out, self.experiment, text)

    def kernel(self, name: str) -> Kernel | None:
        """One of our kernels, compiled at first use; None where they cannot be compiled (then there is a finding)."""
        if not self._kernels and not self._compile_failed:
            try:
                image = compile_kernels(self.torch.cuda.get_device_capability())
                self._kernels = self.driver.load(image, KERNELS)
            except CompileError as error:
                self._compile_failed = True
                self.finding(f"own kernels cannot be compiled: {error}")
        return self._kernels.get(name)

    def team(self, size: int) -> Team:
        """The first ``size`` ranks. Every process must ask for the same teams in the same order."""
        if size not in self._teams:
            ranks = list(range(size))
            group = self.dist.new_group(ranks, backend="gloo") if size < len(self.gpus) else self.dist.group.WORLD
            self._teams[size] = Team(worker=self, ranks=tuple(ranks), group=group)
        return self._teams[size]

    def teams(self) -> list[Team]:
        """Teams of 2, 4 and 8 as far as the GPUs go, the largest first, and of all."""
        sizes = {size for size in (2, 4, 8, 16) if size <= len(self.gpus)} | {len(self.gpus)}
        return [self.team(size) for size in sorted(sizes, reverse=True) if size > 1]


@dataclass(slots=True, kw_only=True)
class Team:
    """Some of the ranks. Its methods are called by all of its members and by nobody else."""

    worker: Worker
    ranks: tuple[int, ...]
    group: Any

    @property
    def size(self) -> int:
        """How many ranks."""
        return len(self.ranks)

    @property
    def member(self) -> bool:
        """Whether this process is one of them."""
        return self.worker.rank in self.ranks

    @property
    def gpus(self) -> list[int]:
        """CUDA indexes of the members."""
        return [self.worker.gpus[rank] for rank in self.ranks]

    def gather(self, value: Any) -> list[Any]:
        """What every member passed, in rank order."""
        found: list[Any] = [None] * self.size
        self.worker.dist.all_gather_object(found, value, group=self.group)
        return found

    def barrier(self) -> None:
        """Waits for all members."""
        self.gather(None)

    def worst(self, values: Sequence[float]) -> list[float]:
        """The largest over the members, element by element: a collective is over when its last rank is."""
        return [max(each) for each in zip(*self.gather(list(values)), strict=True)]

    def all_true(self, value: bool) -> bool:
        """Whether every member says yes."""
        return all(self.gather(bool(value)))


class NcclGroup:
    """A communicator of a team made under variables that NCCL reads when it makes one. To be closed by all ranks."""

    __slots__ = ("handle", "team")

    def __init__(self, team: Team, variables: dict[str, str], channels: int | None = None) -> None:
        worker = team.worker
        options = None
        if channels is not None:
            options = worker.dist.ProcessGroupNCCL.Options()
            options.config.min_ctas = options.config.max_ctas = channels
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        self.team = team
        self.handle = worker.dist.new_group(list(team.ranks), backend="nccl", pg_options=options)
        if team.member:  # the communicator is made by the first call
            first = worker.torch.ones(8, device=f"cuda:{worker.device}")
            worker.dist.all_reduce(first, group=self.handle)
            worker.torch.cuda.synchronize()
            if first[0].item() != team.size:
                raise RuntimeError(f"all-reduce of {team.size} ones gave {first[0].item()}")
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def close(self) -> None:
        """Gives the communicator back."""
        self.team.worker.torch.cuda.synchronize()
        if self.team.member:
            self.team.worker.dist.destroy_process_group(self.handle)


class Shared:
    """Memory that every member of a team reaches: one area per member, in GPU memory or in pinned host memory.

    ``areas`` are the addresses, in rank order, by which this rank's GPU reaches them.
    """

    __slots__ = ("_close", "areas")

    def __init__(self, areas: list[int], close: Callable[[], None]) -> None:
        self.areas, self._close = areas, close

    @classmethod
    def peer(cls, team: Team, nbytes: int) -> Shared:
        """An allocation on every GPU, opened by all the others."""
        driver = team.worker.driver
        own = driver.allocate(nbytes)
        handles = team.gather(driver.export(own))
        areas = [own if rank == team.worker.rank else driver.open(handle) for rank, handle in enumerate(handles)]

        def close() -> None:
            team.worker.torch.cuda.synchronize()
            for address in areas:
                if address != own:
                    driver.close(address)
            team.barrier()
            driver.free(own)

        return cls(areas, close)

    @classmethod
    def host(cls, team: Team, nbytes: int, word: bytes = bytes(4)) -> Shared:
        """Pinned host memory in one file of /dev/shm, filled with a word of four bytes.

        Every member writes its own area first, so that it lies near it.
        """
        driver, rank = team.worker.driver, team.worker.rank
        page = mmap.PAGESIZE
        each = -(-nbytes // page) * page
        path = SHM / f"pciesim-{team.gather(os.getpid())[0]}"
        if rank == 0:
            path.write_bytes(b"")
            os.truncate(path, each * team.size)
        team.barrier()
        with path.open("r+b") as file:
            view = mmap.mmap(file.fileno(), each * team.size)
        view[rank * each : (rank + 1) * each] = word * (each // len(word))
        team.barrier()
        if rank == 0:
            path.unlink()
        anchor = (ctypes.c_char * (each * team.size)).from_buffer(view)
        address = ctypes.addressof(anchor)
        base = driver.register_host(address, each * team.size)

        def close() -> None:
            nonlocal anchor
            team.worker.torch.cuda.synchronize()
            team.barrier()
            driver.unregister_host(address)
            del anchor

        return cls([base + index * each for index in range(team.size)], close)

    def close(self) -> None:
        """Gives the memory back; all members together."""
        self._close()


def load_torch() -> Any:
    """PyTorch, imported now."""
    return importlib.import_module("torch")
