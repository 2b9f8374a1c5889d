"""Whole tensor-parallel decode steps in one CUDA graph, random weights, plain PyTorch operators.

Layer: rms_norm, qkv GEMM, two KV writes, SDPA, o GEMM, all-reduce, add, rms_norm, MLP (gate and up GEMM, SiLU, mul,
down GEMM) or experts (router GEMM, softmax, topk, argsort, searchsorted, gather, grouped GEMM, SiLU, mul, grouped GEMM,
weighted index_add), all-reduce, add.

Rows: ``model`` and its sizes, ``layers`` (fewer than the model has where memory or a quick run asks for it),
``tokens``, ``ctx``, ``variant`` (compute: no collectives; nccl; push_peer, push_host, ...: own kernels), ``step_s``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pciesim.measure.allreduce import OneShot
from pciesim.measure.experiments.kernels import grouped_mm
from pciesim.measure.team import NcclGroup, Worker
from pciesim.measure.timing import in_graph

__all__ = ["MODELS", "Shape", "run"]

TOKENS: Final = (1, 4, 8, 32, 128)
CONTEXTS: Final = (2**10, 2**14)  # tokens
OWN: Final = {"p2p": ("push_peer",), "host": ("push_host", "pull_host")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a model; ``experts`` 0 is a dense MLP of width ``inner``."""

    name: str
    hidden: int
    layers: int
    hq: int
    hkv: int
    d: int
    inner: int
    experts: int = 0
    chosen: int = 0

    def layer_bytes(self, world: int) -> int:
        """Weights of one layer on one rank, bf16."""
        hq, hkv = self.hq // world, max(1, self.hkv // world)
        mixer = self.hidden * (hq + 2 * hkv) * self.d + hq * self.d * self.hidden
        mlp = 3 * self.hidden * (self.inner // world) * max(1, self.experts)
        return 2 * (mixer + mlp + self.hidden * self.experts)


MODELS: Final = (
    Shape(name="llama8b", hidden=4096, layers=32, hq=32, hkv=8, d=128, inner=14336),
    Shape(name="qwen30b_a3b", hidden=2048, layers=48, hq=32, hkv=4, d=128, inner=768, experts=128, chosen=8),
)


def run(worker: Worker) -> None:
    """Largest world first, dense first."""
    for team in worker.teams() if worker.full else worker.teams()[:1]:
        group = NcclGroup(team, {})
        if team.member:
            for shape in MODELS:
                _model(worker, group, shape)
        group.close()
        worker.torch.cuda.empty_cache()


def _model(worker: Worker, group: NcclGroup, shape: Shape) -> None:
    torch, team = worker.torch, group.team
    free, _ = torch.cuda.mem_get_info()
    fitting = min(team.gather(int(free * 0.7) // shape.layer_bytes(team.size)))
    layers = min(shape.layers if worker.full else shape.layers // 8, fitting)
    if layers < 1:
        worker.finding(f"{shape.name} does not fit on {team.size} GPUs")
        return
    weights = [_Layer(torch, shape, team.size, seed) for seed in range(layers)]
    points = [(tokens, CONTEXTS[0]) for tokens in (TOKENS if worker.full else TOKENS[:3:2])]
    points += [(1, CONTEXTS[1])] if worker.full else []
    for tokens, context in points:
        x = _alike(torch, tokens, tokens, shape.hidden)
        cache = _Cache(torch, shape, world=team.size, tokens=tokens, context=context, layers=layers)
        for variant in ("compute", "nccl", *OWN[worker.transport]):
            _variant(worker, group, shape, variant, x=x, cache=cache, weights=weights, ctx=context)


def _variant(
    worker: Worker,
    group: NcclGroup,
    shape: Shape,
    variant: str,
    *,
    x: Any,
    cache: _Cache,
    weights: list[_Layer],
    ctx: int,
) -> None:
    torch, team = worker.torch, group.team
    own: OneShot | None = None
    if variant not in {"compute", "nccl"}:
        if team.size > 8 or not team.all_true(worker.kernel("oneshot_push") is not None):
            return
        own = OneShot(team, variant, x.numel() * 2)

    def reduce(y: Any) -> Any:
        if variant == "nccl":
            worker.dist.all_reduce(y, group=group.handle)
        elif own is not None:
            result = torch.empty_like(y)
            own(y, result)
            return result
        return y

    def step() -> None:
        y = x
        for position, layer in enumerate(weights):
            y = layer(y, cache, position, reduce)

    first = torch.ones(8, device="cuda")
    found = in_graph(team, step, most_calls=1, repeats=9,
                     align=lambda: worker.dist.all_reduce(first, group=group.handle))  # fmt: skip
    late = own is not None and own.timed_out()
    if own is not None:
        own.close()
    if team.all_true(not late):
        worker.row(
            transport=worker.transport, model=shape.name, h=shape.hidden, L=shape.layers, layers=len(weights),
            hq=shape.hq, hkv=shape.hkv, d=shape.d, ffn=shape.inner, experts=shape.experts, chosen=shape.chosen,
            world=team.size, gpus=team.gpus, tokens=x.shape[0], ctx=ctx, variant=variant, step_s=found.median,
            min_s=found.least, max_s=found.most, halves_s=list(found.halves),
        )  # fmt: skip
    else:
        worker.finding(f"decode with {variant} over {team.size} GPUs timed out")


def _alike(torch: Any, seed: int, *size: int) -> Any:
    """The same random numbers on every rank: all hold the whole router and see the same tokens."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*size, generator=generator, device="cuda", dtype=torch.bfloat16)


class _Cache:
    """Keys and values of every layer, and where the new token goes."""

    def __init__(self, torch: Any, shape: Shape, *, world: int, tokens: int, context: int, layers: int) -> None:
        heads = max(1, shape.hkv // world)
        size = (layers, 2, tokens, heads, context, shape.d)
        self.kv = torch.randn(*size, device="cuda", dtype=torch.bfloat16)
        self.at = torch.tensor([context - 1], device="cuda")


class _Layer:
    """One rank's share of a layer; weights are scaled so that activations stay near one."""

    def __init__(self, torch: Any, shape: Shape, world: int, seed: int) -> None:
        self.torch, self.shape = torch, shape
        self.hq, self.hkv = shape.hq // world, max(1, shape.hkv // world)
        inner, experts = shape.inner // world, shape.experts

        def weight(*size: int) -> Any:
            return torch.randn(*size, device="cuda", dtype=torch.bfloat16) * (size[-1] ** -0.5)

        self.qkv = weight((self.hq + 2 * self.hkv) * shape.d, shape.hidden)
        self.o = weight(shape.hidden, self.hq * shape.d)
        self.norms = torch.ones(2, shape.hidden, device="cuda", dtype=torch.bfloat16)
        if experts:
            self.router = _alike(torch, seed, experts, shape.hidden) * shape.hidden**-0.5
            self.up = weight(experts, shape.hidden, 2 * inner)
            self.down = weight(experts, inner, shape.hidden)
            self.bounds = torch.arange(experts, device="cuda")
        else:
            self.up = weight(2 * inner, shape.hidden)
            self.down = weight(shape.hidden, inner)

    def __call__(self, x: Any, cache: _Cache, position: int, reduce: Callable[[Any], Any]) -> Any:
        f, shape, tokens = self.torch.nn.functional, self.shape, x.shape[0]
        y = f.rms_norm(x, (shape.hidden,), self.norms[0])
        qkv = f.linear(y, self.qkv).view(tokens, self.hq + 2 * self.hkv, 1, shape.d)
        keys, values = cache.kv[position]
        keys.index_copy_(2, cache.at, qkv[:, self.hq : self.hq + self.hkv])
        values.index_copy_(2, cache.at, qkv[:, self.hq + self.hkv :])
        y = f.scaled_dot_product_attention(qkv[:, : self.hq], keys, values, enable_gqa=True)
        x = x + reduce(f.linear(y.reshape(tokens, -1), self.o))
        y = f.rms_norm(x, (shape.hidden,), self.norms[1])
        return x + reduce(self._experts(y) if shape.experts else self._dense(y))

    def _dense(self, y: Any) -> Any:
        f = self.torch.nn.functional
        gate, up = f.linear(y, self.up).chunk(2, dim=-1)
        return f.linear(f.silu(gate) * up, self.down)

    def _experts(self, y: Any) -> Any:
        torch, f, chosen = self.torch, self.torch.nn.functional, self.shape.chosen
        share, picked = torch.topk(torch.softmax(f.linear(y, self.router), -1), chosen)
        order = torch.argsort(picked.flatten())
        sorted_experts = picked.flatten()[order]
        offsets = torch.searchsorted(sorted_experts, self.bounds, right=True).to(torch.int32)
        rows = order // chosen
        gate, up = grouped_mm(torch, y[rows], self.up, offsets).chunk(2, dim=-1)
        out = grouped_mm(torch, f.silu(gate) * up, self.down, offsets)
        weighted = out * share.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(y).index_add_(0, rows, weighted)
