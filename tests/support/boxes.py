"""Connection matrices as nvidia-smi prints them, made from a few words."""

from __future__ import annotations

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def matrix_text(*rows: str) -> str:
    """``matrix_text("X NODE", "NODE X")``: a box of two GPUs in one NUMA node."""
    names = [f"GPU{number}" for number in range(len(rows))]
    header = "\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    lines = [
        "\t".join([name, *(" X " if cell == "X" else cell for cell in row.split()), "0-31", "0", "", "N/A"])
        for name, row in zip(names, rows, strict=True)
    ]
    return "\n".join([header, *lines]) + "\n" + LEGEND
