"""From a model and a workload to the ops a serving engine issues under tensor parallelism.

Order and counts follow SGLang's plain TP (embedding all-reduce, one all-reduce after each mixer and each MLP, one
all-gather of logits): 1 + 2 x layers all-reduces of tokens x hidden x 2 bytes. vLLM issues the same list.
Sources: sgl-project/sglang 0.5.23 ``layers/{vocab_parallel_embedding,layer_boundary,logits_processor}.py``,
vllm-project/vllm 0.33.0 ``model_executor/layers/{linear,fused_moe,logits_processor}.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pciesim.errors import Infeasible
from pciesim.model import Attention, DenseMlp, GatedDeltaNet, Linear, ModelSpec, Moe, Precision, Sum
from pciesim.schedule.engine import EngineSpec
from pciesim.schedule.ops import (
    Category,
    Collective,
    CollectiveKind,
    Compute,
    DecodeAttention,
    DeltaRule,
    Elementwise,
    Gemm,
    Host,
    Kernel,
    Op,
    RoutedExperts,
    Schedule,
)
from pciesim.workload import Parallelism, Workload

__all__ = ["build"]

_ACTIVATION = int(Precision.BF16.bytes_per_parameter)


def build(model: ModelSpec, workload: Workload, parallelism: Parallelism, engine: EngineSpec) -> Schedule:
    """The ops of one decode step on each rank of a tensor-parallel group.

    The caller has checked that ``parallelism`` divides the model (``model_size.check_parallelism``).
    """
    return _Builder(model, workload, parallelism, engine).build()


class _Builder:
    def __init__(self, model: ModelSpec, workload: Workload, parallelism: Parallelism, engine: EngineSpec) -> None:
        self.model, self.workload, self.tp, self.engine = model, workload, parallelism.tp, engine
        self.parallelism = parallelism
        self.rows = workload.tokens
        self.ops: list[Op] = []
        self.after: list[tuple[int, ...]] = []
        self.stream = 0
        self.pending: list[int] = []  # ops of the side stream that the main stream has not joined yet
        self.joining = False  # whether the main stream's next op waits for them

    def build(self) -> Schedule:
        hidden = self.model.hidden
        self._small("embedding", hidden)
        self._all_reduce("embedding", hidden, Precision.BF16)
        for layer in self.model.layers:
            self._small("before_mixer", hidden)
            match layer.mixer:
                case Attention():
                    self._attention(layer.mixer)
                case GatedDeltaNet():
                    self._delta_rule(layer.mixer)
                case _:
                    raise self._unmodelled(layer.mixer)
            self._small("before_mlp", hidden)
            match layer.mlp:
                case DenseMlp():
                    self._dense(layer.mlp)
                case Moe():
                    self._moe(layer.mlp)
                case _:
                    raise self._unmodelled(layer.mlp)
        self._small("final", hidden)
        self._head()
        self._compute("host", Category.HOST, Host(engine=self.engine.name), 0.0, 0.0)
        return Schedule(ops=tuple(self.ops), after=tuple(self.after))

    def _unmodelled(self, part: object) -> Infeasible:
        return Infeasible(f"{self.model.name}: the schedule of {type(part).__name__} is not modelled yet")

    # -- blocks ---------------------------------------------------------------------------------------------------

    def _attention(self, mixer: Attention) -> None:
        linears = mixer.linears(self.model.hidden)
        heads = max(1, mixer.heads // self.tp)
        kv_heads = max(1, mixer.kv_heads // self.tp)
        width = heads * mixer.head_dim
        self._gemm("qkv_proj", linears, Category.GEMM_MIXER)
        self._sums(mixer.sums(self.model.hidden), "qk_norm")
        self._small("attention_prepare", width + 2 * kv_heads * mixer.head_dim)
        keys = min(self.workload.context, mixer.window) if mixer.window else self.workload.context
        kernel = DecodeAttention(
            batch=self.workload.batch,
            new_tokens=self.workload.new_tokens,
            context=keys,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=mixer.head_dim,
            window=mixer.window,
            kv_precision=self.model.kv_precision,
        )
        cache = self.workload.batch * keys * mixer.kv_bytes_per_token(self.tp, self.model.kv_precision)
        flop = 4.0 * self.rows * keys * width
        self._compute("attention", Category.ATTENTION, kernel, cache, flop)
        if mixer.output_gate:
            self._small("attention_gate", width)
        self._gemm("o_proj", linears, Category.GEMM_MIXER)
        self._sums(mixer.sums(self.model.hidden), "o_proj")

    def _delta_rule(self, mixer: GatedDeltaNet) -> None:
        linears = mixer.linears(self.model.hidden)
        values = mixer.value_heads * mixer.value_dim // self.tp
        self._gemm("in_proj_qkvz", linears, Category.GEMM_MIXER)
        with_side = self._on_side_stream()
        self._gemm("in_proj_ba", linears, Category.GEMM_MIXER)
        self._back_to_main(with_side)
        self._small("delta_prepare", 2 * values)
        kernel = DeltaRule(
            batch=self.workload.batch,
            new_tokens=self.workload.new_tokens,
            key_heads=max(1, mixer.key_heads // self.tp),
            value_heads=max(1, mixer.value_heads // self.tp),
            key_dim=mixer.key_dim,
            value_dim=mixer.value_dim,
            conv_kernel=mixer.conv_kernel,
            hidden=self.model.hidden,
        )
        state = 2 * self.workload.batch * mixer.state_bytes_per_sequence(self.tp)
        flop = 8.0 * self.rows * values * mixer.key_dim
        self._join()
        self._compute("delta_rule", Category.DELTA_RULE, kernel, state, flop)
        self._small("delta_finish", values)
        self._gemm("out_proj", linears, Category.GEMM_MIXER)
        self._sums(mixer.sums(self.model.hidden), "out_proj")

    def _dense(self, mlp: DenseMlp) -> None:
        linears = mlp.linears(self.model.hidden)
        self._gemm("gate_up_proj" if mlp.gated else "up_proj", linears, Category.GEMM_MLP)
        self._small("dense_activation", mlp.intermediate // self.tp)
        self._gemm("down_proj", linears, Category.GEMM_MLP)
        self._sums(mlp.sums(self.model.hidden), "down_proj")

    def _moe(self, mlp: Moe) -> None:
        hidden = self.model.hidden
        linears = mlp.linears(hidden)
        if mlp.shared_intermediate:
            with_side = self._on_side_stream()
            self._gemm("shared_gate_up_proj", linears, Category.GEMM_MLP)
            self._small("shared_activation", mlp.shared_intermediate // self.tp)
            self._gemm("shared_down_proj", linears, Category.GEMM_MLP)
            if mlp.shared_gate:
                self._gemm("shared_gate", linears, Category.GEMM_MLP)
                self._small("shared_gate", hidden)
            self._back_to_main(with_side)
        self._gemm("router", linears, Category.GEMM_ROUTER)
        self._small("moe_route", mlp.experts)
        self._experts(mlp)
        self._join()
        if mlp.shared_intermediate:
            self._small("moe_combine", hidden)
        self._sums(mlp.sums(hidden), "experts")

    def _experts(self, mlp: Moe) -> None:
        ep = self.parallelism.ep
        kernel = RoutedExperts(
            tokens=self.rows,
            hidden=self.model.hidden,
            intermediate=mlp.intermediate,
            experts=mlp.experts,
            top_k=mlp.top_k,
            tp=self.tp // ep,
            ep=ep,
            precision=mlp.precision,
        )
        # Distinct experts hit by independent uniform routing; an upper bound for skewed or correlated tokens.
        distinct = mlp.experts * (1 - (1 - mlp.top_k / mlp.experts) ** self.rows)
        nbytes = distinct * mlp.expert_bytes(self.model.hidden) / self.tp
        flop = 2.0 * self.rows * mlp.top_k * mlp.expert_parameters(self.model.hidden) / self.tp
        self._compute("routed_experts", Category.EXPERTS, kernel, nbytes, flop)

    def _head(self) -> None:
        # Decode needs logits of every row; prefill only of the last one of each sequence.
        vocabulary = -(-self.model.vocabulary // self.tp)
        precision = self.model.head_precision
        gemm = Gemm(m=self.rows, n=vocabulary, k=self.model.hidden, precision=precision)
        nbytes = vocabulary * self.model.hidden * precision.bytes_per_parameter
        self._compute("lm_head", Category.GEMM_HEAD, gemm, nbytes, 2.0 * self.rows * vocabulary * self.model.hidden)
        if self.tp > 1:
            self._op(
                Collective(
                    name="logits",
                    category=Category.LOGITS_GATHER,
                    kind=CollectiveKind.ALL_GATHER,
                    nbytes=self.rows * vocabulary * _ACTIVATION,
                    ranks=self.tp,
                )
            )
        self._small("sample", self.model.vocabulary)

    # -- ops ------------------------------------------------------------------------------------------------------

    def _gemm(self, fused: str, linears: Sequence[Linear], category: Category) -> None:
        parts = [linear for linear in linears if linear.fused == fused]
        shapes = [part.local_shape(self.tp) for part in parts]
        outputs, inputs = sum(shape[0] for shape in shapes), shapes[0][1]
        kernel = Gemm(m=self.rows, n=outputs, k=inputs, precision=parts[0].precision)
        nbytes = sum(part.local_bytes(self.tp) for part in parts)
        self._compute(fused, category, kernel, nbytes, 2.0 * self.rows * outputs * inputs)

    def _small(self, place: str, width: int) -> None:
        """The small kernels of a place; each reads and writes the rows once."""
        nbytes = 2.0 * self.rows * width * _ACTIVATION
        for kind in self.engine.small_kernels.get(place, ()):
            self._compute(kind, Category.SMALL, Elementwise(kind=kind, nbytes=nbytes), nbytes, 0.0)

    def _sums(self, sums: Sequence[Sum], after: str) -> None:
        for each in sums:
            if each.after == after:
                self._all_reduce(after, each.columns, each.precision)

    def _all_reduce(self, after: str, columns: int, precision: Precision) -> None:
        if self.tp > 1:
            self._op(
                Collective(
                    name=after,
                    category=Category.ALL_REDUCE,
                    kind=CollectiveKind.ALL_REDUCE,
                    nbytes=int(self.rows * columns * precision.bytes_per_parameter),
                    ranks=self.tp,
                )
            )

    def _compute(self, name: str, category: Category, kernel: Kernel, nbytes: float, flop: float) -> None:
        self._op(
            Compute(name=name, category=category, kernel=kernel, nbytes=nbytes, flop=flop, stream=self.stream),
        )

    def _op(self, op: Op) -> None:
        waits: tuple[int, ...] = ()
        if op.stream != 0 and not self.pending and self.ops:
            waits = (len(self.ops) - 1,)  # the side stream forks from the main stream's last op
        elif op.stream == 0 and self.joining:
            waits = tuple(self.pending[-1:])
            self.pending.clear()
            self.joining = False
        if op.stream != 0:
            self.pending.append(len(self.ops))
        self.ops.append(op)
        self.after.append(waits)

    # -- streams --------------------------------------------------------------------------------------------------

    def _on_side_stream(self) -> bool:
        if self.engine.side_stream:
            self.stream = 1
        return self.engine.side_stream

    def _back_to_main(self, side: bool) -> None:
        if side:
            self.stream = 0

    def _join(self) -> None:
        """The next op of the main stream waits for the side stream."""
        self.joining = bool(self.pending)
