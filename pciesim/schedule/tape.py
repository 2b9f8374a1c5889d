"""Records the ops of a part of a pass in issue order, with the waits between the main and the side stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pciesim.model import Linear, Module, Precision, Sum
from pciesim.schedule.frame import Frame
from pciesim.schedule.groups import ATTENTION_TP, DCP, TP
from pciesim.schedule.ops import Category, Collective, CollectiveKind, Compute, Elementwise, Gemm, Kernel, Op

__all__ = ["ACTIVATION", "Segment", "Tape"]

ACTIVATION = int(Precision.BF16.bytes_per_parameter)

# Elements a small kernel moves per element of its output row: what it reads and writes. Two where not listed.
_MOVES = {"rmsnorm_add": 4, "add": 3, "silu_mul": 3, "sigmoid_mul": 3, "silu": 2, "mul": 3}

_CATEGORY = {
    Module.DENSE_MLP: Category.GEMM_MLP,
    Module.SHARED_EXPERTS: Category.GEMM_MLP,
    Module.ROUTER: Category.GEMM_ROUTER,
    Module.RESIDUAL: Category.GEMM_OTHER,
    Module.MTP: Category.GEMM_OTHER,
    Module.LM_HEAD: Category.GEMM_HEAD,
}

Segment = tuple[tuple[Op, ...], tuple[tuple[int, ...], ...]]
"""Ops and, for each, the ops it waits for, relative to itself."""


class Tape:
    """Ops so far. Positions in ``waits`` are relative, so that a segment can be repeated anywhere."""

    def __init__(self, frame: Frame, stage: int = 0) -> None:
        self.frame, self.stage = frame, stage
        self.ops: list[Op] = []
        self.waits: list[tuple[int, ...]] = []
        self._main = 2 * stage
        self._stream = self._main
        self._side: list[int] = []  # ops of the side stream that the main stream has not joined yet
        self._joining = False  # whether the main stream's next op waits for them

    @property
    def segment(self) -> Segment:
        """What was recorded."""
        return tuple(self.ops), tuple(self.waits)

    # -- kernels --------------------------------------------------------------------------------------------------

    def compute(self, name: str, category: Category, kernel: Kernel, nbytes: float, flop: float) -> None:
        """A kernel on the current stream."""
        self._op(
            Compute(
                name=name, category=category, kernel=kernel, nbytes=nbytes, flop=flop, stream=self._stream,
                stage=self.stage,
            )
        )  # fmt: skip

    def gemm(self, fused: str, linears: Sequence[Linear], *, tp: int, rows: int, name: str = "") -> None:
        """The GEMM in which the linears of that name run side by side; nothing where there are none."""
        parts = [linear for linear in linears if linear.fused == fused]
        if not parts:
            return
        shapes = [part.local_shape(tp) for part in parts]
        outputs, inputs = sum(shape[0] for shape in shapes), shapes[0][1]
        self.compute(
            name or fused,
            _CATEGORY.get(parts[0].module, Category.GEMM_MIXER),
            Gemm(m=rows, n=outputs, k=inputs, precision=parts[0].precision),
            sum(part.local_bytes(tp) for part in parts),
            2.0 * rows * outputs * inputs,
        )

    def small(self, place: str, width: int, rows: int) -> None:
        """The small kernels of a place, each over rows of ``width`` elements."""
        for kind in self.frame.engine.small_kernels.get(place, ()):
            nbytes = float(_MOVES.get(kind, 2) * rows * width * ACTIVATION)
            self.compute(kind, Category.SMALL, Elementwise(kind=kind, nbytes=nbytes, width=width), nbytes, 0.0)

    # -- collectives ----------------------------------------------------------------------------------------------

    def collective(
        self,
        name: str,
        kind: CollectiveKind,
        nbytes: float,
        *,
        group: str = TP,
        category: Category = Category.TOKEN_EXCHANGE,
        precision: Precision = Precision.BF16,
        graph: bool = True,
    ) -> None:
        """A collective of ``nbytes`` from each rank; nothing in a group of one."""
        frame = self.frame
        sizes = {"pp": 2, ATTENTION_TP: frame.attention_tp, DCP: frame.parallelism.dcp}
        ranks = sizes.get(group, frame.tp)
        if ranks > 1:
            if ranks == frame.tp and group == ATTENTION_TP:
                group = TP  # engines use one group object where sizes match
            self._op(
                Collective(
                    name=name, category=category, kind=kind, nbytes=round(nbytes), ranks=ranks, stage=self.stage,
                    group=group, precision=precision, graph=graph, stream=self._main,
                )
            )  # fmt: skip

    def all_reduce(self, name: str, rows: int, total: Sum, *, group: str = TP) -> None:
        """The sum of ``rows`` rows over a group."""
        self.collective(
            name, CollectiveKind.ALL_REDUCE, rows * total.columns * total.precision.bytes_per_parameter,
            group=group, category=Category.ALL_REDUCE, precision=total.precision,
        )  # fmt: skip

    # -- streams --------------------------------------------------------------------------------------------------

    @contextmanager
    def side(self, wanted: bool = True) -> Iterator[None]:
        """What is recorded inside runs on the side stream, where the engine has one."""
        if not (wanted and self.frame.side_stream):
            yield
            return
        self._stream = self._main + 1
        yield
        self._stream = self._main

    def join(self) -> None:
        """The next op of the main stream waits for the side stream."""
        self._joining = bool(self._side)

    def _op(self, op: Op) -> None:
        here = len(self.ops)
        waits: tuple[int, ...] = ()
        if op.stream != self._main and not self._side:
            waits = (-1,)  # the side stream forks from the op before
        elif op.stream == self._main and self._joining:
            waits = tuple(position - here for position in self._side[-1:])
            self._side.clear()
            self._joining = False
        if op.stream != self._main:
            self._side.append(here)
        self.ops.append(op)
        self.waits.append(waits)
