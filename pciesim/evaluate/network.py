"""A fluid network on SimPy: flows share constraints max-min, rates change only when a flow starts or ends.

Never a SimPy Resource per link: chained first-in-first-out links store and forward whole messages, and the predicted
time then drifts with the number of channels a message is cut into (5.00 / 4.65 / 4.49 / 4.39 ms for 1 / 2 / 4 / 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import simpy

from pciesim.sharing import Flow, components, max_min
from pciesim.units import Bytes, BytesPerSecond, Seconds

__all__ = ["FluidNetwork", "RateMemo", "RateSolver"]

_SAME_INSTANT: Final = 1e-12  # relative; flows that end this close together end together


class RateSolver(Protocol):
    """What gives the rates of flows that run at the same time; the same flows always the same rates."""

    def rates(self, flows: tuple[Flow, ...]) -> Sequence[float]:
        """In the order of the flows."""
        ...


class RateMemo:
    """Max-min rates by the set of active flows: a ring has a handful of distinct sets, solved once each.

    A set is solved by its components, each remembered by itself: what a starting flow does not touch is not solved
    again.
    """

    __slots__ = ("_capacity", "_rates")

    def __init__(self, capacity: Sequence[BytesPerSecond]) -> None:
        self._capacity = tuple(capacity)
        self._rates: dict[tuple[Flow, ...], list[float]] = {}

    def rates(self, flows: tuple[Flow, ...]) -> list[float]:
        """Max-min rates of the flows, in their order."""
        found = self._rates.get(flows)
        if found is None:
            found = [0.0] * len(flows)
            for group in components(flows):
                rates = self._of_component(tuple(flows[position] for position in group))
                for position, rate in zip(group, rates, strict=True):
                    found[position] = rate
            self._rates[flows] = found
        return found

    def _of_component(self, flows: tuple[Flow, ...]) -> list[float]:
        found = self._rates.get(flows)
        if found is None:
            found = self._rates[flows] = max_min(self._capacity, flows)
        return found


class _Numbered:
    """Equal flows get one number, so that a set of flows is a tuple of small integers.

    Hashing the flows of every set, with all the links they use, would cost more than everything else.
    """

    __slots__ = ("_by_identity", "_flows", "_numbers", "_rates", "_solver")

    def __init__(self, solver: RateSolver) -> None:
        self._solver = solver
        self._flows: list[Flow] = []  # by number
        self._numbers: dict[Flow, int] = {}
        self._by_identity: dict[int, tuple[Flow, int]] = {}  # holds the flow, so that its identity stays its own
        self._rates: dict[tuple[int, ...], Sequence[float]] = {}

    def number(self, flow: Flow) -> int:
        known = self._by_identity.get(id(flow))
        if known is None:
            number = self._numbers.setdefault(flow, len(self._flows))
            if number == len(self._flows):
                self._flows.append(flow)
            known = self._by_identity[id(flow)] = (flow, number)
        return known[1]

    def rates(self, numbers: tuple[int, ...]) -> Sequence[float]:
        found = self._rates.get(numbers)
        if found is None:
            flows = tuple([self._flows[number] for number in numbers])
            found = self._rates[numbers] = self._solver.rates(flows)
        return found


class _Active:
    __slots__ = ("done", "number", "order", "rate", "remaining")

    def __init__(self, number: int, nbytes: Bytes, done: Callable[[], None], order: int) -> None:
        self.number = number
        self.remaining = nbytes
        self.done = done
        self.order = order
        self.rate = 0.0


def _by_number(active: _Active) -> tuple[int, int]:
    return active.number, active.order


def _by_order(active: _Active) -> int:
    return active.order


class FluidNetwork:
    """Flows over shared constraints inside a SimPy environment.

    One wake-up is scheduled for all flows that end next, however many; flows that start at one instant are solved
    together. ``wakeups`` counts the events this costs.
    """

    __slots__ = ("_active", "_dirty", "_env", "_memo", "_order", "_since", "_version", "wakeups")

    def __init__(self, env: simpy.Environment, solver: RateSolver) -> None:
        self._env = env
        self._memo = _Numbered(solver)
        self._active: list[_Active] = []
        self._since: Seconds = 0.0
        self._version = 0
        self._dirty = False
        self._order = 0
        self.wakeups = 0

    def start(self, flow: Flow, nbytes: Bytes, done: Callable[[], None]) -> None:
        """Begins a flow now; ``done`` is called when its last byte has passed."""
        self._order += 1
        self._advance()
        self._active.append(_Active(self._memo.number(flow), nbytes, done, self._order))
        if not self._dirty:  # solve once, after every flow that starts at this instant has been added
            self._dirty = True
            self._wake(0.0, self._resolve)

    def _wake(self, delay: Seconds, action: Callable[[], None]) -> None:
        self.wakeups += 1
        event = simpy.Timeout(self._env, delay)
        event.callbacks.append(lambda _event: action())

    def _advance(self) -> None:
        elapsed = self._env.now - self._since
        if elapsed > 0:
            for active in self._active:
                active.remaining -= active.rate * elapsed
        self._since = self._env.now

    def _resolve(self) -> None:
        self._dirty = False
        self._advance()
        self._version += 1
        if not self._active:
            return
        # A canonical order makes equal sets equal memo keys, whichever flow started first.
        self._active.sort(key=_by_number)
        rates = self._memo.rates(tuple([active.number for active in self._active]))
        until = math.inf
        for active, rate in zip(self._active, rates, strict=True):
            active.rate = rate
            until = min(until, active.remaining / rate)
        until = max(until, 0.0)
        version = self._version
        self._wake(until, lambda: self._finish(version, until))

    def _finish(self, version: int, until: Seconds) -> None:
        if version != self._version:  # the set of flows changed meanwhile
            return
        self._advance()  # unless a flow that starts at this very instant has: what is left decides, either way
        instant = (until + self._env.now) * _SAME_INSTANT
        ended = [active for active in self._active if active.remaining <= instant * active.rate]
        orders = {active.order for active in ended}
        self._active = [active for active in self._active if active.order not in orders]
        self._dirty = True
        for active in sorted(ended, key=_by_order):
            active.done()
        self._resolve()
