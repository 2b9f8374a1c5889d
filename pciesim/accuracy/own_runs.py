"""A user's own NCCL log, serving benchmark or profile, held against what pciesim says of the same box and model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pciesim.api import box_profile, nccl_environment
from pciesim.collectives.curve import Curve
from pciesim.collectives.nccl import plan
from pciesim.collectives.task import BackendCosts, Task
from pciesim.formats.catalogue import gpu_type
from pciesim.formats.runs_context import ImportContext
from pciesim.formats.runs_nccl_log import NcclLog
from pciesim.formats.runs_trace import KernelTotal, kernel_totals
from pciesim.formats.shipped import find_input
from pciesim.formats.topology import load_fabric
from pciesim.prediction import Prediction
from pciesim.schedule import Category, CollectiveKind
from pciesim.units import Bytes, Seconds

__all__ = ["ChoiceRow", "KernelGain", "TraceRow", "choice_rows", "kernel_gain", "trace_rows"]

GEMMS = (Category.GEMM_MIXER, Category.GEMM_MLP, Category.GEMM_ROUTER, Category.GEMM_HEAD, Category.GEMM_OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """What NCCL chose for one operation and what pciesim believes it chooses. ``nbytes`` is each rank's input."""

    kind: CollectiveKind
    nbytes: Bytes
    chosen: str
    predicted: str

    @property
    def same(self) -> bool:
        """Whether algorithm and protocol agree."""
        return self.chosen == self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """Time a step by category; GEMMs stand together, since a kernel's name does not tell them apart."""

    category: str
    measured: Seconds
    predicted: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGain:
    """What an all-reduce of one's own would do to a step: per size its count, the latency it has to beat, its own."""

    step: Seconds
    with_kernel: Seconds
    rows: tuple[tuple[Bytes, int, Seconds, Seconds], ...]

    @property
    def gain(self) -> float:
        """Tokens a second more, as a share."""
        return self.step / self.with_kernel - 1


def kernel_gain(prediction: Prediction, curve: Curve) -> KernelGain:
    """Every all-reduce of a predicted step by a measured curve instead. Exact where nothing overlaps them."""
    rows = tuple(
        (line.nbytes, line.count, line.latency.value, curve.latency(line.nbytes))
        for line in prediction.collectives
        if line.kind == CollectiveKind.ALL_REDUCE
    )
    step = prediction.step_latency.value
    saved = sum(count * (now - own) for _, count, now, own in rows)
    return KernelGain(step=step, with_kernel=step - saved, rows=rows)


def choice_rows(log: NcclLog, context: ImportContext) -> tuple[ChoiceRow, ...]:
    """Every operation of a log. The NCCL version of the log replaces the topology's."""
    loaded = load_fabric(find_input("topologies", context.topology))
    nccl = replace(nccl_environment(loaded.nccl, dict(context.nccl)), version=log.version)
    fabric = replace(loaded, nccl=nccl)
    gpu = gpu_type(fabric.gpu_model or "rtx_pro_6000")
    group = context.group(log.ranks)
    costs = BackendCosts.of(box_profile(fabric))
    rows: list[ChoiceRow] = []
    for choice in log.choices:
        # The log counts what a rank receives of a reduce-scatter, and what it sends of an all-gather.
        nbytes = int(choice.nbytes) * (log.ranks if choice.kind is CollectiveKind.REDUCE_SCATTER else 1)
        task = Task(
            kind=choice.kind, nbytes=nbytes, fabric=fabric, gpus=tuple(fabric.gpus[index].name for index in group),
            compute_capability=gpu.compute_capability, costs=costs,
        )  # fmt: skip
        decided = plan(task)
        rows.append(
            ChoiceRow(kind=choice.kind, nbytes=nbytes, chosen=f"{choice.algorithm} {choice.protocol}",
                      predicted=f"{decided.algorithm} {decided.protocol}")
        )  # fmt: skip
    return tuple(rows)


def trace_rows(kernels: tuple[KernelTotal, ...], steps: int, prediction: Prediction) -> tuple[TraceRow, ...]:
    """A profile of ``steps`` decode steps beside the breakdown of a prediction."""
    measured = _together(dict(kernel_totals(kernels, steps)))
    predicted = _together({Category(name): each.value for name, each in prediction.breakdown})
    names = [name for name in (*predicted, *measured) if name != str(Category.HOST)]
    return tuple(
        TraceRow(category=name, measured=measured.get(name, 0.0), predicted=predicted.get(name, 0.0))
        for name in dict.fromkeys(names)
    )


def _together(times: dict[Category, Seconds]) -> dict[str, Seconds]:
    found: dict[str, Seconds] = {}
    for category, seconds in times.items():
        name = "gemm" if category in GEMMS else str(category)
        found[name] = found.get(name, 0.0) + seconds
    return found
