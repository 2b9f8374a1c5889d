"""FlashInfer's PCIe-IPC all-reduce: the variant its untuned dispatch picks.

Up to 32 KiB one-shot push; beyond, the island kernel on two islands of four, else reduce-scatter and all-gather pushed.
On a box whose posted writes collapse, staged permutations instead. A tuned table would choose by measurement; the
shipped seed is 15 % slower than that at the median (PR 4393).
"""

from __future__ import annotations

from typing import Final

from pciesim.collectives import hierarchical, oneshot, permutation, twoshot
from pciesim.collectives.entry import AlgorithmEntry, Cost
from pciesim.collectives.islands import equal_islands
from pciesim.collectives.task import Lowered, Task
from pciesim.schedule import CollectiveKind
from pciesim.units import KIB

__all__ = ["PCIE_IPC", "lower_pcie_ipc"]

_ONE_SHOT_LIMIT: Final = 32 * KIB


def lower_pcie_ipc(task: Task) -> Lowered:
    """The variant for this size and box; gathers, scatters and exchanges are direct."""
    if task.kind is not CollectiveKind.ALL_REDUCE or task.nbytes <= _ONE_SHOT_LIMIT:
        return oneshot.lower_push(task, name="pcie-ipc unstaged")
    islands = equal_islands(task) or ()
    if len(islands) == 2 and len(task.gpus) == 8:
        return hierarchical.lower_push(task, name="pcie-ipc topo_rsag8")
    if task.fabric.write_collapse is not None and len(task.gpus) > 2:
        return permutation.lower_staged(task, name="pcie-ipc staged ring")
    return twoshot.lower_push(task, name="pcie-ipc rsag_push")


PCIE_IPC: Final = AlgorithmEntry(
    lower=lower_pcie_ipc,
    costs={
        CollectiveKind.ALL_REDUCE: Cost(traversals="1 if S <= 32768 else -1", messages="-1", nbytes="-1"),
        CollectiveKind.ALL_GATHER: Cost(traversals="1", messages="n-1", nbytes="(n-1)*S"),
        CollectiveKind.REDUCE_SCATTER: Cost(traversals="1", messages="n-1", nbytes="(n-1)/n*S"),
    },
    about="one-shot push to 32 KiB, then islands, staged rounds or two-shot push by topology",
    source="flashinfer-ai/flashinfer PR 4393 (commit 299e6d11e), PR 5023",
)
