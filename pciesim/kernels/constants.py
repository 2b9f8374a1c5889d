"""What a GPU's kernels achieve of its datasheet, and the small kernels that have a floor instead of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pciesim.kernels.times import KernelSource
from pciesim.units import Seconds

__all__ = ["KernelConstants", "SmallKernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallKernel:
    """Seconds of a small kernel whose bytes do not matter, inside a CUDA graph."""

    value: Seconds
    low: Seconds
    high: Seconds
    source: KernelSource
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstants:
    """Fractions of the datasheet and fixed costs, as ``constants.yaml`` of a GPU's folder states and sources them.

    ``bandwidth_fraction``: achieved over datasheet memory bandwidth of a large GEMM's weights. ``flops_fraction``: the
    same for dense tensor FLOP/s by precision. ``launch``: what a cold kernel costs beyond its bytes. ``l2_rate``:
    bytes of activations per second over the datasheet memory bandwidth, when they come from L2. ``l2_resident``: GEMM
    weights below this share of the L2 stayed there while the benchmark repeated the kernel. ``gap``: what a dependent
    kernel of a step costs beyond its stand-alone time in a graph. ``small``: kernels by kind. ``experts_cold``:
    by table of routed experts, the share of their weights' time from device memory that rows with weights in L2 did
    not see.
    """

    bandwidth_fraction: float
    flops_fraction: Mapping[str, float]
    launch: Seconds
    l2_rate: float
    l2_resident: float
    gap: SmallKernel
    small: Mapping[str, SmallKernel]
    experts_cold: Mapping[str, float]
