"""Times from bytes and FLOP at achieved rates: for shapes without rows, and to scale rows to other shapes and GPUs."""

from __future__ import annotations

import math
from typing import Final

from pciesim.hardware import GpuType
from pciesim.kernels.constants import KernelConstants
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import Work
from pciesim.units import GB, TERA, BytesPerSecond, FlopPerSecond, Seconds, format_seconds

__all__ = [
    "ROOFLINE", "achieved_bandwidth", "achieved_flops", "cold_time", "datasheet_floor", "roof", "roofline_time",
    "scaled_time",
]  # fmt: skip

# Starting point, not measured: held-out kernels stand a third below to two thirds above their roofline.
ROOFLINE: Final = Spread(below=0.35, above=0.65)

# Precisions a GPU without that tensor format computes in.
_WIDER: Final = {
    "nvfp4": "bf16", "mxfp4": "bf16", "int4": "bf16", "int4_awq": "bf16", "fp8": "bf16", "fp8_block": "fp8",
    "mxfp8": "fp8", "fp32": "bf16",
}  # fmt: skip
_FALLBACK_FLOPS_FRACTION: Final = 0.7


def achieved_bandwidth(gpu: GpuType, constants: KernelConstants) -> BytesPerSecond:
    """Memory bandwidth that a large GEMM reaches."""
    return gpu.memory_bandwidth * constants.bandwidth_fraction


def achieved_flops(gpu: GpuType, constants: KernelConstants, precision: str) -> FlopPerSecond:
    """Dense tensor throughput that a large GEMM reaches; that of a wider precision where the GPU lacks the format."""
    while precision not in gpu.dense_flops and precision in _WIDER:
        precision = _WIDER[precision]
    return gpu.dense_flops[precision] * constants.flops_fraction.get(precision, _FALLBACK_FLOPS_FRACTION)


def datasheet_floor(work: Work, gpu: GpuType) -> Seconds:
    """No kernel moves its bytes through device memory faster than this."""
    return work.weights / gpu.memory_bandwidth


def roof(work: Work, gpu: GpuType, constants: KernelConstants) -> Seconds:
    """Launch + the longer of bytes at achieved bandwidth and FLOP at achieved throughput."""
    memory = work.nbytes / achieved_bandwidth(gpu, constants)
    compute = work.flop / achieved_flops(gpu, constants, work.precision)
    return constants.launch + max(memory, compute)


def cold_time(work: Work, gpu: GpuType, constants: KernelConstants, launch: Seconds | None = None) -> Seconds:
    """Time of a memory-bound kernel whose weights come from device memory, as they do inside a decode step.

    Benchmarks repeat one kernel, so weights that fit in L2 are read faster than any step can read them.
    """
    launch = constants.launch if launch is None else launch
    return launch + work.weights / achieved_bandwidth(gpu, constants)


def roofline_time(
    work: Work, gpu: GpuType, constants: KernelConstants, *, what: str, least: Seconds = 0.0
) -> KernelTime:
    """A time for a shape without rows. ``least`` is a kernel floor from the smallest related row."""
    value = max(roof(work, gpu, constants), least)
    bandwidth = achieved_bandwidth(gpu, constants) / GB
    flops = achieved_flops(gpu, constants, work.precision) / TERA
    floor_text = f", at least {format_seconds(least)}" if least else ""
    detail = (
        f"{what}: {format_seconds(constants.launch)} + max(bytes at {bandwidth:.0f} GB/s, FLOP at {flops:.0f} TFLOP/s)"
        f"{floor_text}"
    )
    return KernelTime.around(
        value, ROOFLINE, source=KernelSource.ROOFLINE, detail=detail, floor=datasheet_floor(work, gpu)
    )


def scaled_time(seconds: Seconds, from_roof: Seconds, to_roof: Seconds) -> tuple[Seconds, Seconds, Seconds]:
    """(value, low, high) of a kernel whose roofline changes from one to the other.

    Two readings bound it: its inefficiency is a ratio (time scales with the roofline) or a fixed overhead (time changes
    by the difference of the rooflines). The value is their geometric mean.
    """
    ratio = seconds * to_roof / from_roof
    shift = max(seconds + to_roof - from_roof, to_roof * min(1.0, seconds / from_roof))
    return math.sqrt(ratio * shift), min(ratio, shift), max(ratio, shift)
