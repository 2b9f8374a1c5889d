"""Kernel times: measured tables first, interpolation, borrowing and rooflines after, each named as what it is."""

from pciesim.kernels.backends import SPREAD, Backends, routing_of
from pciesim.kernels.library import KernelLibrary
from pciesim.kernels.tables import CurveTable, Donor, KernelTables
from pciesim.kernels.times import KernelSource, KernelTime, Spread

__all__ = [
    "SPREAD", "Backends", "CurveTable", "Donor", "KernelLibrary", "KernelSource", "KernelTables", "KernelTime",
    "Spread", "routing_of",
]  # fmt: skip
