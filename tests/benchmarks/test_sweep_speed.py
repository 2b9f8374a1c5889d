"""Budget: 1,000 configurations within 5 s on two cores by the closed form, the ten fastest confirmed by simulation."""

from __future__ import annotations

import random
from time import perf_counter

import pytest

from pciesim.whatif.sweeping import confirm, sweep, sweep_grid

pytestmark = pytest.mark.bench

VARY = {
    "tp": ("4", "8"),
    "allreduce": ("nccl", "oneshot-push", "oneshot-pull", "twoshot-push", "hierarchical", "mscclpp", "pcie-ipc"),
    "nccl": ("default", "no-graph"),
    "batch": ("1", "4", "16", "32", "64"),
    "context": ("1024", "32768"),
    "gather": ("none", "argmax"),
    "slots": ("none", "x8"),
}


def test_a_thousand_configurations():
    cells = list(sweep_grid(topo="rtx6000x8", model="qwen35_397b", vary=VARY, fixed={}))
    random.Random(1).shuffle(cells)
    begin = perf_counter()
    rows = list(sweep(cells[:1000], jobs=2, hypothetical=True))
    taken = perf_counter() - begin
    best = confirm(rows, count=10)
    print(f"1,000 configurations in {taken:.2f} s, ten confirmed in {perf_counter() - begin - taken:.2f} s")  # noqa: T201
    assert len(rows) == 1000
    assert len(best) == 10
    assert taken < 5
