"""Kernel lookups: what each source means, and published figures that the tables must give back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pciesim.errors import CalibrationError, InputError, UnknownName
from pciesim.formats.catalogue import gpu_type
from pciesim.formats.kernel_tables import load_kernel_tables, measured_gpus, read_curve_table
from pciesim.hardware import GpuType
from pciesim.kernels import Backends, Donor, KernelLibrary, KernelSource
from pciesim.kernels.experts import experts_time
from pciesim.kernels.small import small_time
from pciesim.kernels.work import distinct_experts, work
from pciesim.model import Precision
from pciesim.schedule import DecodeAttention, DeltaRule, Elementwise, Gemm, Host, RoutedExperts
from pciesim.units import MIB, TERA, US

QWEN_397B_EXPERTS = RoutedExperts(
    tokens=1, hidden=4096, intermediate=1024, experts=512, top_k=10, tp=8, ep=1, precision=Precision.NVFP4
)
QWEN_397B_DELTA = DeltaRule(
    batch=1, new_tokens=1, key_heads=2, value_heads=8, key_dim=128, value_dim=128, conv_kernel=4, hidden=4096
)
QWEN_397B_ATTENTION = DecodeAttention(
    batch=1, new_tokens=1, context=1024, heads=4, kv_heads=1, head_dim=256, window=0, kv_precision=Precision.FP8
)


@pytest.fixture(scope="module")
def rtx() -> Donor:
    return Donor(gpu=gpu_type("rtx_pro_6000"), tables=load_kernel_tables("rtx_pro_6000"))


@pytest.fixture(scope="module")
def h200() -> Donor:
    return Donor(gpu=gpu_type("h200"), tables=load_kernel_tables("h200"))


@pytest.fixture
def library(rtx: Donor) -> KernelLibrary:
    return KernelLibrary(gpu=rtx.gpu, donors=(rtx,))


def bf16(m: int, n: int, k: int) -> Gemm:
    return Gemm(m=m, n=n, k=k, precision=Precision.BF16)


def test_measured_gemm_row_comes_back_unchanged(library: KernelLibrary) -> None:
    time = library.time(bf16(1, 65536, 4096))  # 537 MB: far beyond L2
    assert time.source is KernelSource.MEASURED
    assert time.value == pytest.approx(364.449 * US)


def test_gemm_whose_weights_sat_in_l2_is_slowed_to_device_memory(library: KernelLibrary) -> None:
    """2560 x 4096 bf16 is 20.97 MB; its row of 7.47 us is 2.8 TB/s. 3.64 us + 20.97 MB / 1.459 TB/s = 18.0 us."""
    time = library.time(bf16(1, 2560, 4096))
    assert time.source is KernelSource.INTERPOLATED
    assert "L2" in time.detail
    assert time.value == pytest.approx(18.0 * US, rel=0.01)
    assert time.low < 20.97e6 / (1.44 * TERA) < time.value


def test_gemm_between_shapes_lies_between_its_neighbours(library: KernelLibrary) -> None:
    below, between, above = (library.time(bf16(1, n, 4096)).value for n in (16384, 31040, 51200))
    assert below < between < above
    assert library.time(bf16(1, 31040, 4096)).source is KernelSource.INTERPOLATED


def test_head_beyond_the_grid_grows_with_its_bytes(library: KernelLibrary) -> None:
    """n 248320 is 3.789 times the last measured n 65536; both are weights from memory."""
    ratio = library.time(bf16(1, 248320, 4096)).value / library.time(bf16(1, 65536, 4096)).value
    assert ratio == pytest.approx(248320 / 65536, rel=0.02)


def test_long_prompt_gemm_is_bound_by_flop(library: KernelLibrary, rtx: Donor) -> None:
    kernel = bf16(4096, 16384, 16384)
    rate = work(kernel).flop / library.time(kernel).value
    assert 0.7 < rate / rtx.gpu.dense_flops["bf16"] < 0.95


def test_single_output_is_a_matrix_vector_product(library: KernelLibrary) -> None:
    assert library.time(bf16(8, 1, 4096)).value < 5 * US < library.time(bf16(8, 16, 4096)).value


@pytest.mark.parametrize(
    ("tp", "tokens", "published"), [(8, 1, (68, 72)), (4, 1, (68, 75)), (4, 4, (94, 100)), (8, 8, (124, 124.6))]
)
@pytest.mark.parametrize("routing", ["balanced", "power_law_1.01", "power_law_1.2"])
def test_expert_layer_of_qwen_397b_as_published(
    rtx: Donor, routing: str, tp: int, tokens: int, published: tuple[float, float]
) -> None:
    low, high = published
    library = KernelLibrary(gpu=rtx.gpu, donors=(rtx,), backends=Backends(engine="vllm", routing=routing))
    time = library.time(replace(QWEN_397B_EXPERTS, tp=tp, tokens=tokens))
    assert time.source is KernelSource.MEASURED
    assert low * 0.99 <= time.value / US <= high * 1.01


def test_experts_of_another_engine_are_borrowed(library: KernelLibrary) -> None:
    time = library.time(QWEN_397B_EXPERTS)
    assert time.source is KernelSource.BORROWED
    assert "vllm" in time.detail
    assert "sglang" in time.detail


def test_unknown_expert_backend_is_borrowed_with_a_wider_range(rtx: Donor, library: KernelLibrary) -> None:
    other = KernelLibrary(gpu=rtx.gpu, donors=(rtx,), backends=Backends(experts="b12x")).time(QWEN_397B_EXPERTS)
    near = library.time(QWEN_397B_EXPERTS)
    assert other.source is KernelSource.BORROWED
    assert other.high - other.low > near.high - near.low


@pytest.mark.parametrize("precision", list(Precision))
def test_every_precision_has_an_answer_for_any_expert_shape(library: KernelLibrary, precision: Precision) -> None:
    odd = RoutedExperts(tokens=7, hidden=5000, intermediate=1400, experts=96, top_k=6, tp=2, ep=3, precision=precision)
    time = library.time(odd)
    assert time.floor <= time.low <= time.value <= time.high
    assert time.source in (KernelSource.BORROWED, KernelSource.ROOFLINE)


def test_delta_rule_decode_is_convolution_plus_recurrence(library: KernelLibrary) -> None:
    """8 value heads, batch 1: 1.68 us + 3.93 us (4.1 us at batch 2)."""
    time = library.time(QWEN_397B_DELTA)
    assert time.source is KernelSource.MEASURED
    assert time.value == pytest.approx(5.6 * US, rel=0.03)


def test_large_delta_rule_state_comes_from_memory(library: KernelLibrary) -> None:
    """8 heads at batch 32: 16.8 MB read and written; the row of 9.3 us is 3.6 TB/s."""
    time = library.time(replace(QWEN_397B_DELTA, batch=32))
    assert time.value > 2 * 16.8e6 / (1.46 * TERA)


def test_verification_moves_more_state_than_decode(library: KernelLibrary) -> None:
    decode, verify = (library.time(replace(QWEN_397B_DELTA, batch=8, new_tokens=n)).value for n in (1, 4))
    assert decode < verify < 4 * decode


@pytest.mark.parametrize(("context", "low", "high"), [(1024, 13, 14), (32768, 28, 29.5)])
def test_attention_rows(library: KernelLibrary, context: int, low: float, high: float) -> None:
    time = library.time(replace(QWEN_397B_ATTENTION, context=context))
    assert low <= time.value / US <= high


def test_long_context_attention_reads_its_cache_from_memory(library: KernelLibrary) -> None:
    """131072 x 256 x 2 x fp8 is 67.1 MB: at least 46 us at 1.459 TB/s, though the row says 43.2 us."""
    time = library.time(replace(QWEN_397B_ATTENTION, context=131072))
    assert time.value > 67.1e6 / (1.46 * TERA)
    assert time.low <= 43.3 * US


def test_attention_of_unmeasured_heads_is_borrowed(library: KernelLibrary) -> None:
    time = library.time(replace(QWEN_397B_ATTENTION, heads=10, kv_heads=2, head_dim=80))
    assert time.source is KernelSource.BORROWED


@pytest.mark.parametrize(
    "kind",
    ["rmsnorm_add", "rmsnorm", "silu_mul", "rope_norm", "kv_write", "topk", "sigmoid_mul", "add", "split",
     "embedding", "sample", "gather_copy"],
)  # fmt: skip
@pytest.mark.parametrize("gpu", ["rtx_pro_6000", "h200"])
def test_every_small_kernel_has_an_interval(gpu: str, kind: str) -> None:
    donor = Donor(gpu=gpu_type(gpu), tables=load_kernel_tables(gpu))
    time = KernelLibrary(gpu=donor.gpu, donors=(donor,)).time(Elementwise(kind=kind, nbytes=16384.0))
    assert US < time.low <= time.value <= time.high < 100 * US


def test_host_time_is_not_a_kernel(library: KernelLibrary) -> None:
    with pytest.raises(CalibrationError, match="profile"):
        library.time(Host(engine="sglang"))


@pytest.mark.parametrize("gpu", ["rtx_4090", "l40s", "rtx_5090", "h200"])
def test_other_gpus_borrow(rtx: Donor, gpu: str) -> None:
    target: GpuType = gpu_type(gpu)
    library = KernelLibrary(gpu=target, donors=(rtx,))
    for kernel in (bf16(1, 8192, 8192), QWEN_397B_EXPERTS, QWEN_397B_ATTENTION, QWEN_397B_DELTA):
        time = library.time(kernel)
        assert time.source is KernelSource.BORROWED
        assert "rtx_pro_6000" in time.detail
        assert time.floor <= time.low <= time.value <= time.high


def test_second_donor_answers_what_the_first_cannot(rtx: Donor, h200: Donor) -> None:
    library = KernelLibrary(gpu=h200.gpu, donors=(h200, rtx))
    assert library.time(bf16(1, 14336, 4096)).source is KernelSource.MEASURED
    assert library.time(QWEN_397B_EXPERTS).source is KernelSource.BORROWED


def test_distinct_experts() -> None:
    """E (1 - (1 - k/E)^T): 512 experts, 10 of them, 8 tokens: 74.7; balanced min(E, k T)."""
    assert distinct_experts(tokens=8, experts=512, top_k=10, routing="uniform") == pytest.approx(74.7, abs=0.05)
    assert distinct_experts(tokens=8, experts=512, top_k=10, routing="balanced") == 80
    skewed = distinct_experts(tokens=64, experts=512, top_k=10, routing="power_law_1.01")
    assert skewed == pytest.approx(0.8 * 367, rel=0.01)


def test_unmeasured_gpu_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="rtx_pro_6000"):
        load_kernel_tables("rtx_pro_600")
    assert set(measured_gpus()) == {"h200", "rtx_pro_6000"}


def test_broken_table_says_where(tmp_path) -> None:
    import gzip

    path = tmp_path / "bad.csv.gz"
    path.write_bytes(b"not gzip")
    with pytest.raises(InputError, match="compressed"):
        read_curve_table(path, "bad")
    path.write_bytes(gzip.compress(b"n,k,us@m=1,us@m=2\n32,32,1.0\n"))
    with pytest.raises(InputError, match=r"bad\.csv\.gz:2"):
        read_curve_table(path, "bad")
    path.write_bytes(gzip.compress(b"n,k,latency\n"))
    with pytest.raises(InputError, match="us@"):
        read_curve_table(path, "bad")


def test_l2_is_where_the_catalogue_says(rtx: Donor) -> None:
    assert rtx.gpu.l2 == 128 * MIB


SHAPE = st.integers(1, 300_000)
ANY_KERNEL = st.one_of(
    st.builds(Gemm, m=st.integers(1, 9000), n=SHAPE, k=SHAPE, precision=st.sampled_from(Precision)),
    st.builds(
        RoutedExperts, tokens=st.integers(1, 9000), hidden=st.integers(256, 9000), intermediate=st.integers(256, 9000),
        experts=st.integers(32, 900), top_k=st.integers(1, 32), tp=st.sampled_from([1, 2, 3, 8, 16]),
        ep=st.sampled_from([1, 2, 8, 16]), precision=st.sampled_from(Precision),
    ),
    st.builds(
        DecodeAttention, batch=st.integers(1, 5000), new_tokens=st.integers(1, 40), context=st.integers(1, 300_000),
        heads=st.integers(1, 200), kv_heads=st.integers(1, 100), head_dim=st.sampled_from([64, 96, 128, 256, 576]),
        window=st.sampled_from([0, 128, 1024, 4096]), kv_precision=st.sampled_from([Precision.BF16, Precision.FP8]),
    ),
    st.builds(
        DeltaRule, batch=st.integers(1, 5000), new_tokens=st.integers(1, 9000), key_heads=st.integers(1, 64),
        value_heads=st.integers(1, 64), key_dim=st.sampled_from([64, 128]), value_dim=st.sampled_from([64, 128]),
        conv_kernel=st.just(4), hidden=st.just(4096),
    ),
    st.builds(Elementwise, kind=st.sampled_from(["add", "topk", "nameless"]), nbytes=st.floats(0, 1e9)),
)  # fmt: skip


@given(kernel=ANY_KERNEL, gpu=st.sampled_from(["rtx_pro_6000", "h200", "rtx_4090"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_kernel_has_an_ordered_answer(rtx: Donor, h200: Donor, kernel: Gemm, gpu: str) -> None:
    own = {"rtx_pro_6000": rtx, "h200": h200}
    donors = [own[gpu]] if gpu in own else []
    library = KernelLibrary(gpu=gpu_type(gpu), donors=[*donors, *(each for each in (rtx, h200) if each not in donors)])
    time = library.time(kernel)
    assert 0 <= time.floor <= time.value
    assert 0 < time.low <= time.value <= time.high
    assert time.detail


@pytest.mark.parametrize("tokens", [1, 8, 64])
def test_uniform_rows_answer_a_uniform_router(tokens: int) -> None:
    """PyTorch's grouped GEMM was measured with random tokens: a row of its own for its own routing."""
    kernel = RoutedExperts(
        tokens=tokens, hidden=2048, intermediate=768, experts=128, top_k=8, tp=2, ep=1,
        precision=Precision.BF16, gated=True,
    )  # fmt: skip
    donor = Donor(gpu=gpu_type("h200"), tables=load_kernel_tables("h200"))
    table = donor.tables.table("moe/torch__torch_grouped__bf16")
    assert table is not None
    row = table.curve(2048, 768, 8, 128, 2, 1, "uniform")
    assert row is not None
    uniform = experts_time(kernel, donor, Backends(engine="torch", experts="torch_grouped", routing="lognormal_0"))
    assert uniform.source is KernelSource.MEASURED
    assert uniform.value == pytest.approx(row.at(tokens))
    skewed = experts_time(kernel, donor, Backends(engine="torch", experts="torch_grouped", routing="lognormal_1"))
    assert skewed.value <= uniform.value * (1 + 1e-9)


