"""What an imported file does not say of itself: the topology, the GPUs, the NCCL variables."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ImportContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportContext:
    """``gpus`` None: as many as the file says, from the first."""

    topology: str
    gpus: tuple[int, ...] | None = None
    nccl: tuple[tuple[str, str], ...] = ()
    algorithm: str = "nccl"

    def group(self, count: int) -> tuple[int, ...]:
        """The GPUs of a run over ``count`` of them."""
        return self.gpus if self.gpus is not None and len(self.gpus) == count else tuple(range(count))
