"""All kernel lookups for one GPU: its own tables, else another GPU's, scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pciesim.errors import CalibrationError
from pciesim.hardware import GpuType
from pciesim.kernels.attention import attention_time
from pciesim.kernels.backends import Backends
from pciesim.kernels.delta_rule import delta_rule_time
from pciesim.kernels.experts import experts_time
from pciesim.kernels.gemm import gemm_time
from pciesim.kernels.roofline import datasheet_floor, roof, roofline_time, scaled_time
from pciesim.kernels.small import small_time
from pciesim.kernels.tables import Donor
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import work
from pciesim.model import Precision
from pciesim.schedule import DecodeAttention, DeltaRule, Elementwise, Gemm, Host, Kernel, RoutedExperts, SparseIndex

__all__ = ["KernelLibrary"]

# Beyond the two readings of a scaled time and the lender's own range, so that about nine cases of ten are inside: rows
# of RTX PRO 6000 against those of L40S and H200 (docs/kernels.md). Low-precision kernels differ between architectures.
LENT: Final = Spread(below=0.20, above=0.30)
LENT_LOW_PRECISION: Final = Spread(below=0.60, above=0.30)
LENT_EXPERTS: Final = Spread(below=0.50, above=1.20)


def _lent_spread(kernel: Kernel) -> Spread:
    """How much wider the range of a kernel's time becomes on another GPU than the measured one."""
    match kernel:
        case RoutedExperts():
            return LENT_EXPERTS
        case Gemm() if kernel.precision is not Precision.BF16:
            return LENT_LOW_PRECISION
        case _:
            return LENT


@dataclass(slots=True, kw_only=True)
class KernelLibrary:
    """Times of kernels on ``gpu`` under an engine's ``backends``.

    ``donors`` are asked in order: first the GPU itself where it was measured, then those to borrow from. The first with
    rows of the kernel answers; where none has, the first donor's achieved fractions make a roofline. Times are
    remembered by kernel, so the object lives as long as its GPU and backends do.
    """

    gpu: GpuType
    donors: Sequence[Donor]
    backends: Backends = field(default_factory=Backends)
    _times: dict[Kernel, KernelTime] = field(default_factory=dict, repr=False)

    def time(self, kernel: Kernel) -> KernelTime:
        """Time of a kernel. Raises CalibrationError for Host, whose time is a parameter of the profile."""
        found = self._times.get(kernel)
        if found is None:
            found = self._times[kernel] = self._look_up(kernel)
        return found

    def gap(self) -> KernelTime:
        """What a kernel of a step costs beyond its stand-alone time, per kernel."""
        donor = self.donors[0]
        gap = donor.constants.gap
        source = gap.source if donor.gpu.key == self.gpu.key else _lent(gap.source)
        return KernelTime(value=gap.value, low=gap.low, high=gap.high, source=source, detail=gap.detail, floor=0.0)

    def _look_up(self, kernel: Kernel) -> KernelTime:
        if not self.donors:
            raise CalibrationError(f"no measured kernels for '{self.gpu.key}' nor for any GPU to borrow from")
        answers = [(donor, _on_donor(kernel, donor, self.backends)) for donor in self.donors[:1]]
        # Rows of a second GPU beat a roofline of the first.
        if answers[0][1].source is KernelSource.ROOFLINE:
            answers += [(donor, _on_donor(kernel, donor, self.backends)) for donor in self.donors[1:]]
        donor, time = next((answer for answer in answers if answer[1].source is not KernelSource.ROOFLINE), answers[0])
        return time if donor.gpu.key == self.gpu.key else self._borrowed(kernel, time, donor)

    def _borrowed(self, kernel: Kernel, time: KernelTime, donor: Donor) -> KernelTime:
        """Another GPU's time, scaled by the rooflines of the two GPUs."""
        if isinstance(kernel, Elementwise | Host):
            return KernelTime(
                value=time.value, low=time.low * 0.8, high=time.high * 1.3,
                source=_lent(time.source),
                detail=f"as on {donor.gpu.key}: {time.detail}", floor=0.0,
            )  # fmt: skip
        needs = work(kernel, self.backends.routing)
        there = roof(needs, donor.gpu, donor.constants)
        here = roof(needs, self.gpu, donor.constants)
        floor = datasheet_floor(needs, self.gpu)
        value, least, most = scaled_time(time.value, there, here)
        spread = _lent_spread(kernel)
        return KernelTime(
            value=max(value, floor),
            low=max(least * time.low / time.value * (1 - spread.below), floor),
            high=max(most * time.high / time.value * (1 + spread.above), floor),
            source=_lent(time.source),
            detail=f"{donor.gpu.key} scaled by roofline x{here / there:.2f}: {time.detail}",
            floor=floor,
        )


def _lent(source: KernelSource) -> KernelSource:
    """A measurement of another GPU is borrowed; what was never measured stays what it is."""
    return source if source in (KernelSource.ROOFLINE, KernelSource.ASSUMED) else KernelSource.BORROWED


def _on_donor(kernel: Kernel, donor: Donor, backends: Backends) -> KernelTime:
    match kernel:
        case Gemm():
            return gemm_time(kernel, donor)
        case RoutedExperts():
            return experts_time(kernel, donor, backends)
        case DecodeAttention():
            return attention_time(kernel, donor, backends)
        case SparseIndex():
            return roofline_time(
                work(kernel),
                donor.gpu,
                donor.constants,
                what="scores and choice of a sparse indexer, two kernels, no rows",
                least=2 * donor.constants.launch,
            )
        case DeltaRule():
            return delta_rule_time(kernel, donor)
        case Elementwise():
            return small_time(kernel, donor)
        case Host():
            raise CalibrationError(f"host time of '{kernel.engine}' is a parameter of the profile, not a kernel")
