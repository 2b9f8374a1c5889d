"""Small kernels (norms, activations, top-k, copies): a floor by kind, plus bytes that come from L2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pciesim.kernels.constants import SmallKernel
from pciesim.kernels.tables import Donor
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.schedule import Elementwise
from pciesim.units import format_seconds

__all__ = ["small_time"]

ROWS: Final = Spread(below=0.10, above=0.10)

# Bytes per element of the output row that each measured kernel moves (bf16: reads + one write).
_BYTES_PER_ELEMENT: Final = {"rmsnorm": 4, "add": 6, "silu_mul": 6}
_USUAL_WIDTH: Final = 4096


def small_time(kernel: Elementwise, donor: Donor) -> KernelTime:
    """Time of one small kernel on the GPU the tables were measured on. An unknown kind gets the widest of all ranges.

    No floor from bytes: activations written by the kernel before are read from L2.
    """
    if (rows := _from_rows(kernel, donor)) is not None:
        return rows
    constants = donor.constants
    known = constants.small.get(kernel.kind) or _unknown(constants.small)
    from_l2 = kernel.nbytes <= donor.gpu.l2 / 2
    rate = donor.gpu.memory_bandwidth * (constants.l2_rate if from_l2 else constants.bandwidth_fraction)
    moving = kernel.nbytes / rate
    detail = known.detail if moving < known.value / 10 else f"{known.detail}; + {format_seconds(moving)} for its bytes"
    return KernelTime(
        value=known.value + moving, low=known.low + moving / 2, high=known.high + moving * 2, source=known.source,
        detail=detail, floor=0.0,
    )  # fmt: skip


def _from_rows(kernel: Elementwise, donor: Donor) -> KernelTime | None:
    """The rows of a kind whose latency was measured, at the usual width: the descriptor has bytes, not a shape."""
    per_element = _BYTES_PER_ELEMENT.get(kernel.kind)
    table = donor.tables.table("small/pytorch")
    if per_element is None or table is None:
        return None
    curve = table.curve(kernel.kind, _USUAL_WIDTH)
    if curve is None:
        return None
    rows = max(1.0, kernel.nbytes / (per_element * _USUAL_WIDTH))
    inside = curve.covers(rows)
    value = curve.at(rows) * max(1.0, rows / curve.points[-1])
    return KernelTime.around(
        value, ROWS, source=KernelSource.INTERPOLATED if inside else KernelSource.ROOFLINE,
        detail=f"{table.name}, PyTorch kernel at width {_USUAL_WIDTH}", floor=0.0,
    )  # fmt: skip


def _unknown(small: Mapping[str, SmallKernel]) -> SmallKernel:
    values = sorted(small.values(), key=lambda each: each.value)
    return SmallKernel(
        value=values[len(values) // 2].value,
        low=min(each.low for each in values),
        high=max(each.high for each in values),
        source=KernelSource.ASSUMED,
        detail="unknown kind: the median of the kinds",
    )
