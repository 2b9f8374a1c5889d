"""Predictions made by hand, so that reports are tested without calculating anything."""

from __future__ import annotations

from dataclasses import replace

from pciesim.fabric import Assumption
from pciesim.prediction import (
    BusiestLink,
    CollectiveLine,
    KernelLine,
    Lever,
    MemoryUse,
    Prediction,
    Request,
    Sensitivity,
)
from pciesim.profile import Interval
from pciesim.schedule import Category
from pciesim.units import GB, MB, MS, US


def around(value: float, *, share: float = 0.1) -> Interval:
    """An interval of +- ``share`` of a value."""
    return Interval(value=value, low=value * (1 - share), high=value * (1 + share))


BREAKDOWN_MS = {
    Category.GEMM_MIXER: 1.8034,
    Category.GEMM_MLP: 0.6125,
    Category.GEMM_ROUTER: 0.4111,
    Category.GEMM_HEAD: 0.2104,
    Category.EXPERTS: 3.3333,
    Category.ATTENTION: 0.1905,
    Category.DELTA_RULE: 0.4204,
    Category.SMALL: 1.7104,
    Category.ALL_REDUCE: 4.4044,
    Category.LOGITS_GATHER: 0.0625,
    Category.HOST: 0.8016,
}


def a_prediction() -> Prediction:
    """A complete, plausible prediction; its figures are invented and stand for nothing."""
    total = sum(BREAKDOWN_MS.values()) * MS
    step = Interval(value=total, low=0.91 * total, high=1.14 * total)
    speed = Interval(value=1 / step.value, low=1 / step.high, high=1 / step.low)
    return Prediction(
        request=Request(
            topology="topologies/rtx6000x8.txt",
            model="models/qwen35_397b.yaml",
            gpu_model="RTX PRO 6000 Blackwell Server Edition",
            gpus=tuple(range(8)),
            tp=8,
            batch=1,
            context=1024,
            engine="sglang",
            allreduce="auto",
            profile="rtx_pro_6000",
            evaluator="simulate",
        ),
        step_latency=step,
        tokens_per_second_user=speed,
        tokens_per_second_total=speed,
        breakdown=tuple((category.value, around(value * MS)) for category, value in BREAKDOWN_MS.items()),
        collectives=(
            CollectiveLine(
                kind="all_reduce",
                count=121,
                nbytes=8192,
                gathered=0,
                algorithm="nccl-ring",
                protocol="LL",
                transport="P2P",
                channels=2,
                latency=around(36.4 * US, share=0.3),
                traversals=14,
                reason="NCCL on PCIe worlds above 2: the custom kernel refuses",
            ),
            CollectiveLine(
                kind="all_gather",
                count=1,
                nbytes=62080,
                gathered=496640,
                algorithm="nccl-ring",
                protocol="LL",
                transport="P2P",
                channels=2,
                latency=around(62.5 * US),
                traversals=7,
            ),
        ),
        kernels=(
            KernelLine(
                name="routed experts",
                category=Category.EXPERTS,
                count=60,
                time=around(55.5 * US),
                floor=4 * US,
                source="measured",
                detail="cutlass, top-10 of 512, 1 token",
            ),
            KernelLine(
                name="in_proj_qkvz",
                category=Category.GEMM_MIXER,
                count=45,
                time=around(20 * US),
                floor=9 * US,
                source="interpolated",
                detail="bf16 GEMM [1, 2048, 4096]",
            ),
            KernelLine(
                name="rms_norm",
                category=Category.SMALL,
                count=121,
                time=around(2.5 * US),
                floor=0.01 * US,
                source="roofline",
                detail="floor of a small kernel",
            ),
        ),
        traversals=1701,
        tokens_per_step=Interval.exact(1.0),
        busiest_link=BusiestLink(name="gpu3 -> rp3", nbytes=3.3 * MB, busy=0.0043),
        levers=(
            Lever(what="small kernels and launch gaps", how="fused norms", saves=around(0.4 * MS)),
            Lever(
                what="NCCL's ring for 8 KiB all-reduces",
                how="one-shot pull (--allreduce oneshot-pull)",
                saves=around(2.1 * MS, share=0.4),
                caveat="needs P2P between the sockets",
            ),
            Lever(what="host time between steps", how="overlap scheduling", saves=around(0.8 * MS, share=0.6)),
            Lever(what="logits gather", how="greedy sampling on shards", saves=around(0.05 * MS)),
        ),
        memory=MemoryUse(weights=31.2 * GB, kv_cache=0.12 * GB, state=0.03 * GB, capacity=96 * GB),
        sensitivities=(
            Sensitivity(parameter="route.socket_hop", effect=0.55 * MS, evidence="published"),
            Sensitivity(parameter="host.sglang.step", effect=0.61 * MS, evidence="fitted"),
            Sensitivity(parameter="nccl.fixed", effect=0.2 * MS, evidence="fitted"),
        ),
        assumptions=(
            Assumption(
                text="every GPU has a root port of its own, Gen5 x16",
                settle="lspci -vvv: LnkSta of each GPU under load",
                matters="bandwidth of every route",
            ),
            Assumption(text="P2P works between the sockets", settle="nvidia-smi topo -p2p r"),
        ),
    )


def a_batched_prediction() -> Prediction:
    """Four GPUs out of eight, eight users, something to warn of."""
    one = a_prediction()
    return replace(
        one,
        request=replace(
            one.request, tp=4, batch=8, gpus=(0, 1, 2, 3), choice="GPUs 0-3: the four with the shortest farthest pair"
        ),
        tokens_per_second_total=one.tokens_per_second_user.scaled(8),
        busiest_link=None,
        warnings=("the profile was calibrated on another GPU",),
    )
