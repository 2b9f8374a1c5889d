"""Types of GPU: what the datasheet says. Figures live in the catalogue (``pciesim/catalogue/gpus.yaml``), with sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pciesim.units import Bytes, BytesPerSecond, FlopPerSecond

__all__ = ["GpuType"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A GPU model. ``key`` is its name in files (``rtx_pro_6000``), ``name`` what people call it.

    ``compute_capability`` is major * 10 + minor (SM120: 120). ``dense_flops`` maps a precision name (``bf16``,
    ``fp8``, ``nvfp4``) to dense tensor throughput. ``aliases`` are other spellings accepted in files.
    """

    key: str
    name: str
    compute_capability: int
    multiprocessors: int
    memory: Bytes
    memory_bandwidth: BytesPerSecond
    l2: Bytes
    dense_flops: Mapping[str, FlopPerSecond]
    pcie_generation: int
    pcie_width: int
    nvlink: bool
    source: str
    aliases: tuple[str, ...] = ()
