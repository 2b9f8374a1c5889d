"""A profile with round figures, so that expected times can be worked out by hand."""

from __future__ import annotations

import math

from pciesim.profile import Evidence, Parameter, Profile
from pciesim.units import US

ROUND = {
    "latency.poll": 0.4 * US, "latency.endpoint": 0.1 * US, "latency.switch": 0.1 * US,
    "latency.root_complex": 0.2 * US, "latency.socket": 0.1 * US,
    "latency.nvlink_store": 0.6 * US, "latency.nvlink_load": 0.8 * US,
    "latency.host_store": 0.4 * US, "latency.host_load": 1.2 * US, "latency.fence_per_load": 1.0,
    "share.copy": 0.9, "share.store": 0.7, "share.load": 0.6, "share.nvlink": 0.8,
    "nccl.tree.thread_share": 1.0, "nccl.tree.ll128_share": 1.0, "nccl.smooth": math.inf,
    "nccl.cut_through": 0.0, "nccl.receive": 0.0,
    "nccl.copy_step": 20 * US,
    "kernel.phase": 0.5 * US, "copy.step": 24 * US, "oneshot.host.base": 6 * US,
    "oneshot.push.base": 3 * US, "oneshot.push.share": 1.0,
    "oneshot.pull.base": 5 * US, "oneshot.pull.share": 1.0,
    "host.sglang": 0.003, "host.vllm": 0.001, "overlap.nvl": 0.5, "overlap.pcie": 0.8,
    "draft.sglang": 0.001, "draft.vllm": 0.004,
}  # fmt: skip


def round_profile(**changed: float) -> Profile:
    """``changed`` replaces values; dots in names are written as double underscores."""
    values = dict(ROUND)
    for transport, base in (("nvl", 5 * US), ("p2p", 5 * US), ("shm", 8 * US)):
        values |= {
            f"nccl.{transport}.base": base,
            f"nccl.{transport}.step": 0.2 * US,
            f"nccl.{transport}.ll_channel": math.inf,  # the link is what binds
            f"nccl.{transport}.simple_channel": math.inf,
            f"nccl.{transport}.simple_extra": 2 * US,
            f"nccl.{transport}.ll128_extra": 0.0,
            f"nccl.{transport}.share": 1.0,
            f"nccl.{transport}.in_step": 0.0,
        }
    values |= {name.replace("__", "."): value for name, value in changed.items()}
    return Profile(
        name="round",
        gpu="rtx_pro_6000",
        description="round figures for tests",
        parameters=tuple(
            (name, Parameter(value=v, low=v * 0.9, high=v * 1.1, evidence=Evidence.ASSUMED, source="test"))
            for name, v in values.items()
        ),
    )
