"""What is asked of the machine: the phase, the sequences, and how the model is split over GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Parallelism", "Phase", "Workload"]


class Phase(StrEnum):
    """Decode: one new token per sequence and step. Prefill: a chunk of a prompt."""

    DECODE = "decode"
    PREFILL = "prefill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One forward pass.

    ``batch`` is the number of sequences per replica, ``context`` the tokens already in the KV cache of each, and
    ``new_tokens`` the tokens each sequence adds in this pass (1 in plain decode, the drafts + 1 in a verify pass, the
    chunk in prefill).
    """

    phase: Phase = Phase.DECODE
    batch: int = 1
    context: int = 1024
    new_tokens: int = 1

    @property
    def tokens(self) -> int:
        """Rows of the hidden-state matrix of the pass."""
        return self.batch * self.new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How the model is split: tensor-, expert-, data- and pipeline-parallel degrees. One replica uses tp x pp GPUs."""

    tp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
