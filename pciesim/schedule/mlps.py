"""What each MLP issues on one rank: router, shared and routed experts, dense matrices, and the sums after them.

Rows and degrees depend on how rows travel (:class:`~pciesim.schedule.frame.Exchange`); the sums are handed to
:mod:`pciesim.schedule.exchange`, which knows what becomes of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pciesim.model import DenseAndMoe, DenseMlp, Linear, Moe
from pciesim.routing import distinct_experts
from pciesim.schedule.exchange import collect_experts, send_to_experts, sum_mlp
from pciesim.schedule.ops import Category, RoutedExperts
from pciesim.schedule.tape import Tape

__all__ = ["has_experts", "issue_mlp"]


def has_experts(mlp: object) -> bool:
    """Whether an MLP has routed experts."""
    return isinstance(mlp, Moe | DenseAndMoe)


def issue_mlp(tape: Tape, mlp: object) -> None:
    """The ops of an MLP, its sums included. Raises TypeError for a kind that has no schedule."""
    match mlp:
        case DenseMlp():
            _dense(tape, mlp, last=True)
        case Moe():
            _moe(tape, mlp)
        case DenseAndMoe():
            _dense(tape, mlp.dense, last=False)
            tape.small("branch_norm", tape.frame.model.hidden, tape.frame.all_rows)
            _moe(tape, mlp.moe)
            tape.small("branch_norm", tape.frame.model.hidden, tape.frame.rows)
        case _:
            raise TypeError(f"no schedule for {type(mlp).__name__}")


def _dense(tape: Tape, mlp: DenseMlp, *, last: bool) -> None:
    frame = tape.frame
    hidden = frame.model.hidden
    linears = mlp.linears(hidden)
    # Rows that are not gathered for every MLP stay on their attention ranks, which share dense matrices.
    rows, tp = (frame.rows, frame.attention_tp) if frame.scattered else (frame.all_rows, frame.tp)
    tape.gemm("gate_up_proj" if mlp.gated else "up_proj", linears, tp=tp, rows=rows)
    tape.small("dense_activation", mlp.intermediate // tp, rows)
    tape.gemm("down_proj", linears, tp=tp, rows=rows)
    for total in mlp.sums(hidden):
        sum_mlp(tape, total, dense=True, last=last)


def _moe(tape: Tape, mlp: Moe) -> None:
    frame = tape.frame
    hidden = frame.model.hidden
    linears = mlp.linears(hidden)
    rows, tp = (frame.local_rows, 1) if frame.scattered else (frame.all_rows, frame.tp)
    with tape.side(bool(mlp.shared_intermediate)):
        _shared(tape, mlp, linears, rows, tp)
    tape.gemm("router", linears, tp=1, rows=rows)
    tape.small("moe_route", mlp.experts, rows)
    tape.gemm("latent_down_proj", linears, tp=1, rows=rows)
    send_to_experts(tape, mlp)
    _experts(tape, mlp)
    collect_experts(tape, mlp)
    if mlp.latent and not mlp.latent_sum:
        tape.gemm("latent_up_proj", linears, tp=1, rows=rows)
    tape.join()
    if mlp.shared_intermediate and not mlp.latent_sum:
        tape.small("moe_combine", hidden, rows)
    for total in mlp.sums(hidden):
        sum_mlp(tape, total, dense=False, last=True)
    if mlp.latent_sum:
        tape.small("latent_norm", mlp.latent, frame.rows)
        tape.gemm("latent_up_proj", linears, tp=1, rows=frame.rows)
        tape.small("moe_combine", hidden, frame.rows)


def _shared(tape: Tape, mlp: Moe, linears: Sequence[Linear], rows: int, tp: int) -> None:
    if not mlp.shared_intermediate:
        return
    tape.gemm("shared_gate_up_proj" if mlp.gated else "shared_up_proj", linears, tp=tp, rows=rows)
    tape.small("shared_activation", mlp.shared_intermediate // tp, rows)
    tape.gemm("shared_down_proj", linears, tp=tp, rows=rows)
    if mlp.shared_gate:
        tape.gemm("shared_gate", linears, tp=1, rows=rows)
        tape.small("shared_gate", tape.frame.model.hidden, rows)


def _experts(tape: Tape, mlp: Moe) -> None:
    frame = tape.frame
    hidden, ep = frame.model.hidden, frame.parallelism.ep
    kernel = RoutedExperts(
        tokens=frame.tokens, hidden=mlp.expert_width(hidden), intermediate=mlp.intermediate, experts=mlp.experts,
        top_k=mlp.top_k, tp=frame.tp // ep, ep=ep, precision=mlp.precision, gated=mlp.gated,
        group=frame.new_tokens if frame.alike else 1, alike=frame.alike,
    )  # fmt: skip
    hit = distinct_experts(
        experts=mlp.experts, top_k=mlp.top_k, tokens=frame.tokens, group=frame.new_tokens, alike=frame.alike
    )
    nbytes = hit * mlp.expert_bytes(hidden) / frame.tp
    flop = 2.0 * frame.tokens * mlp.top_k * mlp.expert_matrices(hidden) / frame.tp
    tape.small("experts_prepare", mlp.expert_width(hidden), frame.all_rows)
    tape.compute("routed_experts", Category.EXPERTS, kernel, nbytes, flop)
    tape.small("experts_finish", mlp.expert_width(hidden), frame.all_rows)
