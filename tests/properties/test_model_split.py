"""What holds for any model under any legal split."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pciesim import model_size
from pciesim.formats.model import load_model
from pciesim.model import Attention, DenseMlp, GatedDeltaNet, Layer, LayerRun, Linear, ModelSpec, Moe, Precision, Split
from pciesim.routing import distinct_experts

MODELS = Path(__file__).parents[2] / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.yaml"))

quantised = st.sampled_from([Precision.BF16, Precision.FP8, Precision.NVFP4])
mixers = st.one_of(
    st.builds(
        Attention, heads=st.sampled_from([8, 16, 32]), kv_heads=st.sampled_from([1, 2, 8]),
        head_dim=st.sampled_from([64, 128]), output_gate=st.booleans(), precision=quantised,
    ),
    st.builds(
        GatedDeltaNet, key_heads=st.just(8), value_heads=st.sampled_from([16, 32]), key_dim=st.just(64),
        value_dim=st.just(64), precision=quantised,
    ),
)  # fmt: skip
mlps = st.one_of(
    st.builds(DenseMlp, intermediate=st.sampled_from([512, 1024]), gated=st.booleans(), precision=quantised),
    st.builds(
        Moe, experts=st.sampled_from([8, 64]), top_k=st.integers(1, 8), intermediate=st.sampled_from([128, 256]),
        shared_intermediate=st.sampled_from([0, 256]), shared_gate=st.booleans(), gated=st.booleans(),
        precision=quantised,
    ),
)  # fmt: skip
models = st.builds(
    ModelSpec,
    name=st.just("Random"),
    hidden=st.sampled_from([256, 512]),
    vocabulary=st.sampled_from([1024, 32000]),
    tied_embeddings=st.booleans(),
    runs=st.lists(
        st.builds(
            LayerRun,
            pattern=st.lists(st.builds(Layer, mixer=mixers, mlp=mlps), min_size=1, max_size=3).map(tuple),
            repeat=st.integers(1, 3),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
)
splits = st.sampled_from([1, 2, 4, 8])


@given(model=models, tp=splits)
def test_all_ranks_together_hold_the_model_and_its_replicas(model: ModelSpec, tp: int) -> None:
    """tp times the share of one rank is the model plus what is replicated, and never less than the model."""
    model_size.check_parallelism(model, tp=tp)
    whole = model_size.weight_bytes_per_gpu(model, tp=1)
    share = model_size.weight_bytes_per_gpu(model, tp=tp)
    assert tp * share >= whole * (1 - 1e-12)
    assert share <= whole * (1 + 1e-12)


@given(model=models, tp=splits, ep=splits)
def test_expert_parallelism_moves_no_bytes(model: ModelSpec, tp: int, ep: int) -> None:
    """Whole experts on fewer ranks or parts of experts on all: the bytes a rank holds are the same."""
    ep = min(ep, tp)
    expected = model_size.weight_bytes_per_gpu(model, tp=tp)
    assert model_size.weight_bytes_per_gpu(model, tp=tp, ep=ep) == pytest.approx(expected, rel=1e-12)


@given(model=models, tp=splits, tokens=st.integers(1, 512))
def test_a_pass_reads_no_more_than_is_held(model: ModelSpec, tp: int, tokens: int) -> None:
    read = model_size.weight_bytes_read(model, tp=tp, tokens=tokens)
    assert read <= model_size.weight_bytes_per_gpu(model, tp=tp) * (1 + 1e-12)
    assert model_size.weight_bytes_read(model, tp=tp, tokens=tokens + 1) >= read


@given(model=models)
def test_modules_add_up(model: ModelSpec) -> None:
    sizes = model_size.module_sizes(model)
    assert sum(size.nbytes for size in sizes) == pytest.approx(model_size.weight_bytes_per_gpu(model, tp=1))
    assert model_size.active_parameters(model) <= model_size.total_parameters(model)


@given(
    inputs=st.sampled_from([64, 128]), per_unit=st.integers(1, 8), units=st.sampled_from([1, 2, 4, 8]), tp=splits,
    split=st.sampled_from(list(Split)),
)  # fmt: skip
def test_shares_cover_a_matrix(inputs: int, per_unit: int, units: int, tp: int, split: Split) -> None:
    linear = Linear(
        name="any", inputs=inputs, outputs=units * per_unit, split=split, precision=Precision.BF16, units=units
    )
    outputs, columns = linear.local_shape(tp)
    assert outputs * columns * tp >= linear.parameters
    assert outputs <= linear.outputs
    assert columns <= linear.inputs


@given(experts=st.integers(1, 1024), share=st.floats(0.001, 1), tokens=st.integers(1, 1000))
def test_distinct_experts_stay_within_bounds(experts: int, share: float, tokens: int) -> None:
    """Never fewer than one token's, never more than all, nor than every token's own."""
    top_k = max(1, int(experts * share))
    found = distinct_experts(experts=experts, top_k=top_k, tokens=tokens)
    assert top_k * (1 - 1e-9) <= found <= min(experts, top_k * tokens) * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_models_split_without_loss(name: str) -> None:
    """For every legal size up to 16: shares cover the model, caches shrink or stay, the number of sums is the same."""
    model = load_model(MODELS / f"{name}.yaml")
    sizes = [tp for tp in model_size.legal_tp(model) if tp <= 16]
    held = [model_size.weight_bytes_per_gpu(model, tp=tp) for tp in sizes]
    cache = [model_size.kv_bytes_per_token(model, tp=tp) for tp in sizes]
    state = [model_size.state_bytes_per_sequence(model, tp=tp) for tp in sizes]
    assert held == sorted(held, reverse=True)
    assert cache == sorted(cache, reverse=True)
    assert state == sorted(state, reverse=True)
    assert all(tp * share >= held[0] * (1 - 1e-12) for tp, share in zip(sizes, held, strict=True))
