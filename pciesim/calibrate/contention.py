"""Constants of a box from copy tests, and what pciesim says of each test.

A constant is fitted to the rows that name it, one at a time: the value at which the logs of predicted over measured sum
to nothing, found by bisection, because every figure grows (or stays) with every constant. Such rows are never scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Final

from pciesim.contention import Rules
from pciesim.fabric import Concurrency, Fabric
from pciesim.flows import FlowSpec, FlowsResult, Metric, run_flows
from pciesim.physics import RouteCosts
from pciesim.units import GB, BytesPerSecond

__all__ = ["CONSTANTS", "FlowCase", "FlowRow", "fit_constants", "predict_flows"]

_SHARE: Final = (0.2, 1.0)
_RATE: Final = (0.5 * GB, 500 * GB)
_STEPS: Final = 30  # bisections in log space: 1e-8 of the range


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    """One published figure. ``use``: ``check`` is scored; ``fit NAME`` sets a constant; others only show the reason.

    ``low`` and ``high`` are equal but where the source gives a range. ``variant`` is ``acs`` (redirect on) or
    ``p2p_off``; ``overlay`` names another overlay than the one beside the topology. ``collapse``: so the source says.
    """

    box: str
    topology: str
    overlay: str
    variant: str
    flows: str
    metric: Metric
    low: BytesPerSecond
    high: BytesPerSecond
    use: str
    collapse: bool
    note: str

    @property
    def measured(self) -> BytesPerSecond:
        """The figure, or the middle of its range."""
        return (self.low + self.high) / 2

    @property
    def scored(self) -> bool:
        """Whether it counts."""
        return self.use == "check"

    @property
    def fits(self) -> str:
        """The constant that it sets, or nothing."""
        word, _, name = self.use.partition(" ")
        return name if word == "fit" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCase:
    """A row with the machine and the flows that it stands for."""

    row: FlowRow
    fabric: Fabric
    flows: tuple[FlowSpec, ...]
    costs: RouteCosts


def predict_flows(case: FlowCase, rules: Rules | None = None) -> FlowsResult:
    """The row's metric on the row's machine."""
    fabric = replace(case.fabric, acs_redirect=True) if case.row.variant == "acs" else case.fabric
    return run_flows(
        fabric, case.costs, case.flows, metric=case.row.metric, peer_to_peer=case.row.variant != "p2p_off", rules=rules
    )


def _concurrency(name: str) -> Callable[[Fabric, float], Fabric]:
    return lambda fabric, value: replace(fabric, concurrency=replace(fabric.concurrency, **{name: value}))


def _quadrant(fabric: Fabric, value: float) -> Fabric:
    limits = (
        replace(limit, capacity=value) if limit.name.startswith("quadrant") else limit for limit in fabric.constraints
    )
    return replace(fabric, constraints=tuple(limits))


CONSTANTS: Final[Mapping[str, tuple[Callable[[Fabric, float], Fabric], tuple[float, float]]]] = MappingProxyType(
    {
        each.name: (_concurrency(each.name), _SHARE if each.name.endswith("share") else _RATE)
        for each in fields(Concurrency)
    }
    # DMA at host memory, whose share of the nominal rate is a constant of `contention` for every box.
    | {"quadrant": (_quadrant, _RATE), "dma_share": (_concurrency("host_dma"), _RATE)}
)
"""What can be fitted: how a fabric takes the value, and between which bounds."""


def fit_constants(cases: Sequence[FlowCase]) -> dict[str, float]:
    """The constants that the cases of one box (and overlay) name, in their order. ``acs_redirect`` is not fitted."""
    names = list(dict.fromkeys(case.row.fits for case in cases if case.row.fits in CONSTANTS))
    values: dict[str, float] = {}
    for name in names:
        least, most = CONSTANTS[name][1]
        own = [case for case in cases if case.row.fits == name]

        def bias(value: float, own: Sequence[FlowCase] = own, name: str = name) -> float:
            moved = [replace(case, fabric=_with(case.fabric, values | {name: value})) for case in own]
            return sum(math.log(predict_flows(case).figure / case.row.measured) for case in moved)

        low, high = math.log(least), math.log(most)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if bias(math.exp(middle)) < 0 else (low, middle)
        values[name] = math.exp((low + high) / 2)
    return values


def _with(fabric: Fabric, values: Mapping[str, float]) -> Fabric:
    for name, value in values.items():
        fabric = CONSTANTS[name][0](fabric, value)
    return fabric
