"""The per-position half of a layer: dense MLPs and mixtures of experts.

Each answers for a residual stream of ``hidden`` columns: ``linears(hidden)`` (its matrices, except the routed experts),
``vectors(hidden)`` (its small weights) and ``sums(hidden)`` (the all-reduces that tensor parallelism needs after it).
"""

from __future__ import annotations

from dataclasses import dataclass

from pciesim.model.weights import Linear, Module, Overrides, Precision, Split, Sum, Vector, at_precision

__all__ = ["DenseAndMoe", "DenseMlp", "Moe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """MLP: gate and up in one GEMM, then down. ``gated`` False has no gate (two matrices, e.g. squared ReLU)."""

    intermediate: int
    gated: bool = True
    precision: Precision = Precision.BF16
    overrides: Overrides = ()
    module: Module = Module.DENSE_MLP

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """gate_up (or up), then down."""
        first = "gate_up_proj" if self.gated else "up_proj"
        linears = (
            Linear(name=first, inputs=hidden, outputs=(2 if self.gated else 1) * self.intermediate,
                   split=Split.COLUMN, precision=self.precision, units=self.intermediate, fused=first,
                   module=self.module),
            Linear(name="down_proj", inputs=self.intermediate, outputs=hidden, split=Split.ROW,
                   precision=self.precision, units=self.intermediate, fused="down_proj", module=self.module),
        )  # fmt: skip
        return at_precision(linears, self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """None."""
        return ()

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """After down_proj."""
        return (Sum(after="down_proj", columns=hidden),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Routed experts, a router, and optionally a shared expert, optionally with a sigmoid gate.

    ``gated`` experts have three matrices each, others two. ``latent`` (0: none) is the width that routed experts work
    in, between a down- and an up-projection that every rank holds whole; ``latent_sum`` sums the latent and the shared
    result side by side before the up-projection (Kimi-K3) instead of the finished result. ``expert_bias`` and
    ``router_bias`` add a bias to those linears; ``routing_bias`` is the per-expert bias that balances routing.
    ``precision`` is that of the routed experts, ``shared_precision`` that of the shared one; the router is bf16.
    """

    experts: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    gated: bool = True
    latent: int = 0
    latent_norm: bool = False
    latent_sum: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    routing_bias: bool = False
    precision: Precision = Precision.BF16
    shared_precision: Precision = Precision.BF16
    router_precision: Precision = Precision.BF16
    overrides: Overrides = ()

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """Everything but the routed experts."""
        linears = [
            Linear(name="router", inputs=hidden, outputs=self.experts, split=Split.REPLICATED,
                   precision=self.router_precision, fused="router", bias=self.router_bias, module=Module.ROUTER),
        ]  # fmt: skip
        if self.latent:
            for name, inputs, outputs in (
                ("latent_down_proj", hidden, self.latent), ("latent_up_proj", self.latent, hidden),
            ):  # fmt: skip
                linears.append(
                    Linear(name=name, inputs=inputs, outputs=outputs, split=Split.REPLICATED,
                           precision=self.shared_precision, fused=name, module=Module.SHARED_EXPERTS)
                )  # fmt: skip
        if self.shared_intermediate:
            shared = DenseMlp(intermediate=self.shared_intermediate, gated=self.gated, precision=self.shared_precision)
            linears += [
                Linear(name="shared_" + part.name, inputs=part.inputs, outputs=part.outputs, split=part.split,
                       precision=part.precision, units=part.units, fused="shared_" + part.fused,
                       module=Module.SHARED_EXPERTS)
                for part in shared.linears(hidden)
            ]  # fmt: skip
        if self.shared_gate:
            linears.append(
                Linear(name="shared_gate", inputs=hidden, outputs=1, split=Split.REPLICATED,
                       precision=Precision.BF16, fused="shared_gate", module=Module.SHARED_EXPERTS)
            )  # fmt: skip
        return at_precision(tuple(linears), self.overrides)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:  # noqa: ARG002
        """The norm of the latent, and the routing bias."""
        vectors = []
        if self.latent_norm:
            vectors.append(Vector(name="latent_norm", parameters=self.latent))
        if self.routing_bias:
            vectors.append(Vector(name="routing_bias", parameters=self.experts, precision=Precision.FP32))
        return tuple(vectors)

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """Routed and shared results are added on each rank first, so one sum serves both."""
        return (Sum(after="experts", columns=self.latent + hidden if self.latent_sum else hidden),)

    def expert_width(self, hidden: int) -> int:
        """Columns an expert reads and writes."""
        return self.latent or hidden

    def expert_matrices(self, hidden: int) -> int:
        """Weights in the matrices of one routed expert."""
        return (3 if self.gated else 2) * self.expert_width(hidden) * self.intermediate

    def expert_parameters(self, hidden: int) -> int:
        """Parameters of one routed expert, with biases."""
        bias = (2 if self.gated else 1) * self.intermediate + self.expert_width(hidden) if self.expert_bias else 0
        return self.expert_matrices(hidden) + bias

    def expert_bytes(self, hidden: int) -> float:
        """Bytes of one routed expert; biases are bf16."""
        matrices = self.expert_matrices(hidden)
        bias = self.expert_parameters(hidden) - matrices
        return matrices * self.precision.bytes_per_parameter + bias * Precision.BF16.bytes_per_parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseAndMoe:
    """A dense MLP beside routed experts, each with its own norms and its own sum (Gemma-4 26B-A4B)."""

    dense: DenseMlp
    moe: Moe

    def linears(self, hidden: int) -> tuple[Linear, ...]:
        """The dense ones, then the router's."""
        return self.dense.linears(hidden) + self.moe.linears(hidden)

    def vectors(self, hidden: int) -> tuple[Vector, ...]:
        """Three more norms, the router's input scale and its scale per expert."""
        norms = Vector(name="branch_norms", parameters=3 * hidden)
        return (norms, Vector(name="router_scales", parameters=hidden + self.moe.experts), *self.moe.vectors(hidden))

    def sums(self, hidden: int) -> tuple[Sum, ...]:
        """One of each branch: a norm stands between them and their addition."""
        return self.dense.sums(hidden) + self.moe.sums(hidden)
