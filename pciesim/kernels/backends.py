"""Which kernels an engine runs where several serve the same op, and how its tokens are routed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SPREAD", "Backends", "routing_of", "spread_of"]

SPREAD: Final = (0.0, 1.0, 1.6)
"""Lowest, usual and highest spread of experts' popularity: the range that a time's interval covers.

Uniform routing (0) hits most experts. Published steps of Qwen3.5-397B at 64 users on one stack (vLLM 0.17,
``vllm_017_lukealonso``) take less than uniform routing could at the memory's achieved bandwidth; of 0, 0.5, 1, 1.5 and
2 the spread 1 misses that stack's steps least, and is then checked on the others (docs/engines.md).
"""
_LOGNORMAL: Final = "lognormal_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """An engine's choice of kernels, as in its YAML, and the routing skew of the workload.

    ``engine`` is ``sglang``, ``vllm`` or ``trtllm`` (whose rows are preferred); ``experts`` the routed-expert backend
    (``flashinfer_cutlass``, ``triton``, ``marlin``, ...); ``attention`` the decode attention backend (``flashinfer``,
    ``triton``, ``sdpa``). ``routing`` is ``lognormal_S``, S the spread of the experts' popularity (see
    :mod:`pciesim.routing`; 0 is uniform), or the label of measured rows: ``balanced``, ``power_law_1.01``,
    ``power_law_1.2``.
    """

    engine: str = "sglang"
    experts: str = "flashinfer_cutlass"
    attention: str = "flashinfer"
    routing: str = f"{_LOGNORMAL}{SPREAD[1]}"


def routing_of(spread: float) -> str:
    """The name of the routing with that spread of popularity."""
    return f"{_LOGNORMAL}{spread}"


def spread_of(routing: str) -> float | None:
    """The spread that a routing names, or None where it is the label of measured rows."""
    return float(routing.removeprefix(_LOGNORMAL)) if routing.startswith(_LOGNORMAL) else None
