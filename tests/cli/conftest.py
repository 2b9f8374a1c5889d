"""Running command lines in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pciesim.cli import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the shell would have seen."""

    code: int
    out: str
    err: str

    def one_line(self) -> str:
        """The message of a refusal: exactly one line on stderr, nothing on stdout."""
        assert self.out == ""
        assert self.err.startswith("pciesim: error: "), self.err
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("pciesim: error: ").rstrip("\n")


@pytest.fixture
def pciesim(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``pciesim`` with the given words."""

    def call(*words: object) -> Outcome:
        code = run([str(word) for word in words])
        said = capsys.readouterr()
        return Outcome(code=code, out=said.out, err=said.err)

    return call
