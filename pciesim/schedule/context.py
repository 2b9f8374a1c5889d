"""Decode context parallelism: attention over a KV cache whose tokens are spread over ranks, and what they exchange.

As vLLM 0.33.0 does it (``--decode-context-parallel-size N``). Of the H query heads that N ranks in a row have together,
each computes H / N; all of them belong to KV heads that every one of the N ranks would hold a copy of. A layer then:

1. all-gathers queries: every rank passes in rows x H / N x width in bf16 (``all_gather(query, dim=1)`` in
   ``v1/attention/backends/{flash_attn,flashinfer}.py``, ``MLADCPManager`` in ``v1/attention/ops/dcp.py``);
2. attends with H heads over its own tokens, every Nth (``cp_kv_cache_interleave_size`` 1);
3. all-gathers the log-sum-exps, rows x H in fp32 from each rank, scales its output by them and reduce-scatters it over
   heads, rows x H x value width in bf16 from each rank (``cp_lse_ag_out_rs``: ``--dcp-comm-backend ag_rs``, default).

MLA exchanges latent queries (latent + rotary columns) and latent outputs. A sparse indexer scores its own tokens; ranks
all-gather their best ``top_k`` as (score, number) pairs (``_merge_dcp_topk_global``), and each reads the chosen ones
that it holds, taken as evenly spread.

What else vLLM has is not here: ``--dcp-comm-backend a2a`` and ``--dcp-q-replicate`` (which it takes by itself for GLM
models with a sparse indexer), and query gathers by multicast, which need an NVLink switch. FlashAttention treats the
new tokens apart and merges twice; the FlashInfer path is taken, which has them in the cache. Queries are taken as bf16
where a backend might quantise them first.
"""

from __future__ import annotations

from pciesim.model import Precision
from pciesim.schedule.groups import DCP
from pciesim.schedule.ops import Category, CollectiveKind
from pciesim.schedule.tape import ACTIVATION, Tape

__all__ = ["gather_queries", "merge_candidates", "merge_outputs"]

_CANDIDATE = 2 * int(Precision.FP32.bytes_per_parameter)  # a score and a token's number, both packed as fp32
_LOG_SUM_EXP = int(Precision.FP32.bytes_per_parameter)


def gather_queries(tape: Tape, ways: int, *, heads: int, width: int, latent: bool) -> None:
    """Queries of the subgroup's heads to each of its ranks. ``heads`` and ``width`` are those of one rank's query."""
    if ways == 1:
        return
    rows = tape.frame.rows
    if latent:
        tape.small("context_join", heads * width, rows)  # latent and rotary part become one tensor
    _exchange(tape, "queries", CollectiveKind.ALL_GATHER, rows * heads * width * ACTIVATION)
    _by_row(tape, ways * heads * width)


def merge_outputs(tape: Tape, ways: int, *, heads: int, width: int, latent: bool) -> None:
    """Partial outputs of all the subgroup's heads become whole ones of the rank's own ``heads``."""
    if ways == 1:
        return
    rows, partial = tape.frame.rows, ways * heads * width
    if latent:
        tape.small("context_mask", 1, rows)
    nbytes = rows * ways * heads * _LOG_SUM_EXP
    _exchange(tape, "log_sum_exp", CollectiveKind.ALL_GATHER, nbytes, precision=Precision.FP32)
    tape.small("context_merge", partial, rows)
    _by_row(tape, partial)
    _exchange(tape, "partial_outputs", CollectiveKind.REDUCE_SCATTER, rows * partial * ACTIVATION)
    _by_row(tape, heads * width)
    if not latent:
        tape.small("context_output", heads * width, rows)


def merge_candidates(tape: Tape, ways: int, top_k: int) -> None:
    """The best tokens of each rank's share become those of all."""
    if ways > 1:
        nbytes = tape.frame.rows * top_k * _CANDIDATE
        _exchange(tape, "index_candidates", CollectiveKind.ALL_GATHER, nbytes, precision=Precision.FP32)


def _exchange(
    tape: Tape, name: str, kind: CollectiveKind, nbytes: float, *, precision: Precision = Precision.BF16
) -> None:
    tape.collective(name, kind, nbytes, group=DCP, category=Category.CONTEXT_EXCHANGE, precision=precision)


def _by_row(tape: Tape, width: int) -> None:
    """NCCL joins and cuts the outermost dimension: a copy brings heads there and back, but for a single row."""
    if tape.frame.rows > 1:
        tape.small("context_layout", width, tape.frame.rows)
