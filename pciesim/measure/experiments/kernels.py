"""Kernels of one GPU in a graph: GEMM, decode attention, small kernels, grouped GEMM; weights rotated past the L2.

Rows: ``op``, its sizes, seconds a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, Final

from pciesim.measure.team import Worker
from pciesim.measure.timing import alone
from pciesim.units import GIB

__all__ = ["Case", "cases", "grouped_mm", "run"]

TOKENS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048)
QUICK_TOKENS: Final = (1, 16, 64)
GEMMS: Final = (
    (4096, 6144), (4096, 3072), (4096, 1536), (4096, 768), (4096, 4096), (2048, 4096), (2**10, 4096), (512, 4096),
    (4096, 28672), (4096, 14336), (4096, 7168), (4096, 3584), (14336, 4096), (7168, 4096), (3584, 4096), (1792, 4096),
    (2048, 5120), (2048, 2560), (2048, 1280), (2048, 768), (4096, 2048), (2048, 2048), (2**10, 2048), (512, 2048),
    (2048, 128), (4096, 512), (4096, 2**10), (4096, 8192), (4096, 10240), (4096, 124160), (8192, 5120), (8192, 28672),
    (14336, 8192),
)  # fmt: skip
QUICK_GEMMS: Final = ((4096, 3072), (4096, 14336), (7168, 4096))
HEADS: Final = ((32, 8, 128), (16, 4, 128), (8, 2, 128), (4, 1, 128), (32, 4, 128), (16, 2, 128), (8, 1, 128),
                (16, 1, 256))  # fmt: skip
CONTEXTS: Final = (128, 2**10, 2**12, 2**13, 2**15)  # tokens
WIDTHS: Final = (2048, 4096, 8192)
INNER: Final = (768, 1792, 2048, 3584, 4096, 7168, 8192, 14336)
ROUTING: Final = ("softmax", "topk", "argsort", "searchsorted", "gather", "index_add")
EXPERTS: Final = ((128, 8, 2048, 768), (128, 8, 2048, 384), (128, 8, 2048, 192), (128, 8, 2048, 96))
POOL: Final = GIB  # of rotated weights at most

Experts = tuple[int, int, int, int]  # experts, chosen, hidden, width of one
Case = tuple[dict[str, Any], list[Callable[[], Any]]]


def run(worker: Worker) -> None:
    """The first GPU only; a kernel that this PyTorch does not have becomes a finding."""
    if worker.rank:
        return
    missing: set[str] = set()
    for make in cases(worker):
        try:
            keys, calls = make()
            found = alone(worker, calls, rounds=max(1, 32 // len(calls)), repeats=7)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            name = f"{make.func.__name__.strip('_')} {make.args[1] if isinstance(make.args[1], str) else ''}".strip()
            if name not in missing:
                missing.add(name)
                worker.finding(f"{name} does not run here: {str(error).splitlines()[0][:200]}")
            worker.torch.cuda.synchronize()
            continue
        worker.row(gpu=worker.device, mode="graph", **keys, **found.row())


def cases(worker: Worker) -> Iterator[partial[Case]]:
    """Everything to time, made one after another so that only one set of buffers is alive."""
    torch, cache = worker.torch, int(worker.torch.cuda.get_device_properties(worker.device).L2_cache_size)
    tokens = TOKENS if worker.full else QUICK_TOKENS
    for (k, n), m in product(GEMMS if worker.full else QUICK_GEMMS, tokens):
        yield partial(_gemm, torch, cache, m, k, n)
    contexts, batches = (CONTEXTS, (1, 8, 32, 64)) if worker.full else (CONTEXTS[1:2], (1, 8))
    for heads, context, m in product(HEADS if worker.full else HEADS[1:2], contexts, batches):
        if 4 * m * heads[1] * context * heads[2] <= 2 * POOL:
            yield partial(_attention, torch, cache, m, context, heads)
    for width, m, op in product(WIDTHS if worker.full else WIDTHS[:2], tokens, ("rms_norm", "add", "copy")):
        yield partial(_wide, torch, op, m, width)
    for width, m in product(INNER if worker.full else INNER[3:4], tokens):
        yield partial(_wide, torch, "silu_mul", m, width)
    for m, op in product(tokens, ROUTING):
        yield partial(_routing, torch, op, m, EXPERTS[0])
    for sizes, m, op in product(EXPERTS if worker.full else EXPERTS[1:2], tokens, ("grouped_up", "grouped_down")):
        yield partial(_grouped, torch, cache, op, m, sizes)


def grouped_mm(torch: Any, x: Any, weights: Any, offsets: Any) -> Any:
    """PyTorch's grouped GEMM, under the name this version has for it."""
    if hasattr(torch.nn.functional, "grouped_mm"):
        return torch.nn.functional.grouped_mm(x, weights, offs=offsets)
    return torch._grouped_mm(x, weights, offs=offsets)


