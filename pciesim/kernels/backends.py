"""Which kernels an engine runs where several serve the same op."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Backends"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """An engine's choice of kernels, as in its YAML, and the routing skew of the workload.

    ``engine`` is ``sglang``, ``vllm`` or ``trtllm`` (whose rows are preferred); ``experts`` the routed-expert backend
    (``flashinfer_cutlass``, ``triton``, ``marlin``, ...); ``attention`` the decode attention backend (``flashinfer``,
    ``triton``, ``sdpa``). ``routing`` is ``balanced``, ``power_law_1.01`` or ``power_law_1.2``: real routers are
    skewed, so the mild power law is the default.
    """

    engine: str = "sglang"
    experts: str = "flashinfer_cutlass"
    attention: str = "flashinfer"
    routing: str = "power_law_1.01"
