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
    chunk in prefill). ``alike`` is the share of a token's routed experts that it has in common with the token before it
    in the same pass and sequence; ``chunk`` the largest number of prompt tokens of a pass (0: the engine's default).
    ``skew`` is how unequally popular routed experts are: the standard deviation of the logarithm (0: all alike).
    """

    phase: Phase = Phase.DECODE
    batch: int = 1
    context: int = 1024
    new_tokens: int = 1
    alike: float = 0.0
    chunk: int = 0
    skew: float = 1.0

    @property
    def tokens(self) -> int:
        """Rows of the hidden-state matrix of the pass."""
        return self.batch * self.new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How the model is split: tensor-, expert-, data- and pipeline-parallel degrees. One replica uses tp x pp GPUs.

    ``ep`` divides ``tp``: a rank holds experts / ep experts, each cut tp / ep ways. ``dp`` counts replicas that share
    nothing. ``attention_dp`` divides ``tp`` too: so many ranks of one replica attend to different sequences and meet
    for the MLPs (SGLang's ``--enable-dp-attention``, vLLM's ``--data-parallel-size`` with expert parallelism).
    ``all_to_all``: tokens are sent to the ranks of their experts instead of to all (DeepEP and its kin). ``dcp`` ranks
    in a row that would hold copies of a KV cache hold every ``dcp``-th token of it instead (decode context
    parallelism, vLLM's ``--decode-context-parallel-size``); it divides ``attention_tp``.
    """

    tp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
    attention_dp: int = 1
    all_to_all: bool = False
    dcp: int = 1

    @property
    def attention_tp(self) -> int:
        """Ranks that share the heads of one sequence."""
        return self.tp // self.attention_dp

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.tp * self.pp * self.dp
