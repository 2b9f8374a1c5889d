"""Sizes of models against figures known from elsewhere: published totals, and sums done by hand from config.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from pciesim import model_size
from pciesim.formats.model import load_model
from pciesim.model import ModelSpec
from pciesim.routing import distinct_experts
from pciesim.units import GB, MB

MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def qwen() -> ModelSpec:
    return load_model(MODELS / "qwen35_397b.yaml")


def test_published_parameter_totals_are_met_exactly() -> None:
    """Totals that the publishers' own checkpoints list (safetensors metadata)."""
    assert model_size.total_parameters(load_model(MODELS / "llama31_70b.yaml")) == 70_553_706_496
    assert model_size.total_parameters(load_model(MODELS / "qwen3_235b.yaml")) == 235_093_634_560


def test_qwen35_397b_weights_read_in_one_decode_step_at_tp8(qwen: ModelSpec) -> None:
    """By hand, one token, TP 8, bytes on one GPU.

    GDN (45 layers): qkvz 4096 x (2 * 2048 + 2 * 8192) bf16 / 8 = 943.7 MB, out 8192 x 4096 bf16 / 8 = 377.5 MB,
    b and a 4096 x 128 bf16 / 8 = 5.9 MB, convolution 12,288 x 4 bf16 / 8 = 0.6 MB.
    Attention (15 layers): q with gate 251.7 MB, k and v 62.9 MB (2 KV heads on 8 GPUs: each held four times),
    o 125.8 MB. All 60 layers: router, replicated, 251.7 MB; shared expert 188.7 MB and its gate 0.5 MB; 10 of 512
    experts at 0.5625 B a parameter / 8 = 530.8 MB; norms 1.0 MB. lm_head 254.3 MB.
    """
    by_hand = (
        45 * (4096 * 20_480 + 8192 * 4096 + 4096 * 128 + 12_288 * 4) * 2 / 8
        + 15 * (4096 * 2 * 8192 + 8192 * 4096) * 2 / 8
        + 15 * 2 * 4096 * 256 * 2
        + 60 * 4096 * 512 * 2
        + 60 * (3 * 4096 * 1024 * 2 / 8 + 4096 * 2)
        + 60 * 10 * 3 * 4096 * 1024 * 0.5625 / 8
        + (60 * 2 + 1) * 4096 * 2
        + 4096 * 248_320 * 2 / 8
    )
    read = model_size.weight_bytes_read(qwen, tp=8)
    assert read == pytest.approx(by_hand, rel=1e-5)  # the rest: q/k norms, A_log, dt_bias, gated norms
    assert read == pytest.approx(2.995 * GB, rel=5e-4)


@pytest.mark.parametrize(
    ("tp", "tokens", "expected"), [(8, 4, 4.53 * GB), (8, 8, 6.43 * GB), (8, 32, 15.18 * GB), (4, 1, 5.67 * GB)]
)
def test_qwen35_397b_weights_read_at_other_points(qwen: ModelSpec, tp: int, tokens: int, expected: float) -> None:
    """Only the routed experts grow with tokens: 60 layers x D(b) experts x 7.08 MB / TP, D uniform."""
    assert model_size.weight_bytes_read(qwen, tp=tp, tokens=tokens) == pytest.approx(expected, rel=2e-3)


def test_qwen35_397b_totals_and_mtp(qwen: ModelSpec) -> None:
    """396.35 B (the name says 397), 17.35 B active, 16.33 B without the embedding; MTP adds 6.60 B beside them."""
    assert model_size.total_parameters(qwen) == pytest.approx(396.35 * GB, rel=1e-4)
    assert model_size.active_parameters(qwen) == pytest.approx(17.35 * GB, rel=1e-3)
    assert model_size.active_parameters(qwen, embedding=False) == pytest.approx(16.33 * GB, rel=1e-3)
    assert model_size.mtp_parameters(qwen) == pytest.approx(6.60 * GB, rel=1e-3)


def test_qwen35_397b_caches_at_tp8(qwen: ModelSpec) -> None:
    """KV: 15 layers x 2 x 1 KV head x 256 x 1 B = 7,680 B a token. Delta-rule state: 45 layers x 8 heads x 128 x 128
    x 4 B = 23.6 MB, and 45 x 1,536 channels x 3 x 2 B = 0.41 MB of convolution."""
    assert model_size.kv_bytes_per_token(qwen, tp=8) == 7680
    assert model_size.kv_bytes_per_sequence(qwen, tp=8, context=131_072) == pytest.approx(1.0066 * GB, rel=1e-4)
    assert model_size.state_bytes_per_sequence(qwen, tp=8) == 45 * (8 * 128 * 128 * 4 + 1536 * 3 * 2)


def test_qwen35_397b_weights_held_at_tp8(qwen: ModelSpec) -> None:
    """Experts 386.55 B x 0.5625 / 8 = 27.18 GB; what is read besides experts 2.46 GB; embedding 0.25 GB."""
    expected = 60 * 512 * 3 * 4096 * 1024 * 0.5625 / 8 + (2995.1 - 530.8 + 254.3) * MB
    assert model_size.weight_bytes_per_gpu(qwen, tp=8) == pytest.approx(expected, rel=1e-4)


def test_distinct_experts() -> None:
    """E (1 - (1 - k/E)^b): 512 experts, 10 a token."""
    found = [distinct_experts(experts=512, top_k=10, tokens=tokens) for tokens in (1, 2, 4, 8, 32, 128)]
    assert found == pytest.approx([10.0, 19.8, 38.8, 74.7, 239.6, 471], abs=0.5)
