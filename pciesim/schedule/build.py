"""From a model and a workload to the ops a serving engine issues in one forward pass.

Plain tensor parallelism: embedding all-reduce, one all-reduce after each mixer and each MLP, one all-gather of logits:
1 + 2 x layers all-reduces of tokens x hidden x 2 bytes. Experts spread over the same ranks change nothing of it.
Attention data parallelism, all-to-all and pipelines replace some of these: :mod:`pciesim.schedule.exchange`.
Sources: sgl-project/sglang 0.5.23 ``layers/{vocab_parallel_embedding,dp_attention,logits_processor}.py`` and
``layers/layer_boundary``, vllm-project/vllm 0.33.0 ``model_executor/layers/{linear,fused_moe,logits_processor}.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pciesim.errors import Infeasible
from pciesim.model import Absent, Layer, ModelSpec
from pciesim.schedule.engine import EngineSpec
from pciesim.schedule.exchange import finish_mlp, sum_embedding, sum_mixer
from pciesim.schedule.frame import Exchange, Frame, stage_layers
from pciesim.schedule.head import issue_head
from pciesim.schedule.mixers import MIXERS, issue_mixer
from pciesim.schedule.mlps import has_experts, issue_mlp
from pciesim.schedule.ops import Category, CollectiveKind, Host, Op, Schedule
from pciesim.schedule.tape import ACTIVATION, Segment, Tape
from pciesim.workload import Parallelism, Workload

__all__ = ["build", "build_frame", "issue_layer", "joined"]


def build(
    model: ModelSpec,
    workload: Workload,
    parallelism: Parallelism,
    engine: EngineSpec,
    *,
    exchange: Exchange | None = None,
) -> Schedule:
    """The ops of one pass on each rank of a replica; under a pipeline, the path of one micro-batch through it.

    The caller has checked that ``parallelism`` divides the model (``model_size.check_parallelism``). Raises Infeasible
    for a mixer without a schedule.
    """
    return build_frame(Frame.of(model, workload, parallelism, engine, exchange=exchange))


def build_frame(frame: Frame) -> Schedule:
    """As :func:`build`, from a frame."""
    segments = [] if not frame.engine.whole else [_embedding(frame)]
    stages = stage_layers(frame.model, frame.parallelism.pp)
    for stage, layers in enumerate(stages):
        if stage:
            segments.append(_boundary(frame, stage))
        known: dict[int, Segment] = {}  # equal layers of a run are one object: issued once
        for layer in layers:
            if id(layer) not in known:
                known[id(layer)] = _layer(frame, layer, stage)
            segments.append(known[id(layer)])
    if frame.engine.whole:
        segments.append(_ending(frame, len(stages) - 1))
    return joined(_handed_over(segments) if frame.parallelism.pp > 1 else segments)


def joined(segments: Sequence[Segment]) -> Schedule:
    """Segments one after the other, their relative waits made absolute."""
    ops: list[Op] = []
    after: list[tuple[int, ...]] = []
    for segment_ops, waits in segments:
        first = len(ops)
        ops += segment_ops
        after += [tuple(first + index + wait for wait in each) if each else each for index, each in enumerate(waits)]
    return Schedule(ops=tuple(ops), after=tuple(after))


def issue_layer(tape: Tape, layer: Layer) -> None:
    """One layer: norm, mixer, sum, norm, MLP, sum; either half may be absent."""
    frame = tape.frame
    hidden = frame.model.hidden
    mixer, mlp = layer.mixer, layer.mlp
    has_mixer, has_mlp = not isinstance(mixer, Absent), not isinstance(mlp, Absent)
    experts = has_experts(mlp)
    if has_mixer:
        if type(mixer) not in MIXERS:
            raise Infeasible(f"{frame.model.name}: the schedule of {type(mixer).__name__} is not modelled")
        _residual(tape, layer, "mixer")
        tape.small("before_mixer", hidden, frame.rows)
        issue_mixer(tape, mixer)
    last = mixer.sums(hidden)[-1] if has_mixer else None
    sum_mixer(tape, last, mlp=has_mlp, experts=experts)
    if has_mixer and layer.post_norms:
        tape.small("post_norm", hidden, frame.rows)
    if has_mlp:
        rows = (
            frame.local_rows if frame.scattered and experts else frame.all_rows if not frame.scattered else frame.rows
        )
        _residual(tape, layer, "mlp")
        tape.small("before_mlp", hidden, rows)
        issue_mlp(tape, mlp)
        finish_mlp(tape, experts=experts)
        if layer.post_norms:
            tape.small("post_norm", hidden, frame.rows)
    tape.small("after_layer", hidden, frame.rows)


def _layer(frame: Frame, layer: Layer, stage: int) -> Segment:
    tape = Tape(frame, stage)
    issue_layer(tape, layer)
    return tape.segment


def _residual(tape: Tape, layer: Layer, half: str) -> None:
    """Hyper-connections mix the residual streams before and after each half."""
    if layer.streams > 1:
        frame = tape.frame
        tape.gemm(f"hyper_{half}", layer.linears(frame.model.hidden), tp=1, rows=frame.rows)
        tape.small("mix_streams", layer.streams * frame.model.hidden, frame.rows)


def _embedding(frame: Frame) -> Segment:
    tape = Tape(frame)
    tape.small("embedding", frame.model.hidden, frame.rows)
    sum_embedding(tape, frame.model.hidden)
    return tape.segment


def _boundary(frame: Frame, stage: int) -> Segment:
    """Hidden state and residual to the next stage: a slice from each rank, gathered on arrival."""
    shard = -(-frame.rows * frame.model.hidden // frame.attention_tp) * ACTIVATION
    sender, receiver = Tape(frame, stage - 1), Tape(frame, stage)
    for name in ("hidden_states", "residual"):
        sender.collective(name, CollectiveKind.SEND_RECV, shard, group="pp", category=Category.PIPELINE, graph=False)
    for name in ("hidden_states", "residual"):
        receiver.collective(
            name, CollectiveKind.ALL_GATHER, shard, group="attention_tp", category=Category.PIPELINE, graph=False
        )
    arrived = [(-len(sender.ops),)] * len(receiver.ops)  # each gather waits for its own tensor
    return tuple(sender.ops + receiver.ops), (*sender.waits, *arrived)


def _handed_over(segments: list[Segment]) -> list[Segment]:
    """The first op of a stage that gathers nothing waits for what was sent to it."""
    found: list[Segment] = []
    for ops, waits in segments:
        before = found[-1][0][-1] if found else None
        alone = before is not None and before.stage != ops[0].stage and not waits[0]
        found.append((ops, ((-1,), *waits[1:]) if alone else waits))
    return found


def _ending(frame: Frame, stage: int) -> Segment:
    tape = Tape(frame, stage)
    tape.small("final", frame.model.hidden, frame.rows)
    issue_head(tape)
    tape.small("sample", frame.model.vocabulary, frame.head_rows)
    tape.compute("host", Category.HOST, Host(engine=frame.engine.name), 0.0, 0.0)
    return tape.segment
