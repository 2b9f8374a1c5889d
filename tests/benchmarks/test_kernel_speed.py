"""Seconds that kernel lookups may cost a prediction (budgets for a laptop; run alone)."""

from __future__ import annotations

import time

import pytest

from pciesim.formats.catalogue import gpu_type
from pciesim.formats.kernel_tables import load_kernel_tables
from pciesim.kernels import Donor, KernelLibrary
from pciesim.model import Precision
from pciesim.schedule import DecodeAttention, DeltaRule, Elementwise, Gemm, Kernel, RoutedExperts
from pciesim.units import MS

SMALL = (
    "rmsnorm_add", "rmsnorm", "silu_mul", "rope_norm", "kv_write", "topk", "sigmoid_mul", "add", "split", "embedding",
    "sample", "gather_copy",
)  # fmt: skip
SHAPES = ((2560, 4096), (16, 4096), (4096, 1024), (512, 4096), (256, 4096), (4096, 128), (1, 4096), (31040, 4096))


def step_kernels(batch: int) -> list[Kernel]:
    """The distinct kernels of a Qwen3.5-397B decode step at TP 8."""
    kernels: list[Kernel] = [Gemm(m=batch, n=n, k=k, precision=Precision.BF16) for n, k in SHAPES]
    kernels += [Elementwise(kind=kind, nbytes=8192.0 * batch) for kind in SMALL]
    kernels.append(
        RoutedExperts(
            tokens=batch, hidden=4096, intermediate=1024, experts=512, top_k=10, tp=8, ep=1, precision=Precision.NVFP4
        )
    )
    kernels.append(
        DecodeAttention(
            batch=batch, new_tokens=1, context=1024, heads=4, kv_heads=1, head_dim=256, window=0,
            kv_precision=Precision.FP8,
        )
    )  # fmt: skip
    kernels.append(
        DeltaRule(
            batch=batch, new_tokens=1, key_heads=2, value_heads=8, key_dim=128, value_dim=128, conv_kernel=4,
            hidden=4096,
        )
    )  # fmt: skip
    return kernels


def seconds_of(library: KernelLibrary, kernels: list[Kernel]) -> float:
    start = time.perf_counter()
    for kernel in kernels:
        library.time(kernel)
    return time.perf_counter() - start


@pytest.mark.bench
def test_kernel_lookups_of_a_decode_step() -> None:
    gpu = gpu_type("rtx_pro_6000")
    cold = seconds_of(
        KernelLibrary(gpu=gpu, donors=(Donor(gpu=gpu, tables=load_kernel_tables(gpu.key)),)), step_kernels(1)
    )
    donor = Donor(gpu=gpu, tables=load_kernel_tables(gpu.key))
    seconds_of(KernelLibrary(gpu=gpu, donors=(donor,)), step_kernels(1))
    warm_library = KernelLibrary(gpu=gpu, donors=(donor,))
    warm = seconds_of(warm_library, step_kernels(2))
    known = seconds_of(warm_library, step_kernels(2))
    print(f"23 kernels: cold {cold / MS:.1f} ms, warm files {warm / MS:.2f} ms, remembered {known / MS:.3f} ms")  # noqa: T201
    assert cold < 60 * MS
    assert warm < 5 * MS
    assert known < 1 * MS
