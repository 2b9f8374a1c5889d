"""The first intermediate form: the ops of one forward pass, and the engines that issue them."""

from pciesim.schedule.build import build
from pciesim.schedule.dispatch import Backend, Box, Decision, Switch
from pciesim.schedule.engine import AttentionData, EngineSpec, ExpertBackend, SpeculationStyle
from pciesim.schedule.explain import ExplainedCollective, explain
from pciesim.schedule.frame import Exchange
from pciesim.schedule.groups import members
from pciesim.schedule.ops import (
    Category,
    Collective,
    CollectiveKind,
    Compute,
    DecodeAttention,
    DeltaRule,
    Elementwise,
    Gemm,
    Host,
    Kernel,
    Op,
    RoutedExperts,
    Rule,
    Schedule,
    SparseIndex,
)
from pciesim.schedule.passes import Pass, Speculation, iteration, prompt

__all__ = [
    "AttentionData", "Backend", "Box", "Category", "Collective", "CollectiveKind", "Compute", "Decision",
    "DecodeAttention", "DeltaRule", "Elementwise", "EngineSpec", "Exchange", "ExpertBackend", "ExplainedCollective",
    "Gemm", "Host", "Kernel", "Op", "Pass", "RoutedExperts", "Rule", "Schedule", "SparseIndex", "Speculation",
    "SpeculationStyle", "Switch", "build", "explain", "iteration", "members", "prompt",
]  # fmt: skip
