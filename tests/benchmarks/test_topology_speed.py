"""How fast a large machine is read and built. Run alone: ``make bench``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pciesim.fabric import Fabric
from pciesim.formats.topology import assemble
from pciesim.formats.topology_overlay import OverlayDocument
from pciesim.formats.topology_smi import TopologyMatrix, parse_matrix, render_matrix
from pciesim.units import MS

pytestmark = pytest.mark.bench

GPUS, NICS = 16, 20


def word(one: int, other: int) -> str:
    """Two GPUs and two or three NICs a switch, four switches a socket, NVLink among the GPUs."""
    if one == other:
        return "X"
    if one < GPUS and other < GPUS:
        return "NV18"
    at = [place if place < GPUS else (place - GPUS) * GPUS // NICS for place in (one, other)]
    return "PIX" if at[0] // 2 == at[1] // 2 else "NODE" if at[0] // 8 == at[1] // 8 else "SYS"


MATRIX = TopologyMatrix(
    gpus=tuple(f"GPU{number}" for number in range(GPUS)),
    nics=tuple(f"NIC{number}" for number in range(NICS)),
    cells=tuple(tuple(word(one, other) for other in range(GPUS + NICS)) for one in range(GPUS + NICS)),
    cpu_affinity=tuple("0-63" if gpu < 8 else "64-127" for gpu in range(GPUS)),
    numa_affinity=tuple(str(gpu // 8) for gpu in range(GPUS)),
)


def test_sixteen_gpus_and_twenty_nics(benchmark: Callable[..., Any]) -> None:
    """Text to fabric: parsed, inferred, built. Under 10 ms."""
    text = render_matrix(MATRIX)
    overlay = OverlayDocument.model_validate(
        {"schema": "pciesim/topology/1", "gpu": "h200", "host": {"cpu": "xeon_emr"}}
    )

    def load() -> Fabric:
        return assemble(parse_matrix(text, source="box.txt"), overlay, name="box")

    fabric = benchmark(load)
    assert len(fabric.islands) == 8
    stats = benchmark.stats.stats  # type: ignore[attr-defined]
    assert stats.median < 10 * MS
