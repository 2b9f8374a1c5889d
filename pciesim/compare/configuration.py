"""One combination of choices, and the grid of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TypeAlias

from pciesim.errors import InputError

__all__ = ["Configuration", "grid", "label", "with_choices"]

Configuration: TypeAlias = tuple[tuple[str, str], ...]
"""(axis, value) pairs as written, an axis at most once: ``(("tp", "4"), ("allreduce", "oneshot-pull"))``."""


def with_choices(base: Configuration, changes: Configuration) -> Configuration:
    """The base with the axes of ``changes`` replaced or added."""
    merged = dict(base) | dict(changes)
    return tuple(merged.items())


def grid(base: Configuration, vary: Mapping[str, Sequence[str]]) -> tuple[Configuration, ...]:
    """Every combination of the varied values over a base, last axis fastest. Raises InputError for an empty axis."""
    for axis, values in vary.items():
        if not values:
            raise InputError(f"--vary {axis}= names no value")
        if len(set(values)) < len(values):
            raise InputError(f"--vary {axis}={','.join(values)} names a value twice")
    return tuple(
        with_choices(base, tuple(zip(vary, combination, strict=True))) for combination in product(*vary.values())
    )


def label(configuration: Configuration, axes: Sequence[str] | None = None) -> str:
    """``tp=4 allreduce=nccl``; only the given axes, where given."""
    shown = [f"{axis}={value}" for axis, value in configuration if axes is None or axis in axes]
    return " ".join(shown) or "as it is"
