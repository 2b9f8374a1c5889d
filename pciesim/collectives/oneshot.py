"""One phase: every rank gets what it needs from every other at once.

Push with sentinels ("Lamport"; TensorRT-LLM, FlashInfer PCIe-IPC unstaged): each rank stores into a slot of every peer
and polls its own slots; one traversal, no barrier, rotating slot sets. Pull with a flag barrier and double buffers
(b12x, the PCIe one-shot of SGLang forks): stage locally, flag the peers, load from them; three traversals. vLLM's
one-stage kernel ends with a second barrier instead of staging: four.

All-reduce moves the whole tensor n - 1 times; all-gather, all-to-all, reduce-scatter and broadcast only what they must.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost, Needs
from pciesim.collectives.program import Buffer
from pciesim.collectives.steps import Steps, Waits
from pciesim.collectives.task import Lowered, Task
from pciesim.schedule import CollectiveKind
from pciesim.units import Bytes

__all__ = ["PULL", "PUSH", "VLLM_1STAGE", "Parcel", "lower_pull", "lower_push", "parcels"]

Parcel = tuple[int, int, Bytes, Buffer, Buffer]
"""What one rank owes another: source, target, bytes, buffer at the source, buffer at the target."""

_SUM: Final = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)


def parcels(task: Task) -> tuple[int, list[Parcel]]:
    """(number of chunks, what each rank owes each other), nearest ring distance first."""
    n, kind, nbytes = len(task.gpus), task.kind, task.nbytes

    def one(source: int, target: int) -> Parcel | None:
        match kind:
            case CollectiveKind.ALL_REDUCE:
                return (source, target, nbytes, ("data", 0), ("slot", source))
            case CollectiveKind.REDUCE_SCATTER:
                return (source, target, nbytes / n, ("data", target), ("slot", source))
            case CollectiveKind.ALL_GATHER:
                return (source, target, nbytes, ("data", source), ("data", source))
            case CollectiveKind.ALL_TO_ALL:
                return (source, target, task.block(source, target), ("data", target), ("out", source))
            case CollectiveKind.BROADCAST:
                return (source, target, nbytes, ("data", 0), ("data", 0)) if source == 0 else None
            case CollectiveKind.SEND_RECV:
                return (source, target, nbytes, ("data", 0), ("out", 0)) if target == (source + 1) % n else None

    owed = [one(source, (source + distance) % n) for distance in range(1, n) for source in range(n)]
    chunks = n if kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL) else 1
    return chunks, [parcel for parcel in owed if parcel is not None]


def lower_push(task: Task, *, wire: float = 1.0, name: str = "oneshot-push") -> Lowered:
    """Sentinel one-shot push."""
    costs, steps = task.costs.push, Steps(task, wire=wire)
    chunks, owed = parcels(task)
    waits = steps.launch(costs.base)
    for source, target, nbytes, read, write in owed:
        position = steps.store(source, target, nbytes, after=waits[source][:1], moves=[(read, write)],
                               landing=task.kind not in _SUM, share=costs.share)  # fmt: skip
        waits[target] = (*waits[target], position)
    _reduce(steps, waits)
    # Two sets of slots are enough for sums: a peer cannot be two calls ahead without this rank's own message.
    # What a rank only receives gives the sender no sign of life, so three calls may overlap.
    return steps.lowered(name, "sentinel", chunks=chunks, epochs=2 if _mutual(task) else 3)


def _mutual(task: Task) -> bool:
    """Whether every rank hears from every other within a call."""
    return task.kind not in (CollectiveKind.BROADCAST, CollectiveKind.SEND_RECV)


def lower_pull(task: Task, *, end_barrier: bool = False, atomic: bool = False, name: str = "oneshot-pull") -> Lowered:
    """One-shot pull behind a flag barrier; ``end_barrier`` adds vLLM's closing one, ``atomic`` swaps flags in place."""
    costs, steps = task.costs.pull, Steps(task)
    chunks, owed = parcels(task)
    staged: dict[tuple[int, Buffer], Buffer] = {}
    waits = steps.launch(costs.base)
    launched = list(waits)
    if not end_barrier:  # what peers load must outlive the call: a staged copy
        for source, _, _, read, _ in owed:
            if (source, read) not in staged:
                copy = staged[source, read] = ("staged", read[1])
                stage = steps.local(source, after=launched[source], reads=[read], write=copy)
                waits[source] = (*waits[source], stage)
    waits = steps.barrier(waits, atomic=atomic)
    for source, target, nbytes, read, write in owed:
        position = steps.load(target, source, nbytes, after=waits[target], share=costs.share,
                              moves=[(staged.get((source, read), read), write)])  # fmt: skip
        launched[target] = (*launched[target], position)
    if end_barrier:  # loads are over before anyone overwrites its input
        launched = steps.barrier(launched, atomic=atomic)
    _reduce(steps, launched)
    return steps.lowered(name, "compare-and-swap" if atomic else "flags", chunks=chunks, epochs=1 if end_barrier else 2)


def _reduce(steps: Steps, waits: Waits) -> None:
    """Every rank adds its slots to what it has, where the collective sums."""
    kind = steps.task.kind
    if kind not in _SUM:
        return
    for rank in steps.ranks:
        own: Buffer = ("data", 0 if kind is CollectiveKind.ALL_REDUCE else rank)
        slots = [("slot", other) for other in steps.ranks if other != rank]
        steps.local(rank, after=waits[rank], reads=[own, *slots], write=own)


def _costs(traversals: str) -> dict[CollectiveKind, Cost]:
    return {
        CollectiveKind.ALL_REDUCE: Cost(traversals=traversals, messages="n-1", nbytes="(n-1)*S"),
        CollectiveKind.REDUCE_SCATTER: Cost(traversals=traversals, messages="n-1", nbytes="(n-1)/n*S"),
        CollectiveKind.ALL_GATHER: Cost(traversals=traversals, messages="n-1", nbytes="(n-1)*S"),
        CollectiveKind.ALL_TO_ALL: Cost(traversals=traversals, messages="n-1", nbytes="(n-1)/n*S"),
        CollectiveKind.SEND_RECV: Cost(traversals=traversals, messages="1", nbytes="S"),
    }


_lower_vllm: Final[Callable[[Task], Lowered]] = partial(lower_pull, end_barrier=True, name="vllm-1stage")

PUSH: Final = AlgorithmEntry(
    lower=lower_push,
    costs={**_costs("1"), CollectiveKind.BROADCAST: Cost(traversals="1", messages="n-1", nbytes="(n-1)*S")},
    about="every rank stores its tensor into a slot of every peer; sentinels instead of flags, no barrier",
    source="TensorRT-LLM, FlashInfer trtllm_allreduce_fusion and PCIe-IPC unstaged; SGLang CustomAllReduceV2",
)
PULL: Final = AlgorithmEntry(
    lower=lower_pull,
    costs={**_costs("3"), CollectiveKind.BROADCAST: Cost(traversals="3", messages="1", nbytes="(n-1)*S")},
    about="every rank stages its tensor, flags its peers and loads theirs; double-buffered",
    source="local-inference-lab/b12x; PCIe one-shot of SGLang forks (lukealonso)",
)
VLLM_1STAGE: Final = AlgorithmEntry(
    lower=_lower_vllm,
    costs={CollectiveKind.ALL_REDUCE: Cost(traversals="4", messages="n-1", nbytes="(n-1)*S")},
    about="pull between two flag barriers; by its own gate for 2 ranks, or with NVLink everywhere",
    source="vllm-project/vllm csrc/custom_all_reduce.cuh",
    needs=Needs(worlds=(2, 4, 6, 8)),
)
