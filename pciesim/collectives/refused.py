"""Algorithms that people ask for and that cannot run between GPUs joined by PCIe; each with the reason."""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from pciesim.collectives import oneshot
from pciesim.collectives.entry import AlgorithmEntry, Cost, Needs
from pciesim.collectives.task import Task
from pciesim.errors import Infeasible
from pciesim.schedule import CollectiveKind

__all__ = ["MULTIMEM", "NCCL_SYMMETRIC", "NVLS", "SYMM_MEM"]


def _never(task: Task) -> NoReturn:
    raise Infeasible(f"this algorithm is not modelled on '{task.fabric.name}'")


def _entry(traversals: str, nbytes: str, reason: str, about: str, source: str) -> AlgorithmEntry:
    cost = Cost(traversals=traversals, messages="n-1", nbytes=nbytes)
    return AlgorithmEntry(lower=_never, costs={CollectiveKind.ALL_REDUCE: cost}, about=about, source=source,
                          needs=Needs(refused=reason))  # fmt: skip


SYMM_MEM: Final = AlgorithmEntry(
    lower=partial(oneshot.lower_pull, end_barrier=True, atomic=True, name="symm-mem"),
    costs={CollectiveKind.ALL_REDUCE: Cost(traversals="6", messages="n-1", nbytes="(n-1)*S")},
    about="loads between two compare-and-swap barriers (torch symmetric memory, one-shot); runs over NVLink only",
    source="pytorch CUDASymmetricMemoryOps.cu; vllm-project/vllm symm_mem_pcie_barrier.py",
    needs=Needs(
        nvlink="its barriers are compare-and-swaps in peer memory, and PCIe gives GPUs no native peer-to-peer atomics "
        "(signals get lost); its multimem variants need NVLink multicast"
    ),
)
MULTIMEM: Final = _entry(
    "2",
    "S",
    "multicast loads and stores need NVLink SHARP (NVSwitch)",
    "torch multimem one-shot and two-shot",
    "pytorch CUDASymmetricMemoryOps.cu",
)
NVLS: Final = _entry(
    "2",
    "S",
    "NVLink SHARP needs an NVSwitch",
    "NCCL's in-switch reduction",
    "NVIDIA/nccl src/transport/nvls.cc",
)
NCCL_SYMMETRIC: Final = _entry(
    "1",
    "(n-1)*S",
    "NCCL's symmetric-memory kernels need NVLink between all ranks (one LSA team)",
    "NCCL symmetric kernels (2.27 and later)",
    "NVIDIA/nccl src/device/symmetric",
)
