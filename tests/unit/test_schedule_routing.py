"""Expected experts and loads against simulated routers, and the closed forms worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pciesim.routing import distinct_experts, distinct_ranks, fullest_rank, independent_tokens, popularity


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "expected"),
    [(512, 10, 1, 10.0), (512, 10, 8, 74.7), (512, 10, 32, 239.6), (512, 10, 128, 471), (256, 8, 16, 102)],
)
def test_uniform_routing(experts: int, top_k: int, tokens: int, expected: float) -> None:
    """E (1 - (1 - k/E)^T)."""
    assert distinct_experts(experts=experts, top_k=top_k, tokens=tokens) == pytest.approx(expected, rel=0.004)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0, 2.0])
def test_one_token_hits_what_it_asks_for(spread: float) -> None:
    assert distinct_experts(experts=512, top_k=10, tokens=1, spread=spread) == pytest.approx(10.0)
    assert sum(popularity(experts=256, top_k=8, spread=spread)) == pytest.approx(8.0)


def test_a_spread_router_hits_fewer() -> None:
    hits = [distinct_experts(experts=512, top_k=10, tokens=64, spread=spread) for spread in (0.0, 0.5, 1.0, 1.6)]
    assert hits == sorted(hits, reverse=True)


def test_tokens_that_are_alike() -> None:
    """Four tokens a sequence that share 70 %: 1 + 3 x 0.3 = 1.9 independent ones a sequence."""
    assert independent_tokens(8, 4, 0.7) == pytest.approx(2 * 1.9)
    assert independent_tokens(8, 4, 0.0) == 8
    assert independent_tokens(8, 1, 0.7) == 8
    assert distinct_experts(experts=512, top_k=10, tokens=4, group=4, alike=1.0) == pytest.approx(10.0)


def test_ranks_of_a_token() -> None:
    """8 (1 - (7/8)^10) = 5.895."""
    assert distinct_ranks(ranks=8, top_k=10) == pytest.approx(5.895, abs=0.001)
    assert distinct_ranks(ranks=1, top_k=10) == 1


def simulated(experts: int, top_k: int, tokens: int, ranks: int, spread: float) -> tuple[float, float]:
    """Mean over 300 runs of the fullest rank's (distinct experts, tokens x experts), by Gumbel top-k."""
    rng = np.random.default_rng(7)
    chances = np.array(popularity(experts=experts, top_k=top_k, spread=spread))
    scores = np.log(-np.log1p(-chances))  # exponential race whose winners have these chances
    hits, loads = [], []
    for _ in range(300):
        order = rng.permutation(experts)
        noise = rng.gumbel(size=(tokens, experts))
        chosen = np.argsort(-(scores + noise), axis=1)[:, :top_k]
        ranked = order[chosen] % ranks
        loads.append(np.bincount(ranked.ravel(), minlength=ranks).max())
        hits.append(np.bincount(order[np.unique(chosen)] % ranks, minlength=ranks).max())
    return float(np.mean(hits)), float(np.mean(loads))


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize(("experts", "top_k", "tokens", "ranks"), [(512, 10, 8, 8), (256, 8, 32, 4), (128, 8, 64, 8)])
def test_the_fullest_rank(experts: int, top_k: int, tokens: int, ranks: int, spread: float) -> None:
    hit, load = fullest_rank(experts=experts, top_k=top_k, tokens=tokens, ranks=ranks, spread=spread)
    seen_hit, seen_load = simulated(experts, top_k, tokens, ranks, spread)
    assert hit == pytest.approx(seen_hit, rel=0.06)
    assert load == pytest.approx(seen_load, rel=0.06)


def test_one_rank_has_everything() -> None:
    hit, load = fullest_rank(experts=512, top_k=10, tokens=8, ranks=1)
    assert hit == pytest.approx(distinct_experts(experts=512, top_k=10, tokens=8))
    assert load == 80
