"""A quantised wire: partial sums travel in fewer bits and are added wide."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.errors import UnknownName
from pciesim.scenario import Scenario
from pciesim.strategies.allreduce import needs_peers
from pciesim.strategies.strategy import Strategy

__all__ = ["FORMATS", "QUANTISED_WIRE"]

FORMATS: Final = ("fp8", "int8", "nvfp4")
_WIDE: Final = ("twoshot-push", "ce-ring")  # kernels with a quantised twin, if the table has them


def _apply(scenario: Scenario, argument: str) -> Scenario:
    if argument not in FORMATS:
        raise UnknownName("wire format", argument, FORMATS)
    base = scenario.allreduce if scenario.allreduce in _WIDE else _WIDE[0]
    return replace(scenario, allreduce=f"{base}-{argument}")


QUANTISED_WIRE: Final = Strategy(
    axis="wire",
    name="quantised",
    argument="fp8, int8 or nvfp4",
    sentence="all-reduces send quantised values with scales and add in bf16",
    source="Flash Communication, arXiv 2412.04964; b12x FP8 DMA ring; vLLM quick reduce (ROCm)",
    apply=_apply,
    obstacle=needs_peers,
    number="same",
    size="half (fp8, int8) or 0.28 (nvfp4 with scales) of the bytes",
    criticality="exposed, with quantisation in the kernel",
    risk="costs precision in every layer; no stock engine has it for PCIe",
    hurts="decode at small batch: messages are latency, not bytes",
    model_change=True,
)