def _copies(cache: int, nbytes: int) -> int:
    """How many sets of a buffer are needed so that the first is out of the L2 when its turn comes again."""
    return max(2, min(32, -(-3 * cache // max(nbytes, 1)), POOL // max(nbytes, 1)))


def _random(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _gemm(torch: Any, cache: int, m: int, k: int, n: int) -> Case:
    x = _random(torch, m, k)
    weights = [_random(torch, n, k) for _ in range(_copies(cache, 2 * n * k))]
    keys = {"op": "gemm_bf16", "M": m, "K": k, "N": n}
    return keys, [lambda w=w: torch.nn.functional.linear(x, w) for w in weights]  # type: ignore[misc]


def _attention(torch: Any, cache: int, batch: int, context: int, heads: tuple[int, int, int]) -> Case:
    hq, hkv, d = heads
    q = _random(torch, batch, hq, 1, d)
    sets = _copies(cache, 4 * batch * hkv * context * d)
    kv = [(_random(torch, batch, hkv, context, d), _random(torch, batch, hkv, context, d)) for _ in range(sets)]
    attend = torch.nn.functional.scaled_dot_product_attention
    keys = {"op": "sdpa_decode_bf16", "batch": batch, "ctx": context, "hq": hq, "hkv": hkv, "d": d}
    return keys, [lambda k=k, v=v: attend(q, k, v, enable_gqa=True) for k, v in kv]  # type: ignore[misc]


def _wide(torch: Any, op: str, m: int, width: int) -> Case:
    x, y, weight = _random(torch, m, width), _random(torch, m, width), _random(torch, width)
    ops: dict[str, Callable[[], Any]] = {
        "rms_norm": lambda: torch.nn.functional.rms_norm(x, (width,), weight),
        "add": lambda: x + y,
        "copy": lambda: y.copy_(x),
        "silu_mul": lambda: torch.nn.functional.silu(x) * y,
    }
    return {"op": op, "M": m, "N": width}, [ops[op]]


def _routing(torch: Any, op: str, m: int, sizes: Experts) -> Case:
    experts, chosen, hidden, _ = sizes
    logits, x = _random(torch, m, experts), _random(torch, m, hidden)
    picked = torch.topk(logits, chosen).indices.flatten()
    order = torch.argsort(picked)
    spread, bounds = x[order // chosen], torch.arange(1, experts + 1, device="cuda")
    total = torch.zeros_like(x)
    ops: dict[str, Callable[[], Any]] = {
        "softmax": lambda: torch.softmax(logits, -1, dtype=torch.float32),
        "topk": lambda: torch.topk(logits, chosen),
        "argsort": lambda: torch.argsort(picked),
        "searchsorted": lambda: torch.searchsorted(picked[order], bounds),
        "gather": lambda: x[order // chosen],
        "index_add": lambda: total.index_add_(0, order // chosen, spread),
    }
    keys = {"op": op, "M": m, "experts": experts, "chosen": chosen, "hidden": hidden}
    return keys, [ops[op]]


def _grouped(torch: Any, cache: int, op: str, m: int, sizes: Experts) -> Case:
    """Tokens over experts as uniform routing spreads them; gate and up together in the first GEMM."""
    experts, chosen, hidden, inner = sizes
    k, n = (hidden, 2 * inner) if op == "grouped_up" else (inner, hidden)
    picked = torch.topk(torch.rand(m, experts, device="cuda"), chosen).indices.flatten()
    counts = torch.bincount(picked, minlength=experts)
    offsets = counts.cumsum(0).to(torch.int32)
    x = _random(torch, m * chosen, k)
    weights = [_random(torch, experts, k, n) for _ in range(_copies(cache, 2 * experts * k * n))]
    keys = {"op": op, "M": m, "experts": experts, "chosen": chosen, "hidden": hidden, "inner": inner,
            "hit": int((counts > 0).sum())}  # fmt: skip
    return keys, [lambda w=w: grouped_mm(torch, x, w, offsets) for w in weights]  # type: ignore[misc]
