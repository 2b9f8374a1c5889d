"""One-shot all-reduce kernels through pinned host memory, for boxes without peer-to-peer. Rows as ``oneshot_peer``."""

from __future__ import annotations

from typing import Final

from pciesim.measure.experiments.oneshot_peer import time_variants
from pciesim.measure.team import Worker
from pciesim.units import KIB, MIB

__all__ = ["run"]

SIZES: Final = tuple(KIB * 2**power for power in range(11))  # 1 KiB to 1 MiB
QUICK: Final = (KIB, 8 * KIB, 32 * KIB, 128 * KIB, MIB)


def run(worker: Worker) -> None:
    """Stores polled by the others, and flags with loads behind them."""
    time_variants(worker, ("push_host", "pull_host"), SIZES if worker.full else QUICK)
