"""Other libraries' kernels: MSCCL++ packets, FlashInfer's PCIe-IPC as tuned, the copy-engine ring, symmetric memory."""

from __future__ import annotations

from typing import Final

from pciesim.scenario import Scenario
from pciesim.strategies.allreduce import chooses, needs_peers
from pciesim.strategies.oneshot import ONESHOT_PUSH
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["COPY_RING", "MSCCLPP", "PCIE_IPC", "SYMMETRIC_MEMORY"]

_MSCCLPP_WORLDS: Final = (4, 8, 16, 32)
_IPC_WORLDS: Final = (2, 4, 8)
_SYMMETRIC_CAPABILITIES: Final = (90, 100)  # the engines' size tables know compute capability 9.0 and 10.x only


def _mscclpp_obstacle(scenario: Scenario, argument: str) -> str:
    if len(scenario.gpus) not in _MSCCLPP_WORLDS:
        return f"MSCCL++ serves 4, 8, 16 or 32 GPUs, not {len(scenario.gpus)}"
    return needs_peers(scenario, argument)


def _ipc_obstacle(scenario: Scenario, argument: str) -> str:
    if len(scenario.gpus) not in _IPC_WORLDS:
        return f"PCIe-IPC serves 2, 4 or 8 GPUs, not {len(scenario.gpus)}"
    return needs_peers(scenario, argument)


def _symmetric_obstacle(scenario: Scenario, argument: str) -> str:
    capability = scenario.gpu.compute_capability
    if capability // 10 * 10 not in _SYMMETRIC_CAPABILITIES:
        return (
            f"{scenario.engine.title} keeps torch symmetric memory to compute capability 9.0 and 10.x, and "
            f"{scenario.gpu.name} has {capability // 10}.{capability % 10}"
        )
    if not all(scenario.fabric.route(scenario.gpus[0], other).nvlink for other in scenario.gpus[1:]):
        return "it needs NVLink multicast, and these GPUs are joined by PCIe"
    return needs_peers(scenario, argument)


MSCCLPP: Final = Strategy(
    axis="allreduce",
    name="mscclpp",
    sentence="MSCCL++: packets with flags, all pairs at once, by its own start-up tuning",
    source="arXiv 2504.09014; SGLang distributed/device_communicators/pymscclpp.py",
    apply=chooses("mscclpp"),
    obstacle=_mscclpp_obstacle,
    turn_on=lambda _: (Switch(engine="sglang", flags=("--enable-mscclpp",)),),
    number="1 to 2 traversals a call",
    size="twice the tensor: every 8 bytes carry 8 of flags",
    criticality="exposed",
    risk="untested on PCIe boxes; needs the mscclpp package",
    hurts="large messages",
)

PCIE_IPC: Final = Strategy(
    axis="allreduce",
    name="pcie-ipc",
    sentence="FlashInfer's PCIe-IPC kernels, the variant its seed policy takes for the size and world",
    source="FlashInfer 0.7.4 comm/pcie_ipc_policy.py; sgl-project/sglang pull request 34528",
    apply=chooses("pcie-ipc"),
    obstacle=_ipc_obstacle,
    turn_on=ONESHOT_PUSH.turn_on,
    number="1 traversal a call unstaged; more phases staged",
    size="(n - 1) S unstaged, 2 (n - 1) / n S staged",
    criticality="exposed",
    risk="experimental, off by default; serves bf16 in the group named tp only",
    hurts="prefill: keep the workspace at decode sizes (time to first token 1.85 s with NCCL, 3.18 s without)",
)

COPY_RING: Final = Strategy(
    axis="allreduce",
    name="ce-ring",
    sentence="a ring of copy-engine transfers inside the graph",
    source="FlashInfer PCIe-IPC copy-engine ring (SM120); b12x DMA ring",
    apply=chooses("ce-ring"),
    obstacle=needs_peers,
    turn_on=ONESHOT_PUSH.turn_on,
    number="2 (n - 1) copies a call",
    size="2 (n - 1) / n S at the copy engine's rate",
    criticality="exposed, but no multiprocessor is busy",
    risk="experimental",
    hurts="decode: every copy costs tens of microseconds",
)

SYMMETRIC_MEMORY: Final = Strategy(
    axis="allreduce",
    name="symm-mem",
    sentence="torch symmetric memory with multicast loads and stores",
    source="SGLang distributed/device_communicators/torch_symm_mem.py; vLLM symm_mem.py",
    apply=chooses("symm-mem"),
    obstacle=_symmetric_obstacle,
    turn_on=lambda _: (
        Switch(engine="sglang", flags=("--enable-torch-symm-mem",)),
        Switch(engine="vllm", environment=(("VLLM_ALLREDUCE_USE_SYMM_MEM", "1"),)),
    ),
    number="2 traversals a call",
    size="S through each port",
    criticality="exposed",
    risk="none where the switch supports it",
    hurts="never runs on PCIe boxes",
)
