"""Every shipped model predicts on a box that can hold it."""

from __future__ import annotations

import pytest

from pciesim.api import predict
from pciesim.errors import Infeasible
from pciesim.formats.model import load_model
from pciesim.formats.shipped import find_input, shipped_names
from pciesim.model_size import legal_tp

BOXES = (("rtx6000x8", 8), ("rtx6000x16_4switch", 16))
TOO_LARGE = ("kimi_k3",)  # 1.7 TB of weights, more than sixteen of these GPUs have


PROMPTS = ("qwen35_397b", "deepseek_v32", "nemotron3_super", "gpt_oss_120b", "glm52", "minimax_m2", "llama31_70b")


@pytest.mark.parametrize(
    ("name", "phase"),
    [*((name, "decode") for name in shipped_names("models")), *((name, "prefill") for name in PROMPTS)],
)
def test_every_model_predicts(name: str, phase: str) -> None:
    """The step adds up, and is at least the kernels' bytes at datasheet bandwidth; or the model fits no box here."""
    model = load_model(find_input("models", name))
    for box, gpus in BOXES:
        tp = max(each for each in legal_tp(model) if each <= gpus)
        for pp in dict.fromkeys((1, gpus // tp)):
            try:
                answer = predict(
                    topo=box, model=name, tp=tp, pp=pp, phase=phase, prompt=512 if phase == "prefill" else None,
                    evaluator="estimate",
                )  # fmt: skip
            except Infeasible:
                continue
            total = sum(share.value for _, share in answer.breakdown)
            assert total == pytest.approx(answer.step_latency.value)
            assert answer.step_latency.low <= answer.step_latency.value <= answer.step_latency.high
            assert answer.step_latency.value > max(line.floor for line in answer.kernels)
            return
    assert name in TOO_LARGE


def test_skew_of_the_router_saves_experts() -> None:
    """At 64 users a router that prefers some experts hits fewer of them; at one user the skew changes nothing."""
    steps = {
        (batch, skew): predict(topo="rtx6000x8", model="qwen35_397b", batch=batch, skew=skew).step_latency.value
        for batch in (1, 64)
        for skew in (0.0, 1.0, 1.6)
    }
    assert steps[64, 0.0] > steps[64, 1.0] > steps[64, 1.6]
    assert steps[1, 0.0] == pytest.approx(steps[1, 1.6])