def test_sorting_takes_as_long_for_any_width() -> None:
    donor = Donor(gpu=gpu_type("h200"), tables=load_kernel_tables("h200"))
    times = {
        width: small_time(Elementwise(kind="argsort", nbytes=4.0 * 8 * width, width=width), donor).value
        for width in (2048, 7168)
    }
    assert times[2048] == pytest.approx(times[7168])
    assert times[2048] == pytest.approx(12.687 * US)


@pytest.mark.parametrize(
    ("kernel", "below"),
    [
        (Gemm(m=1, n=4096, k=4096, precision=Precision.BF16), 0.5),
        (Gemm(m=1, n=4096, k=4096, precision=Precision.FP8), 0.3),
    ],
)
def test_lent_low_precision_ranges_are_wider(kernel: Gemm, below: float) -> None:
    """An FP8 GEMM of RTX PRO 6000 is up to three times too slow for other architectures."""
    lender = Donor(gpu=gpu_type("rtx_pro_6000"), tables=load_kernel_tables("rtx_pro_6000"))
    time = KernelLibrary(gpu=gpu_type("l40s"), donors=[lender]).time(kernel)
    assert time.source is KernelSource.BORROWED
    assert (time.low / time.value < 0.5) is (below < 0.5) or time.low == time.floor
