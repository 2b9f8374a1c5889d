"""Kernel lookups against rows that were held out, and sums of kernels against measured decode steps."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ruamel.yaml import YAML

from pciesim.formats.catalogue import gpu_type
from pciesim.formats.kernel_tables import load_kernel_tables
from pciesim.kernels import Backends, Donor, KernelLibrary
from pciesim.kernels.experts import experts_time
from pciesim.kernels.work import work
from pciesim.model import Precision
from pciesim.schedule import DecodeAttention, Elementwise, Gemm, Kernel, RoutedExperts
from pciesim.units import TERA

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "calibration" / "kernels"
RUN = ROOT / "calibration" / "runs" / "h200x2_2026-11-30"
PUBLISHED = ROOT.parent / "shared" / "measured" / "pcie_boxes" / "kernels"


@pytest.fixture(scope="module")
def checks() -> Iterator[ModuleType]:
    path = KERNELS / "check_tables.py"
    spec = importlib.util.spec_from_file_location("check_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def lines(checks: ModuleType) -> list[Any]:
    """The held-out lines, computed once."""
    found: list[Any] = checks.check()
    return found


@pytest.fixture(scope="module")
def rtx() -> Donor:
    return Donor(gpu=gpu_type("rtx_pro_6000"), tables=load_kernel_tables("rtx_pro_6000"))


@pytest.fixture(scope="module")
def h200() -> Donor:
    return Donor(gpu=gpu_type("h200"), tables=load_kernel_tables("h200"))


def test_held_out_rows_are_predicted_within_their_ranges(lines: list[Any]) -> None:
    """On the GPU itself: median error at most 6 %, and the range holds at least 80 % of each kind's held-out rows."""
    own = [line for line in lines if " from " not in line.what]
    assert len(own) > 20
    assert max(line.median for line in own) < 0.065
    assert min(line.covered for line in own) > 0.80
    assert max(line.p90 for line in own) < 0.32


def test_the_page_shows_the_table_of_today(checks: ModuleType, lines: list[Any]) -> None:
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    _, _, rest = page.partition(checks.BEGIN)
    shown, _, _ = rest.partition(checks.END)
    assert shown.strip() == checks.table_text(lines).strip(), (
        "docs/kernels.md is out of date: python calibration/kernels/check_tables.py --write"
    )


def test_rows_of_other_shapes_err_independently(checks: ModuleType) -> None:
    """Why a comparison cancels only equal kernels: the ratio of two rows is wrong by more than either."""
    found = checks.alike()
    assert {each.pairs > 1000 for each in found} == {True}
    for each in found:
        assert each.correlation < 0.35
        assert each.difference > each.one
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    shown, _, _ = page.partition(checks.ALIKE_BEGIN)[2].partition(checks.ALIKE_END)
    assert shown.strip() == checks.alike_text(found).strip()


def dense_layer(tokens: int, context: int) -> list[Kernel]:
    """A dense 8B layer at TP 2 as decode_step.json ran it: hidden 4096, 16 of 32 heads, 4 KV heads, width 7168."""
    hidden, half = 4096, 7168

    def gemm(n: int, k: int) -> Gemm:
        return Gemm(m=tokens, n=n, k=k, precision=Precision.BF16)

    norm = Elementwise(kind="rmsnorm", nbytes=4.0 * tokens * hidden)
    add = Elementwise(kind="add", nbytes=6.0 * tokens * hidden)
    write = Elementwise(kind="kv_write", nbytes=4.0 * tokens * 512)
    attention = DecodeAttention(
        batch=tokens, new_tokens=1, context=context, heads=16, kv_heads=4, head_dim=128, window=0,
        kv_precision=Precision.BF16,
    )  # fmt: skip
    silu = Elementwise(kind="silu_mul", nbytes=6.0 * tokens * half)
    return [
        norm, gemm(3072, hidden), write, write, attention, gemm(hidden, 2048), add,
        norm, gemm(2 * half, hidden), silu, gemm(hidden, half), add,
    ]  # fmt: skip


def test_sum_of_kernels_of_a_dense_layer(h200: Donor) -> None:
    """Stand-alone kernels of a layer on H200 sum to 96.6 us at 1 token and 109.9 at 32; the step takes 101.2, 121.2.

    With the gap per kernel (12 of them) every compute-only step of the earlier run is met within 6.5 %.
    """
    library = KernelLibrary(gpu=h200.gpu, donors=(h200,), backends=Backends(attention="sdpa"))
    rows = json.loads((RUN / "decode_step.json").read_text(encoding="utf-8"))
    sums = {}
    for row in rows:
        if row["variant"] != "compute" or row["model"] != "llama8b":
            continue
        total = sum(library.time(kernel).value for kernel in dense_layer(row["tokens"], row["ctx"]))
        sums[row["tokens"], row["ctx"]] = total
        assert total + 12 * library.gap().value == pytest.approx(row["step_s"] / row["L"], rel=0.065)
    assert sums[1, 1024] == pytest.approx(96.6e-6, rel=0.02)
    assert sums[32, 1024] == pytest.approx(109.9e-6, rel=0.02)


