"""Which ranks a collective's group has. Ranks of a replica are numbered stage by stage, tensor-parallel rank first."""

from __future__ import annotations

from pciesim.workload import Parallelism

__all__ = ["ATTENTION_TP", "DCP", "EP", "PP", "TP", "members"]

TP = "tp"
ATTENTION_TP = "attention_tp"
EP = "ep"  # the same ranks as tp: experts are spread over all of them
DCP = "dcp"  # ranks in a row that spread the tokens of one KV cache
PP = "pp"  # a rank and its successor in the next stage


def members(parallelism: Parallelism, group: str, stage: int) -> tuple[tuple[int, ...], ...]:
    """All instances of a group that run the collective at the same time, each as ranks of the replica.

    TP2 x PP2, ``tp`` in stage 1: ``((2, 3),)``; ``pp`` from stage 0: ``((0, 2), (1, 3))``. Raises KeyError for a group
    that does not exist.
    """
    first, tp = stage * parallelism.tp, parallelism.tp
    match group:
        case "tp" | "ep":
            return (tuple(range(first, first + tp)),)
        case "attention_tp" | "dcp":
            width = parallelism.attention_tp if group == ATTENTION_TP else parallelism.dcp
            return tuple(tuple(range(first + d * width, first + (d + 1) * width)) for d in range(tp // width))
        case "pp":
            return tuple((rank, rank + tp) for rank in range(first, first + tp))
        case _:
            raise KeyError(group)
