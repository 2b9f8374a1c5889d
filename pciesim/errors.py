"""The exception tree and the exit code each branch stands for.

::

    PciesimError
    ├── InputError            2   something the user gave cannot be read or does not make sense
    │   └── UnknownName       2   a name that no table has; carries the nearest valid ones
    ├── Infeasible            1   a well-formed question whose answer is no (does not fit, cannot run here)
    └── CalibrationError      3   the parameters at hand do not support the answer

Expected failures are printed as one line. Anything else is a bug and keeps its traceback (exit 70).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum

__all__ = ["CalibrationError", "ExitCode", "Infeasible", "InputError", "PciesimError", "UnknownName"]


class ExitCode(IntEnum):
    """What the shell sees."""

    OK = 0
    NO = 1
    USAGE = 2
    CALIBRATION = 3
    BUG = 70


class PciesimError(Exception):
    """Base of every expected failure; ``str(error)`` is the one line to print."""

    exit_code: ExitCode = ExitCode.BUG


class InputError(PciesimError):
    """Something the user gave cannot be read: says where, what was found and what is valid.

    ``where`` is ``file``, ``file:line`` or ``file:line:column`` (1-based), or empty for a command-line option.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class UnknownName(InputError):
    """A name that is not in the table it was looked up in."""

    def __init__(self, kind: str, name: str, valid: Iterable[str], *, where: str = "") -> None:
        names = sorted(valid)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        super().__init__(f"unknown {kind} '{name}'{hint} (valid: {shown})", where=where)
        self.name = name
        self.nearest = near[0] if near else None


class Infeasible(PciesimError):
    """A well-formed question whose answer is no."""

    exit_code = ExitCode.NO


class CalibrationError(PciesimError):
    """A parameter the calculation needs is missing, or the data do not support the answer."""

    exit_code = ExitCode.CALIBRATION
