"""The logits: a GEMM cut over the vocabulary, and the gathers around it."""

from __future__ import annotations

from pciesim.model import Linear
from pciesim.schedule.frame import Exchange
from pciesim.schedule.groups import ATTENTION_TP, TP
from pciesim.schedule.ops import Category, CollectiveKind
from pciesim.schedule.tape import ACTIVATION, Tape

__all__ = ["issue_head"]


def issue_head(tape: Tape) -> None:
    """lm_head over the rows that need logits, then an all-gather: rows x vocabulary / TP x 2 bytes from each rank.

    With SGLang's attention data parallelism every rank computes its part of the vocabulary for the rows of all, so
    their hidden states are gathered first; vLLM cuts the vocabulary over the GPUs that share a sequence.
    """
    frame = tape.frame
    rows, tp, group = frame.head_rows, frame.tp, TP
    if frame.exchange in (Exchange.GATHER, Exchange.FILL):
        shard = -(-rows // frame.attention_tp) * frame.model.hidden * ACTIVATION
        tape.collective("head_rows", CollectiveKind.ALL_GATHER, shard, category=Category.LOGITS_GATHER)
        rows *= frame.parallelism.attention_dp
    else:
        tp, group = frame.attention_tp, ATTENTION_TP
    head: Linear = frame.model.head
    tape.gemm("lm_head", (head,), tp=tp, rows=rows)
    vocabulary = head.local_shape(tp)[0]
    tape.collective(
        "logits", CollectiveKind.ALL_GATHER, rows * vocabulary * ACTIVATION, group=group,
        category=Category.LOGITS_GATHER,
    )  # fmt: skip
