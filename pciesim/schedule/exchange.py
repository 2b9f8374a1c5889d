"""How rows and partial sums travel between ranks: the collectives around mixers and MLPs.

=============  ==========================  =========================  ===========================================
exchange       after a mixer               after an MLP               source
=============  ==========================  =========================  ===========================================
``sum``        all-reduce                  all-reduce                 SGLang ``layer_boundary``, vLLM ``linear``
``gather``     (reduce-scatter,)           reduce-scatter             SGLang ``dp_attention`` MAX_LEN
               all-gather                  (, all-gather)
``fill``       all-reduce of all rows      all-reduce of all rows     SGLang ``dp_attention`` SUM_LEN
``dispatch``   reduce-scatter or           all-gather before and      vLLM ``all2all`` allgather_reducescatter,
               all-reduce                  reduce-scatter after       sequence-parallel MoE
                                           routed experts
``all_to_all`` reduce-scatter              all-to-all before and      SGLang ``communicator``, DeepEP
                                           after routed experts
=============  ==========================  =========================  ===========================================

Steps in parentheses exist where several GPUs share the heads of a sequence.
"""

from __future__ import annotations

from pciesim.model import Moe, Precision, Sum
from pciesim.routing import distinct_ranks
from pciesim.schedule.frame import Exchange, Frame
from pciesim.schedule.groups import ATTENTION_TP, EP
from pciesim.schedule.ops import CollectiveKind
from pciesim.schedule.tape import ACTIVATION, Tape

__all__ = ["collect_experts", "finish_mlp", "send_to_experts", "sum_embedding", "sum_mixer", "sum_mlp"]

_ROUTE = 8  # bytes of one expert's weight (fp32) and number (int32)
_FP8_GROUP = 128  # DeepEP dispatches FP8 with an fp32 scale per 128 columns


def sum_embedding(tape: Tape, hidden: int) -> None:
    """After a vocabulary-parallel embedding. SGLang's attention data parallelism keeps it whole on every rank."""
    frame = tape.frame
    if frame.exchange in (Exchange.GATHER, Exchange.FILL) or not frame.engine.embedding_sum:
        return
    tape.all_reduce("embedding", frame.rows, Sum(after="embedding", columns=hidden), group=ATTENTION_TP)


def sum_mixer(tape: Tape, total: Sum | None, *, mlp: bool, experts: bool) -> None:
    """Between a mixer and the MLP after it. ``total`` None: there is no mixer, but the MLP's rows may have to meet."""
    frame = tape.frame
    hidden, width = frame.model.hidden, frame.attention_tp
    name = total.after if total else "rows"
    match frame.exchange:
        case Exchange.GATHER if mlp:
            shard = frame.local_rows * hidden * ACTIVATION
            if total or width > 1:
                tape.collective(name, CollectiveKind.REDUCE_SCATTER, width * shard, group=ATTENTION_TP)
            tape.collective(name, CollectiveKind.ALL_GATHER, shard)
        case Exchange.FILL if mlp:
            tape.all_reduce(name, frame.all_rows, total or Sum(after=name, columns=hidden))
        case Exchange.DISPATCH | Exchange.ALL_TO_ALL if experts and total:
            shard = frame.local_rows * hidden * ACTIVATION
            tape.collective(name, CollectiveKind.REDUCE_SCATTER, width * shard, group=ATTENTION_TP)
        case _ if total:
            tape.all_reduce(name, frame.rows, total, group=ATTENTION_TP)
        case _:
            pass


def sum_mlp(tape: Tape, total: Sum, *, dense: bool, last: bool) -> None:
    """After an MLP's part. ``last``: the layer ends here."""
    frame = tape.frame
    match frame.exchange:
        case Exchange.SUM | Exchange.FILL:
            tape.all_reduce(total.after, frame.all_rows, total)
        case Exchange.GATHER if last:
            shard = _shard(frame) * total.columns * ACTIVATION
            tape.collective(total.after, CollectiveKind.REDUCE_SCATTER, frame.tp * shard)
            tape.collective(total.after, CollectiveKind.ALL_GATHER, shard, group=ATTENTION_TP)
        case Exchange.GATHER:
            tape.all_reduce(total.after, frame.all_rows, total)
        case _ if dense:
            tape.all_reduce(total.after, frame.rows, total, group=ATTENTION_TP)
        case _:
            pass  # routed experts came back summed; shared ones are whole


def finish_mlp(tape: Tape, *, experts: bool) -> None:
    """Rows that routed experts left spread over the attention ranks meet again before the next mixer."""
    frame = tape.frame
    if frame.scattered and experts:
        nbytes = frame.local_rows * frame.model.hidden * ACTIVATION
        tape.collective("rows", CollectiveKind.ALL_GATHER, nbytes, group=ATTENTION_TP)


def send_to_experts(tape: Tape, mlp: Moe) -> None:
    """Rows to the ranks of their experts, with weights and numbers of the chosen experts."""
    frame = tape.frame
    width = mlp.expert_width(frame.model.hidden)
    if frame.exchange is Exchange.DISPATCH:
        gathered = width * ACTIVATION + mlp.top_k * _ROUTE
        tape.collective("dispatch", CollectiveKind.ALL_GATHER, frame.local_rows * gathered, group=EP)
    elif frame.exchange is Exchange.ALL_TO_ALL:
        row = width * Precision.FP8.bytes_per_parameter + width / _FP8_GROUP * Precision.FP32.bytes_per_parameter
        copies = distinct_ranks(ranks=frame.tp, top_k=mlp.top_k)
        tape.collective("dispatch", CollectiveKind.ALL_TO_ALL, frame.local_rows * copies * row, group=EP)


def collect_experts(tape: Tape, mlp: Moe) -> None:
    """Results back to the ranks of their rows."""
    frame = tape.frame
    row = mlp.expert_width(frame.model.hidden) * ACTIVATION
    if frame.exchange is Exchange.DISPATCH:
        tape.collective("combine", CollectiveKind.REDUCE_SCATTER, frame.tp * frame.local_rows * row, group=EP)
    elif frame.exchange is Exchange.ALL_TO_ALL:
        copies = distinct_ranks(ranks=frame.tp, top_k=mlp.top_k)
        tape.collective("combine", CollectiveKind.ALL_TO_ALL, frame.local_rows * copies * row, group=EP)


def _shard(frame: Frame) -> int:
    """Rows of one rank after a reduce-scatter of all rows over the whole group."""
    return -(-frame.all_rows // frame.tp)