def test_no_stored_row_reads_memory_faster_than_it_can(rtx: Donor) -> None:
    """Balanced experts with more than three times L2 of weights cannot beat the datasheet's bandwidth.

    Counted where the tokens ask for every expert twice: below, "balanced" rows do not always hit all.
    """
    for name in (each for each in rtx.tables.names if each.startswith("moe/") and "nongated" not in each):
        table = rtx.tables.table(name)
        assert table is not None
        precision = Precision(name.split("__")[2])
        for key in table.lines:
            hidden, width, top_k, experts, tp, ep = map(int, key[:6])
            curve = table.curve(*key)
            if key[6] != "balanced" or top_k == 22 or curve is None:
                continue
            for tokens, seconds in zip(curve.points, curve.seconds, strict=True):
                hit = min(experts, tokens * top_k) / ep
                weights = hit * 3 * hidden * width / tp * precision.bytes_per_parameter
                if weights > 3 * rtx.gpu.l2 and tokens * top_k >= 2 * experts:
                    assert weights / seconds < 1.792 * TERA, (name, key, tokens)


def test_cold_line_is_the_fit_of_its_rows(rtx: Donor) -> None:
    """launch and bandwidth of constants.yaml by robust least squares on relative error over the rows they name."""
    np = pytest.importorskip("numpy")
    optimize = pytest.importorskip("scipy.optimize")
    table = rtx.tables.table("gemm/bf16")
    assert table is not None
    weights, times = [], []
    for key in table.lines:
        n, k = map(int, key)
        curve = table.curve(n, k)
        size = work(Gemm(m=1, n=n, k=k, precision=Precision.BF16)).weights
        if curve is None or not 28e6 < size < 600e6 or n < 1024 or not 1024 <= k <= 16384:
            continue
        for m, seconds in zip(curve.points, curve.seconds, strict=True):
            if m <= 64:
                weights.append(size)
                times.append(seconds)
    size_array, time_array = np.array(weights), np.array(times)
    fit = optimize.least_squares(
        lambda p: np.log((p[0] * 1e-6 + size_array / (p[1] * TERA)) / time_array), [3.0, 1.4], loss="soft_l1",
        f_scale=0.05,
    )  # fmt: skip
    assert len(times) == 3058
    assert rtx.constants.launch == pytest.approx(fit.x[0] * 1e-6, rel=0.01)
    assert rtx.constants.bandwidth_fraction * rtx.gpu.memory_bandwidth == pytest.approx(fit.x[1] * TERA, rel=0.002)


@pytest.mark.parametrize("gpu", ["rtx_pro_6000", "h200"])
def test_files_are_those_of_the_manifest(gpu: str) -> None:
    folder = KERNELS / gpu
    manifest = YAML(typ="safe").load((folder / "manifest.yaml").read_text(encoding="utf-8"))
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.csv.gz")}
    assert set(files) == set(manifest["files"])
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == manifest["files"][name]


def test_run_is_that_of_its_manifest() -> None:
    manifest = YAML(typ="safe").load((RUN / "manifest.yaml").read_text(encoding="utf-8"))
    for name, entry in manifest["files"].items():
        assert hashlib.sha256((RUN / name).read_bytes()).hexdigest() == entry["sha256"]


@pytest.mark.corpus
def test_split_tables_regenerates_the_folder(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("split_tables", KERNELS / "split_tables.py")
    assert spec is not None
    assert spec.loader is not None
    split = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(split)
    split.split_rtx_pro_6000(PUBLISHED, tmp_path)
    for name in ("manifest.yaml", "gemm/bf16.csv.gz", "moe/vllm__flashinfer_cutlass__nvfp4.csv.gz"):
        assert (tmp_path / name).read_bytes() == (KERNELS / "rtx_pro_6000" / name).read_bytes()


def test_the_share_of_cold_experts_is_that_of_the_tables(rtx: Donor) -> None:
    """``experts_cold`` of constants.yaml is what calibration/kernels/cold_experts.py finds."""
    spec = importlib.util.spec_from_file_location("cold_experts", KERNELS / "cold_experts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert dict(rtx.constants.experts_cold) == module.shares()


def test_warm_rows_are_paid_as_cold_ones(rtx: Donor) -> None:
    """113 MB of FP8 experts take 59 us from L2, and twice that in a step; those beyond L2 are taken as they are.

    The same 32 experts cut once less are 226 MB and take 196 us: less 113 MB at 1.458 TB/s, 119 us.
    """
    backends = Backends(engine="sglang", experts="triton", routing="balanced")

    def time(tp: int) -> float:
        kernel = RoutedExperts(
            tokens=4, hidden=3072, intermediate=1536, experts=256, top_k=8, tp=tp, ep=1, precision=Precision.FP8_BLOCK
        )
        return experts_time(kernel, rtx, backends).value

    assert time(2) == pytest.approx(196e-6, rel=0.01)
    assert 85e-6 < time(4) < 119e-6
