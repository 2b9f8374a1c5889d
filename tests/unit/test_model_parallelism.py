"""Which splits a model allows, and what the refusals say."""

from __future__ import annotations

import pytest

from pciesim.errors import InputError
from pciesim.model import Attention, DenseMlp, Layer, LayerRun, ModelSpec, Moe, Precision
from pciesim.model_size import check_parallelism, legal_tp, weight_bytes_per_gpu


def model(*, heads: int = 32, kv_heads: int = 2, moe: Moe | None = None) -> ModelSpec:
    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=128)
    layer = Layer(mixer=attention, mlp=moe or DenseMlp(intermediate=4096))
    return ModelSpec(name="Small", hidden=1024, vocabulary=32000, runs=(LayerRun(pattern=(layer,), repeat=4),))


def test_kv_heads_fewer_than_tp_are_replicated() -> None:
    spec = model()
    check_parallelism(spec, tp=8)
    k_proj = spec.layers[0].mixer.linears(1024)[1]
    assert [k_proj.local_shape(tp)[0] for tp in (1, 2, 4, 8)] == [256, 128, 128, 128]


def test_tp_must_divide_query_heads() -> None:
    with pytest.raises(InputError, match=r"^Small cannot run at TP 3, EP 1: TP 3 does not divide the 32 query heads"):
        check_parallelism(model(), tp=3)


def test_refusal_names_the_valid_sizes() -> None:
    with pytest.raises(InputError, match=r"\(valid TP: 1, 2, 4, 8, 16, 32\)"):
        check_parallelism(model(), tp=5)


def test_kv_heads_that_neither_divide_nor_are_divided_are_refused() -> None:
    with pytest.raises(InputError, match="neither divides nor is a multiple of the 8 KV heads"):
        check_parallelism(model(heads=48, kv_heads=8), tp=6)


def test_expert_width_must_divide_unless_experts_are_whole() -> None:
    spec = model(moe=Moe(experts=8, top_k=2, intermediate=100))
    with pytest.raises(InputError, match=r"the expert width 100 does not divide by TP / EP = 8.*parallelism 2, 4, 8"):
        check_parallelism(spec, tp=8)
    check_parallelism(spec, tp=8, ep=8)


def test_fp8_blocks_stay_whole() -> None:
    """1536 / 8 = 192 is not a multiple of 128: SGLang and vLLM refuse Qwen3-235B FP8 at TP 8 without EP."""
    spec = model(moe=Moe(experts=128, top_k=8, intermediate=1536, precision=Precision.FP8_BLOCK))
    check_parallelism(spec, tp=4)
    with pytest.raises(InputError, match="not a multiple of the block 128"):
        check_parallelism(spec, tp=8)
    check_parallelism(spec, tp=8, ep=2)


def test_experts_must_spread_over_ep() -> None:
    spec = model(heads=48, kv_heads=8, moe=Moe(experts=8, top_k=2, intermediate=96))
    with pytest.raises(InputError, match="8 experts do not divide over EP 16"):
        check_parallelism(spec, tp=16, ep=16)


@pytest.mark.parametrize(("tp", "ep"), [(0, 1), (8, 3), (-1, 1), (8, 0)])
def test_sizes_that_are_no_sizes(tp: int, ep: int) -> None:
    with pytest.raises(InputError):
        check_parallelism(model(), tp=tp, ep=ep)


def test_legal_tp() -> None:
    assert legal_tp(model(heads=48, kv_heads=8)) == (1, 2, 4, 8, 16)


def test_ep_holds_as_many_expert_bytes_as_tp() -> None:
    spec = model(moe=Moe(experts=8, top_k=2, intermediate=96))
    assert weight_bytes_per_gpu(spec, tp=8, ep=8) == pytest.approx(weight_bytes_per_gpu(spec, tp=8))
