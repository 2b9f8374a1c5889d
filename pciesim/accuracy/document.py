"""docs/accuracy.md and the README's table, made from the data: nothing in them is typed by hand."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pciesim.accuracy.collectives import DATASETS, PointError, point_errors
from pciesim.accuracy.engine_steps import torch_step_lines, torch_steps
from pciesim.accuracy.prompts import prompt_errors, prompt_lines
from pciesim.accuracy.steps import OTHER_MODELS, StepError, step_errors
from pciesim.units import KIB, MIB, MS, US, format_bytes

__all__ = ["accuracy_page", "readme_table", "replace_block"]

_BANDS = (("up to 64 KiB", 0, 64 * KIB), ("to 1 MiB", 64 * KIB, MIB), ("beyond", MIB, float("inf")))
BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"


def replace_block(text: str, block: str) -> str:
    """The text with what stands between the two accuracy marks replaced. Raises ValueError when they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{block}{END}{after}"


def readme_table(runs: Path) -> str:
    """The few lines a reader of the README needs."""
    steps = step_errors(runs)
    rows: list[tuple[str, Sequence[StepError | PointError]]] = [
        ("Qwen3.5-397B, eight GPUs, one user (wiring not published)", _of(steps, lambda e: len(e.point.gpus) == 8)),
        (
            "Qwen3.5-397B, four GPUs, one user, not used to fit",
            _of(steps, lambda e: len(e.point.gpus) == 4 and e.point.batch == 1 and not e.point.fitted),
        ),
        (
            "Qwen3.5-397B, four GPUs, 2 to 64 users",
            _of(steps, lambda e: len(e.point.gpus) == 4 and e.point.batch > 1),
        ),
    ]
    rows.append(
        ("MiniMax-M2.5, two and four GPUs, one user (nothing fitted, wiring not published)",
         step_errors(runs, name=OTHER_MODELS))
    )  # fmt: skip
    for title, name in DATASETS:
        errors = [e for e in point_errors(runs, name) if not e.point.fitted and e.point.nbytes <= 64 * KIB]
        rows.append((f"collectives up to 64 KiB: {title}", errors))
    lines = ["| what | points | median error | 90th percentile |", "|---|---:|---:|---:|"]
    lines += [f"| {what} | {len(errors)} | {_median(errors)} | {_ninetieth(errors)} |" for what, errors in rows]
    return "\n".join(lines) + "\n"


def accuracy_page(runs: Path) -> str:
    """The tables of docs/accuracy.md: every dataset, fitted or held out, with its worst points."""
    parts = ["## Decode steps", "", *_step_lines(step_errors(runs)), ""]
    parts += ["## Decode steps of another model", "", *_step_lines(step_errors(runs, name=OTHER_MODELS)), ""]
    parts += ["## Prompts", "", *prompt_lines(prompt_errors(runs)), ""]
    parts += ["## Own decode steps on two H200 (PyTorch in a CUDA graph)", "", *torch_step_lines(torch_steps(runs)), ""]
    for title, name in DATASETS:
        parts += [f"## Collectives: {title} (`{name}`)", "", *_point_lines(point_errors(runs, name)), ""]
    return "\n".join(parts)


def _step_lines(errors: Sequence[StepError]) -> Iterable[str]:
    yield "| dataset | engine | all-reduce | GPUs | users | context | measured ms | predicted ms | error | |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---|"
    for error in errors:
        point = error.point
        yield (
            f"| {point.dataset} | {point.engine} | {point.allreduce} | {len(point.gpus)} | {point.batch} "
            f"| {point.context} | {error.measured / MS:.2f} | {error.predicted / MS:.2f} | {error.relative:+.1%} "
            f"| {'host time fitted on it' if point.fitted else ''} |"
        )


def _point_lines(errors: Sequence[PointError]) -> Iterable[str]:
    yield (
        "| dataset | profile | op | fitted | checked | median error | 90th percentile "
        f"| {' | '.join(title for title, _, _ in _BANDS)} | worst |"
    )
    yield f"|---|---|---|---:|---:|---:|---:|{'---:|' * len(_BANDS)}---|"
    groups: dict[tuple[str, str, str], list[PointError]] = {}
    for error in errors:
        groups.setdefault((error.point.dataset, error.profile, error.point.kind), []).append(error)
    for names, group in groups.items():
        checked = [error for error in group if not error.point.fitted]
        if not checked:
            continue
        worst = max(checked, key=lambda error: abs(error.relative))
        bands = [_median([e for e in checked if least < e.point.nbytes <= most]) for _, least, most in _BANDS]
        yield (
            f"| {' | '.join(names)} | {len(group) - len(checked)} | {len(checked)} | {_median(checked)} "
            f"| {_ninetieth(checked)} | {' | '.join(bands)} | {worst.relative:+.0%} at "
            f"{format_bytes(worst.point.nbytes)} ({worst.point.latency / US:.3g} us, predicted "
            f"{worst.predicted / US:.3g}) |"
        )


def _of(errors: Sequence[StepError], wanted: Callable[[StepError], bool]) -> list[StepError]:
    return [error for error in errors if wanted(error)]


def _median(errors: Sequence[StepError | PointError]) -> str:
    return f"{statistics.median(abs(error.relative) for error in errors):.1%}" if errors else "-"


def _ninetieth(errors: Sequence[StepError | PointError]) -> str:
    if len(errors) < 2:
        return "-"
    return f"{statistics.quantiles((abs(e.relative) for e in errors), n=10, method='inclusive')[-1]:.1%}"
