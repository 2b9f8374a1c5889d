"""Several passes that belong together: the chunks of a prompt, and the drafts and the verification of an iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pciesim.errors import Infeasible
from pciesim.model import Linear, ModelSpec, Split
from pciesim.schedule.build import build, build_frame, issue_layer, joined
from pciesim.schedule.engine import EngineSpec
from pciesim.schedule.exchange import sum_embedding
from pciesim.schedule.frame import Frame
from pciesim.schedule.groups import TP
from pciesim.schedule.head import issue_head
from pciesim.schedule.ops import Category, CollectiveKind, Host, Schedule
from pciesim.schedule.tape import ACTIVATION, Segment, Tape
from pciesim.workload import Parallelism, Phase, Workload

__all__ = ["Pass", "Speculation", "iteration", "prompt"]

_INT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Drafting with the model's own draft head (MTP, NEXTN, EAGLE).

    ``drafts`` sequential draft tokens, each the best ``width`` candidates (1: a chain), of which ``verified`` rows a
    sequence are checked in one pass of the model (0: drafts + 1, the only choice of a chain). ``alike`` is the share
    of experts that drafts of one sequence have in common, ``greedy`` False adds the broadcasts after sampling.
    """

    drafts: int
    width: int = 1
    verified: int = 0
    alike: float = 0.0
    greedy: bool = True

    @property
    def rows(self) -> int:
        """Rows of a sequence in the pass that verifies."""
        return self.drafts + 1 if self.width == 1 or not self.verified else self.verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A forward pass of an iteration (``decode``, ``prompt``, ``draft``, ``extend`` or ``verify``), ``count`` times."""

    name: str
    schedule: Schedule
    count: int = 1


def prompt(
    model: ModelSpec,
    parallelism: Parallelism,
    engine: EngineSpec,
    *,
    tokens: int,
    batch: int = 1,
    chunk: int | None = None,
    context: int = 0,
) -> tuple[Pass, ...]:
    """The chunks of a prompt of ``tokens`` tokens a sequence, after ``context`` that is cached already.

    ``chunk`` bounds the tokens of a pass over all sequences, None is the engine's default.
    """
    size = max(1, (chunk or engine.prefill_chunk) // batch)
    passes: list[Pass] = []
    for done in range(0, tokens, size):
        workload = Workload(
            phase=Phase.PREFILL, batch=batch, context=context + done, new_tokens=min(size, tokens - done)
        )
        passes.append(Pass(name="prompt", schedule=build(model, workload, parallelism, engine)))
    return tuple(passes)


def iteration(
    model: ModelSpec,
    workload: Workload,
    parallelism: Parallelism,
    engine: EngineSpec,
    speculation: Speculation | None = None,
) -> tuple[Pass, ...]:
    """The passes of one decode iteration, in order. Without speculation, one.

    SGLang: ``drafts`` - 1 draft passes, verification, and a pass of the draft head over all verified rows, which gives
    the next first draft. vLLM: that pass first, then ``drafts`` - 1 draft passes, then verification. Either way
    ``drafts`` passes of the head and one of the model. Raises Infeasible for a model without a draft head.
    """
    if speculation is None:
        return (Pass(name="decode", schedule=build(model, workload, parallelism, engine)),)
    if model.mtp is None:
        raise Infeasible(f"{model.name} has no draft head (MTP): nothing to draft with")
    style = engine.speculation
    verify = replace(workload, new_tokens=speculation.rows, alike=speculation.alike)
    frame = Frame.of(model, verify, parallelism, engine)
    verification = _without_host(build_frame(frame), keep=style.extend_last is False)
    if not speculation.greedy:
        verification = _with_broadcasts(verification, frame, speculation, style.broadcasts)
    drafted = replace(workload, new_tokens=speculation.width, alike=speculation.alike)
    one = Pass(name="draft", schedule=_head_pass(Frame.of(model, drafted, parallelism, engine), host=False),
               count=speculation.drafts - 1)  # fmt: skip
    wide = replace(frame, head_rows=frame.rows if style.extend_logits_all else frame.rows // speculation.rows)
    extend = Pass(name="extend", schedule=_head_pass(wide, host=style.extend_last))
    checked = Pass(name="verify", schedule=verification)
    drafts = (one,) if one.count else ()
    return (*drafts, checked, extend) if style.extend_last else (extend, *drafts, checked)


def _head_pass(frame: Frame, *, host: bool) -> Schedule:
    """One pass of the draft head on the last stage: embedding, projection of [embedding, hidden], layers, logits."""
    model, last = frame.model, frame.parallelism.pp - 1
    head = model.mtp
    if head is None:
        raise Infeasible(f"{model.name} has no draft head")
    tape = Tape(frame, last)
    tape.small("embedding", model.hidden, frame.rows)
    sum_embedding(tape, model.hidden)
    tape.small("draft_norms", model.hidden, frame.rows)
    _projection(tape, head.projection(model.hidden))
    for layer in head.layers:
        issue_layer(tape, layer)
    tape.small("final", model.hidden, frame.rows)
    issue_head(tape)
    tape.small("sample", model.vocabulary, frame.head_rows)
    segments: list[Segment] = [tape.segment]
    if host:
        segments.append(_host(frame))
    return joined(segments)


def _projection(tape: Tape, projection: Linear) -> None:
    frame = tape.frame
    if frame.engine.speculation.gathered_projection and frame.attention_tp > 1:
        split = replace(projection, split=Split.COLUMN, units=projection.outputs)
        tape.gemm("mtp_fc", (split,), tp=frame.attention_tp, rows=frame.rows)
        shard = frame.rows * split.local_shape(frame.attention_tp)[0] * ACTIVATION
        tape.collective("mtp_fc", CollectiveKind.ALL_GATHER, shard, group="attention_tp")
    else:
        tape.gemm("mtp_fc", (projection,), tp=1, rows=frame.rows)


def _host(frame: Frame) -> Segment:
    tape = Tape(frame, frame.parallelism.pp - 1)
    tape.compute("host", Category.HOST, Host(engine=frame.engine.name), 0.0, 0.0)
    return tape.segment


def _without_host(schedule: Schedule, *, keep: bool) -> Schedule:
    """The host prepares one iteration, not every pass of it."""
    if keep or schedule.ops[-1].category is not Category.HOST:
        return schedule
    return Schedule(ops=schedule.ops[:-1], after=schedule.after[:-1])


def _with_broadcasts(schedule: Schedule, frame: Frame, speculation: Speculation, count: int) -> Schedule:
    """What rank 0 tells the others after sampling: predictions, accepted places, how many (SGLang eagle_utils)."""
    tape = Tape(frame, frame.parallelism.pp - 1)
    sizes = (frame.rows, frame.sequences * (speculation.drafts + 1), frame.sequences)
    for name, size in zip(("predict", "accept_index", "num_correct"), sizes[:count], strict=False):
        tape.collective(
            name, CollectiveKind.BROADCAST, size * _INT32, group=TP, category=Category.SAMPLING, graph=False
        )
    whole = joined([tape.segment])
    tail = [schedule.ops[-1]] if schedule.ops[-1].category is Category.HOST else []
    body = len(schedule.ops) - len(tail)
    return Schedule(
        ops=(*schedule.ops[:body], *whole.ops, *tail),
        after=(*schedule.after[:body], *whole.after, *schedule.after[body:]),
    )
