"""Compressed formats on the wire: bytes per byte of a 16-bit tensor, scales included.

A lossy format changes what an all-reduce returns; the schedule is that of the uncompressed algorithm. The time to
compress and expand is not modelled beyond the kernel's phase: it is memory-bound, a few per cent of the wire's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["WIRES", "Wire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """``bits`` an element, and one scale of ``scale_bits`` for every ``block`` elements."""

    bits: int
    scale_bits: int
    block: int
    source: str

    @property
    def ratio(self) -> float:
        """Bytes on the wire over bytes of a 16-bit tensor."""
        return (self.bits + self.scale_bits / self.block) / 16


WIRES: Final[Mapping[str, Wire]] = MappingProxyType({
    "fp8": Wire(bits=8, scale_bits=8, block=32, source="n + n/32 bytes: vllm-project/vllm host_staged_all_reduce.py"),
    "int8": Wire(bits=8, scale_bits=32, block=128, source="Flash Communication arXiv 2412.04964; block size assumed"),
    "nvfp4": Wire(bits=4, scale_bits=8, block=16,
                  source="n/2 + n/16 bytes: vllm-project/vllm host_staged_all_reduce.py"),
})  # fmt: skip
