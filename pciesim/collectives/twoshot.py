"""Two phases: reduce-scatter, then all-gather of the sums, each with all peers at once.

Push with sentinels in both phases (FlashInfer PCIe-IPC rsag_push): two traversals. Pull with a flag barrier before each
(vLLM's two-stage kernel): six. TensorRT-LLM's two-shot pulls first and pushes the sums, fenced, behind a barrier.
Either way 2 (n-1)/n of the tensor passes a port instead of n - 1 tensors.
"""

from __future__ import annotations

from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost, Needs
from pciesim.collectives.program import Buffer
from pciesim.collectives.steps import Steps, Waits
from pciesim.collectives.task import Lowered, Task
from pciesim.schedule import CollectiveKind

__all__ = ["PULL", "PUSH", "TRTLLM", "VLLM_2STAGE", "lower_pull", "lower_push", "lower_trtllm", "lower_vllm"]


def lower_push(
    task: Task, *, wire: float = 1.0, expansion: float = 1.0, name: str = "twoshot-push", protocol: str = "sentinel"
) -> Lowered:
    """Each rank pushes piece p to rank p, which adds and pushes the sum to everyone.

    ``wire`` scales the payload (a compressed format), ``expansion`` what a payload byte takes of a link (flags).
    """
    costs, steps, n = task.costs.push, Steps(task, wire=wire), len(task.gpus)
    share = costs.share / expansion
    waits = steps.launch(costs.base)
    launched = list(waits)
    piece = task.nbytes / n
    for distance in range(1, n):
        for source in steps.ranks:
            target = (source + distance) % n
            position = steps.store(source, target, piece, after=launched[source], share=share, landing=False,
                                   moves=[(("data", target), ("slot", source))])  # fmt: skip
            waits[target] = (*waits[target], position)
    sums = _sum(steps, waits)
    for distance in range(1, n):
        for source in steps.ranks:
            steps.store(source, (source + distance) % n, piece, after=(sums[source],), share=share,
                        moves=[(("sum", 0), ("data", source))])  # fmt: skip
    return steps.lowered(name, protocol, chunks=n, epochs=2)


def _sum(steps: Steps, waits: Waits) -> list[int]:
    """Every rank adds its piece; the sum is kept beside the tensor for peers and put into the tensor."""
    found = []
    for rank in steps.ranks:
        own: Buffer = ("data", rank)
        slots = [("slot", other) for other in steps.ranks if other != rank]
        added = steps.local(rank, after=waits[rank], reads=[own, *slots], write=("sum", 0),
                            duration=steps.task.costs.phase)  # fmt: skip
        steps.local(rank, after=(added,), reads=[("sum", 0)], write=own)
        found.append(added)
    return found


def lower_pull(task: Task, *, staged: bool = True, name: str = "twoshot-pull") -> Lowered:
    """Flag barrier, loads of one's piece, flag barrier, loads of the sums. ``staged`` double-buffers the input."""
    costs, steps, n = task.costs.pull, Steps(task), len(task.gpus)
    launched = steps.launch(costs.base)
    waits, source_name = list(launched), "data"
    if staged:
        source_name = "staged"
        for rank in steps.ranks:
            for chunk in steps.ranks:
                if chunk != rank:
                    stage = steps.local(rank, after=launched[rank], reads=[("data", chunk)], write=("staged", chunk))
                    waits[rank] = (*waits[rank], stage)
    sums = _reduce_scatter_by_loads(steps, steps.barrier(waits), launched, source_name)
    ready = steps.barrier([(each,) for each in sums])
    for distance in range(1, n):
        for target in steps.ranks:
            source = (target + distance) % n
            steps.load(target, source, task.nbytes / n, after=ready[target], share=costs.share,
                       moves=[(("sum", 0), ("data", source))])  # fmt: skip
    # Unstaged: nobody writes a sum before the next call's barrier, which its readers pass when they are done.
    return steps.lowered(name, "flags", chunks=n, epochs=2 if staged else 1)


def _reduce_scatter_by_loads(steps: Steps, ready: Waits, launched: Waits, source_name: str) -> list[int]:
    task, n = steps.task, len(steps.task.gpus)
    loads = list(launched)
    for distance in range(1, n):
        for target in steps.ranks:
            source = (target + distance) % n
            position = steps.load(target, source, task.nbytes / n, after=ready[target], share=task.costs.pull.share,
                                  moves=[((source_name, target), ("slot", source))])  # fmt: skip
            loads[target] = (*loads[target], position)
    return _sum(steps, loads)


def lower_vllm(task: Task) -> Lowered:
    """vLLM's two-stage kernel: it reads the registered input itself; the second barrier protects it."""
    return lower_pull(task, staged=False, name="vllm-2stage")


def lower_trtllm(task: Task) -> Lowered:
    """Stage, barrier, loads of one's piece; the sums are stored to every peer, fenced, behind a barrier."""
    costs, steps, n = task.costs.pull, Steps(task), len(task.gpus)
    launched = steps.launch(costs.base)
    waits = list(launched)
    for rank in steps.ranks:
        for chunk in steps.ranks:
            if chunk != rank:
                stage = steps.local(rank, after=launched[rank], reads=[("data", chunk)], write=("staged", chunk))
                waits[rank] = (*waits[rank], stage)
    sums = _reduce_scatter_by_loads(steps, steps.barrier(waits), launched, "staged")
    for distance in range(1, n):
        for source in steps.ranks:
            steps.store(source, (source + distance) % n, task.nbytes / n, after=(sums[source],), fenced=True,
                        share=task.costs.push.share, moves=[(("sum", 0), ("data", source))])  # fmt: skip
    return steps.lowered("trtllm-twoshot", "flags", chunks=n, epochs=2)


_ALL_REDUCE: Final = CollectiveKind.ALL_REDUCE

PUSH: Final = AlgorithmEntry(
    lower=lower_push,
    costs={_ALL_REDUCE: Cost(traversals="2", messages="2*(n-1)", nbytes="2*(n-1)/n*S")},
    about="pushes pieces to their owners, who push the sums to everyone; sentinels in both phases",
    source="flashinfer-ai/flashinfer PR 4393, include/flashinfer/comm/pcie_ipc_all_reduce.cuh (rsag_push)",
)
PULL: Final = AlgorithmEntry(
    lower=lower_pull,
    costs={_ALL_REDUCE: Cost(traversals="6", messages="2*(n-1)", nbytes="2*(n-1)/n*S")},
    about="loads of one's piece behind a flag barrier, then loads of the sums behind another; double-buffered",
    source="as vllm-2stage, with the input staged as in b12x's one-shot",
)
VLLM_2STAGE: Final = AlgorithmEntry(
    lower=lower_vllm,
    costs={_ALL_REDUCE: Cost(traversals="6", messages="2*(n-1)", nbytes="2*(n-1)/n*S")},
    about="vLLM's two-stage kernel; by its own gate off for more than 2 ranks without NVLink",
    source="vllm-project/vllm csrc/custom_all_reduce.cuh",
    needs=Needs(worlds=(2, 4, 6, 8)),
)
TRTLLM: Final = AlgorithmEntry(
    lower=lower_trtllm,
    costs={_ALL_REDUCE: Cost(traversals="5", messages="2*(n-1)", nbytes="2*(n-1)/n*S")},
    about="pulls one's piece, then stores the sums to every peer, fenced, behind a flag",
    source="TensorRT-LLM two-shot as in flashinfer trtllm_allreduce_fusion.cuh",
)
