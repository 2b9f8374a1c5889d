"""What a launch costs: empty kernels and tiny dependent kernels, in a graph and launched one by one; small graphs.

Rows: ``what``, ``mode``, seconds a kernel (or a replay).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pciesim.measure.team import Worker
from pciesim.measure.timing import alone

__all__ = ["run"]


def run(worker: Worker) -> None:
    """The first GPU only."""
    if worker.rank:
        return
    torch = worker.torch
    one = torch.zeros(1, device="cuda")
    wide = torch.randn(1, 4096, device="cuda", dtype=torch.bfloat16)
    cases: dict[str, Callable[[], Any]] = {
        "add to one element": lambda: one.add_(1.0),
        "add of 4096, each on the last": lambda: wide.add_(1.0),
    }
    empty = worker.kernel("empty_kernel")
    if empty is not None:
        cases["empty kernel"] = lambda: empty.launch(1, 1, worker.stream, [])
        cases["empty kernel, 128 blocks"] = lambda: empty.launch(128, 256, worker.stream, [])
    for name, call in cases.items():
        for mode in ("graph", "eager"):
            found = alone(worker, [call], rounds=200, eager=mode == "eager")
            worker.row(what=name, mode=mode, gpu=worker.device, **found.row())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        one.add_(1.0)
    found = alone(worker, [graph.replay], rounds=50, eager=True)
    worker.row(what="replay of a graph of one kernel", mode="eager", gpu=worker.device, **found.row())
