"""The first intermediate form: the ops of one forward pass, and the engines that issue them."""

from pciesim.schedule.build import build
from pciesim.schedule.engine import AllReduceRule, EngineSpec
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
    Schedule,
)

__all__ = [
    "AllReduceRule",
    "Category",
    "Collective",
    "CollectiveKind",
    "Compute",
    "DecodeAttention",
    "DeltaRule",
    "Elementwise",
    "EngineSpec",
    "Gemm",
    "Host",
    "Kernel",
    "Op",
    "RoutedExperts",
    "Schedule",
    "build",
]
