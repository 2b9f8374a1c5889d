"""One-shot all-reduce: every rank gets every other rank's tensor at once and adds locally."""

from __future__ import annotations

from typing import Final

from pciesim.strategies.allreduce import chooses, needs_peers
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["ONESHOT_PULL", "ONESHOT_PUSH", "VLLM_ONE_STAGE"]


def _fork(_argument: str) -> tuple[Switch, ...]:
    return (
        Switch(
            engine="sglang-fork",
            flags=("--enable-pcie-oneshot-allreduce",),
            note="in the fork voipmonitor/sglang only; b12x's kernel is sgl-project/sglang pull request 32479",
        ),
    )


def _pcie_ipc(_argument: str) -> tuple[Switch, ...]:
    return (
        Switch(engine="sglang", since="0.5.23", environment=(("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "1"),)),
        Switch(engine="vllm", since="0.33.0", environment=(("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "1"),)),
    )


def _custom(_argument: str) -> tuple[Switch, ...]:
    return (
        Switch(engine="sglang", note="on by default for two GPUs (leave --disable-custom-all-reduce out)"),
        Switch(engine="vllm", note="on by default for two GPUs (leave --disable-custom-all-reduce out)"),
    )


ONESHOT_PUSH: Final = Strategy(
    axis="allreduce",
    name="oneshot-push",
    sentence="each rank stores its tensor into every peer, which polls sentinels in its own memory",
    source="TensorRT-LLM and FlashInfer trtllm_allreduce_fusion; FlashInfer PCIe-IPC unstaged variant",
    apply=chooses("oneshot-push"),
    obstacle=needs_peers,
    turn_on=_pcie_ipc,
    number="2 (n - 1) hops -> 1 traversal a call",
    size="(n - 1) S out of each rank instead of 2 (n - 1) / n S",
    criticality="exposed, one latency instead of 2 (n - 1)",
    risk="experimental; some boxes say peer-to-peer works and hang or corrupt: test copies for right data first",
    hurts="once (n - 1) S outgrows the latencies it saves: drafts x batch x hidden; many writers through one root port",
)

ONESHOT_PULL: Final = Strategy(
    axis="allreduce",
    name="oneshot-pull",
    sentence="ranks flag each other, then load every peer's tensor",
    source="b12x PCIe one-shot; sgl-project/sglang pull request 32479; local-inference-lab/rtx6kpro",
    apply=chooses("oneshot-pull"),
    obstacle=needs_peers,
    turn_on=_fork,
    number="2 (n - 1) hops -> 3 traversals a call",
    size="(n - 1) S into each rank",
    criticality="exposed, one barrier and one load",
    risk="experimental; a patched engine; root-port boxes need the driver's ForceP2P BAR1 override (else 15x slower)",
    hurts="from 512 KiB on four GPUs; earlier on eight across sockets",
)

VLLM_ONE_STAGE: Final = Strategy(
    axis="allreduce",
    name="vllm-1stage",
    sentence="vLLM's custom one-stage kernel: loads between two flag barriers",
    source="vllm-project/vllm csrc/custom_all_reduce.cuh; SGLang custom all-reduce v1",
    apply=chooses("vllm-1stage"),
    obstacle=needs_peers,
    turn_on=_custom,
    number="2 (n - 1) hops -> 4 traversals a call",
    size="(n - 1) S into each rank",
    criticality="exposed",
    risk="stock engines refuse it on more than two GPUs without full NVLink",
    hurts="large messages",
)
