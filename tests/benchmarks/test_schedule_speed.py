"""Seconds that schedules may cost (budget for a laptop; run alone)."""

from __future__ import annotations

import time

import pytest

from pciesim.formats.engine_yaml import load_engine
from pciesim.formats.model import load_model
from pciesim.formats.shipped import find_input
from pciesim.schedule import build
from pciesim.units import MS
from pciesim.workload import Parallelism, Workload


@pytest.mark.bench
@pytest.mark.parametrize("name", ["glm47", "kimi_k3", "nemotron3_ultra"])
def test_building_the_schedule_of_a_90_layer_model(name: str) -> None:
    model, engine = load_model(find_input("models", name)), load_engine("sglang")
    times = []
    for batch in (1, 2, 4, 8, 12):
        start = time.perf_counter()
        schedule = build(model, Workload(batch=batch), Parallelism(tp=8), engine)
        times.append(time.perf_counter() - start)
    print(f"{name}: {len(model.layers)} layers, {len(schedule.ops)} ops, {min(times) / MS:.2f} ms")  # noqa: T201
    assert min(times) < 10 * MS
