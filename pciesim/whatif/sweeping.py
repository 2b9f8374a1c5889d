"""Grids of configurations over processes or a Dask cluster: one row each, in any order, written as they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from types import MappingProxyType
from typing import Any, Final

from pciesim.compare.configuration import Configuration, grid
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import Outcome
from pciesim.errors import InputError
from pciesim.whatif.loading import LOADED, Loader, check_axes, evaluate

__all__ = ["COLUMNS", "SweepRow", "confirm", "rows_of", "sweep", "sweep_grid"]

COLUMNS: Final = (
    "step_latency_s", "tokens_per_step", "token_latency_s", "tokens_per_s_user", "tokens_per_s_total", "sequences",
    "traversals_per_token", "memory_bytes", "evaluator", "refused",
)  # fmt: skip
"""What a row says beside its axes; ``refused`` is the reason where a configuration cannot run."""

_ALONE: Final = 1500  # configurations (some three seconds) below which starting processes costs more than it saves
_PIECE: Final = 500  # configurations that a process does at a time: each piece loads its files once


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One configuration of a sweep: plain values by :data:`COLUMNS`, None where it cannot run."""

    configuration: Configuration
    values: Mapping[str, Any]

    @property
    def refused(self) -> str:
        """Why it cannot run (empty: it can)."""
        return str(self.values.get("refused") or "")


def sweep_grid(
    *, topo: str, model: str, vary: Mapping[str, Sequence[str]], fixed: Mapping[str, str]
) -> tuple[Configuration, ...]:
    """Every combination over the fixed choices. Raises InputError or UnknownName before anything is calculated."""
    base = {"topo": topo, "model": model, **fixed}
    check_axes({axis: [value] for axis, value in base.items()})
    check_axes(vary)
    return grid(tuple(base.items()), vary)


def rows_of(configurations: Sequence[Configuration], evaluator: str, hypothetical: bool) -> list[SweepRow]:
    """The rows of some configurations, in this process: one loader and one memo for all of them."""
    loader, memo = Loader(hypothetical=hypothetical), Memo(evaluator=evaluator)
    outcomes, refused = evaluate(configurations, loader, memo, intervals=False)
    rows = [_row(each, evaluator) for each in outcomes]
    rows += [
        SweepRow(
            configuration=each.configuration,
            values=MappingProxyType(dict.fromkeys(COLUMNS) | {"refused": each.reason, "evaluator": evaluator}),
        )
        for each in refused
    ]
    order = {configuration: place for place, configuration in enumerate(configurations)}
    return sorted(rows, key=lambda row: order[row.configuration])


def _row(outcome: Outcome, evaluator: str) -> SweepRow:
    memory = outcome.memory
    return SweepRow(
        configuration=outcome.configuration,
        values=MappingProxyType({
            "step_latency_s": outcome.step,
            "tokens_per_step": outcome.tokens,
            "token_latency_s": outcome.latency,
            "tokens_per_s_user": 1 / outcome.latency,
            "tokens_per_s_total": outcome.sequences / outcome.latency,
            "sequences": outcome.sequences,
            "traversals_per_token": outcome.traversals_per_token,
            "memory_bytes": memory.weights + memory.kv_cache + memory.state,
            "evaluator": evaluator,
            "refused": "",
        }),
    )  # fmt: skip


def sweep(
    configurations: Sequence[Configuration],
    *,
    evaluator: str = "estimate",
    hypothetical: bool = False,
    jobs: int = 0,
    scheduler: str = "",
    progress: Callable[[int], Any] | None = None,
) -> Iterator[SweepRow]:
    """Rows as they are done. ``jobs`` processes (0: one a core); ``scheduler`` is the address of a Dask scheduler.

    ``progress`` is told how many rows have just been added.
    """
    pieces = _pieces(configurations, jobs or os.cpu_count() or 1)
    if scheduler:
        done = _on_dask(pieces, scheduler, evaluator, hypothetical)
    elif jobs == 1 or len(configurations) < _ALONE or len(pieces) < 2:
        done = (rows_of(piece, evaluator, hypothetical) for piece in pieces)
    else:
        done = _on_processes(pieces, jobs or os.cpu_count() or 1, evaluator, hypothetical)
    for rows in done:
        yield from rows
        if progress is not None:
            progress(len(rows))


def _pieces(configurations: Sequence[Configuration], jobs: int) -> list[list[Configuration]]:
    """Pieces of configurations that share much: those that load the same files and run the same schedule together."""

    def likeness(configuration: Configuration) -> tuple[tuple[str, str], ...]:
        return tuple(pair for pair in configuration if pair[0] in LOADED)

    ordered = sorted(configurations, key=likeness)
    size = max(1, min(_PIECE, -(-len(ordered) // jobs)) if len(ordered) >= _ALONE else len(ordered))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _on_processes(
    pieces: Iterable[list[Configuration]], jobs: int, evaluator: str, hypothetical: bool
) -> Iterator[list[SweepRow]]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_plain_rows, piece, evaluator, hypothetical) for piece in pieces]
        for each in as_completed(waiting):
            yield [_from_plain(row) for row in each.result()]


def _on_dask(
    pieces: Iterable[list[Configuration]], scheduler: str, evaluator: str, hypothetical: bool
) -> Iterator[list[SweepRow]]:
    try:
        from dask import distributed  # noqa: PLC0415  (an optional extra)
    except ImportError:
        raise InputError("--scheduler needs Dask: pip install 'pciesim[dask]'") from None
    try:
        client = distributed.Client(scheduler, timeout=5, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"--scheduler {scheduler}: no Dask scheduler answers there ({error})") from None
    with client:
        waiting = [client.submit(_plain_rows, piece, evaluator, hypothetical, pure=False) for piece in pieces]
        for each in waiting:
            yield [_from_plain(row) for row in each.result()]


def _plain_rows(
    configurations: Sequence[Configuration], evaluator: str, hypothetical: bool
) -> list[tuple[Configuration, dict[str, Any]]]:
    """Rows as what travels between processes."""
    return [(row.configuration, dict(row.values)) for row in rows_of(configurations, evaluator, hypothetical)]


def _from_plain(row: tuple[Configuration, dict[str, Any]]) -> SweepRow:
    return SweepRow(configuration=row[0], values=MappingProxyType(row[1]))


def confirm(rows: Sequence[SweepRow], *, count: int = 10, hypothetical: bool = False) -> list[SweepRow]:
    """The ``count`` rows that serve one user fastest, simulated instead of estimated, fastest first."""
    able = sorted((row for row in rows if not row.refused), key=lambda row: float(row.values["token_latency_s"]))
    again = rows_of([row.configuration for row in able[:count]], "simulate", hypothetical)
    return sorted(again, key=lambda row: float(row.values["token_latency_s"]))
