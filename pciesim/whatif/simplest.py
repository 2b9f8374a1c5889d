"""The fewest changes that do what a configuration does: what cannot be told from doing without is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pciesim.compare.comparison import gain_of
from pciesim.compare.configuration import Configuration, with_choices
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import Outcome
from pciesim.units import Seconds
from pciesim.whatif.loading import Loader, evaluate

__all__ = ["PLAIN", "simplest"]

PLAIN: Final[Mapping[str, str]] = MappingProxyType({"ep": "1", "nccl": "default", "allreduce": "auto", "spec": "none"})
"""The engine as it comes, in the order in which changes are given up."""


def simplest(
    configuration: Configuration, loader: Loader, memo: Memo, *, kept: Iterable[str] = (), limit: Seconds = 0.0
) -> Configuration:
    """The configuration without the changes whose gain for a user has no certain sign.

    ``kept`` names axes that are not up for discussion; a change without which the time per token would exceed
    ``limit`` (0: none) stays too.
    """
    (now,), _ = evaluate([configuration], loader, memo)
    for axis, value in PLAIN.items():
        if axis in kept or dict(now.configuration).get(axis, value) == value:
            continue
        without, _ = evaluate([with_choices(now.configuration, ((axis, value),))], loader, memo)
        if without and not _worth_it(without[0], now, limit):
            now = without[0]
    return now.configuration


def _worth_it(without: Outcome, changed: Outcome, limit: Seconds) -> bool:
    gain = gain_of(without, changed)
    return (gain.certain and gain.saved.value > 0) or (limit > 0 and changed.latency <= limit < without.latency)
