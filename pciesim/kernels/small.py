"""Small kernels (norms, activations, top-k, copies): a floor by kind, plus bytes that come from L2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pciesim.kernels.constants import SmallKernel
from pciesim.kernels.tables import Donor, log_between
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.schedule import Elementwise
from pciesim.units import format_seconds

__all__ = ["small_time"]

ROWS: Final = Spread(below=0.10, above=0.10)

# Bytes per element of the output row that each measured kernel moves (bf16: reads + one write).
_BYTES_PER_ELEMENT: Final = {
    "rmsnorm": 4, "add": 6, "silu_mul": 6, "copy": 4, "softmax": 4, "torch_topk": 4, "argsort": 4, "searchsorted": 4,
    "gather": 4, "index_add": 4,
}  # fmt: skip
# Kinds whose time follows the number of rows (of tokens routed), whatever their width.
_BY_ROWS: Final = frozenset({"softmax", "torch_topk", "argsort", "searchsorted"})
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
    """The rows of a kind whose latency was measured, as a power law between the measured widths around the kernel's.

    Beyond them the nearest width, with as many rows as move the same bytes.
    """
    per_element = _BYTES_PER_ELEMENT.get(kernel.kind)
    table = donor.tables.table("small/pytorch")
    if per_element is None or table is None:
        return None
    widths = sorted(int(key[1]) for key in table.lines if key[0] == kernel.kind)
    if not widths:
        return None
    wanted = kernel.width or _USUAL_WIDTH
    if kernel.kind in _BY_ROWS:
        kernel = replace(kernel, nbytes=kernel.nbytes / wanted * widths[0], width=widths[0])
        wanted = widths[0]
    below = max((each for each in widths if each <= wanted), default=widths[0])
    above = min((each for each in widths if each >= wanted), default=widths[-1])
    ends: list[tuple[float, bool]] = []
    for width in (below, above):
        at = wanted if widths[0] <= wanted <= widths[-1] else width
        rows = max(1.0, kernel.nbytes / (per_element * at))
        curve = table.curve(kernel.kind, width)
        if curve is None:
            return None
        ends.append((curve.at(rows) * max(1.0, rows / curve.points[-1]), curve.covers(rows)))
    inside = all(covered for _, covered in ends) and widths[0] <= wanted <= widths[-1]
    value = log_between(min(max(wanted, below), above), below, ends[0][0], above, ends[1][0])
    at_width = f"{below}" if below == above else f"{below} to {above}"
    return KernelTime.around(
        value, ROWS, source=KernelSource.INTERPOLATED if inside else KernelSource.ROOFLINE,
        detail=f"{table.name}, PyTorch kernel at width {at_width}", floor=0.0,
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
