"""Types of GPU, host CPU and PCIe switch: what datasheets and standards say.

Figures live in the catalogue (``pciesim/catalogue/*.yaml``), with sources; :mod:`pciesim.formats.catalogue` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pciesim.units import GB, Bytes, BytesPerSecond, FlopPerSecond, Seconds

__all__ = ["PCIE_GENERATIONS", "PCIE_WIDTHS", "GpuType", "HostType", "SwitchType", "pcie_bandwidth"]

PCIE_WIDTHS: Final = (1, 2, 4, 8, 16)

# Per lane and direction after line encoding: 8b/10b at 2.5 and 5 GT/s, 128b/130b at 8, 16 and 32 GT/s, and at 64 GT/s
# the flit's share of TLP bytes (236 of 256). Source: PCI Express base specification, as in pcie-bench/pcie-model.
_LANE: Final = {
    1: 2.5 * GB * 8 / 10 / 8,
    2: 5.0 * GB * 8 / 10 / 8,
    3: 8.0 * GB * 128 / 130 / 8,
    4: 16.0 * GB * 128 / 130 / 8,
    5: 32.0 * GB * 128 / 130 / 8,
    6: 64.0 * GB * 236 / 256 / 8,
}
PCIE_GENERATIONS: Final = tuple(_LANE)


def pcie_bandwidth(generation: int, width: int) -> BytesPerSecond:
    """Line rate of one direction after encoding: Gen5 x16 is 63.015 GB/s. Raises KeyError for an unknown generation."""
    return _LANE[generation] * width


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A GPU model. ``key`` is its name in files (``rtx_pro_6000``), ``name`` what people call it.

    ``compute_capability`` is major * 10 + minor (SM120: 120). ``dense_flops`` maps a precision name (``bf16``,
    ``fp8``, ``nvfp4``) to dense tensor throughput. ``aliases`` are other spellings accepted in files. ``memory`` is
    what the driver reports. ``nvlinks`` counts links a GPU has, each of ``nvlink_bandwidth`` per direction.
    ``pcie_p2p`` is False where the vendor's stock driver refuses peer-to-peer over PCIe.
    """

    key: str
    name: str
    compute_capability: int
    multiprocessors: int
    memory: Bytes
    memory_bandwidth: BytesPerSecond
    l2: Bytes
    dense_flops: Mapping[str, FlopPerSecond] = field(hash=False)
    pcie_generation: int
    pcie_width: int
    nvlink: bool
    source: str
    aliases: tuple[str, ...] = ()
    nvlinks: int = 0
    nvlink_bandwidth: BytesPerSecond = 0.0
    pcie_p2p: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HostType:
    """A family of server or workstation CPUs.

    ``memory_bandwidth`` is that of one socket with every channel filled (read plus write). ``socket_links`` links of
    ``socket_link_bandwidth`` (per direction, raw) join two sockets; 0 for single-socket families.
    ``nccl_socket_bandwidth`` is the constant NCCL uses for a path between sockets, ``nccl_p2p_overhead`` the factor by
    which it believes a root complex of this vendor inflates peer traffic. ``family`` and ``model`` are CPUID numbers.
    """

    key: str
    name: str
    vendor: str
    pcie_generation: int
    memory_bandwidth: BytesPerSecond
    max_sockets: int
    socket_links: int
    socket_link_bandwidth: BytesPerSecond
    nccl_socket_bandwidth: BytesPerSecond
    nccl_p2p_overhead: float
    family: int
    model: int
    source: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchType:
    """A PCIe switch chip. ``hop`` is its cut-through latency; ``write_collapse`` see :class:`pciesim.fabric.Fabric`."""

    key: str
    name: str
    vendor: str
    pcie_generation: int
    lanes: int
    hop: Seconds
    source: str
    write_collapse: int | None = None
    aliases: tuple[str, ...] = ()
