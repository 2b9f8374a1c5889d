"""All-reduce by NCCL: as it would choose itself, or with one algorithm and protocol forced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pciesim.strategies.allreduce import chooses
from pciesim.strategies.strategy import Strategy, Switch

__all__ = ["NCCL", "NCCL_FORCED"]

_SOURCE: Final = "NVIDIA/nccl 2.30 src/graph/tuning.cc"


def _without_custom(_argument: str) -> tuple[Switch, ...]:
    return (
        Switch(engine="sglang", flags=("--disable-custom-all-reduce",)),
        Switch(engine="vllm", flags=("--disable-custom-all-reduce",)),
    )


def _forced(algorithm: str, protocol: str) -> Callable[[str], tuple[Switch, ...]]:
    def turn_on(argument: str) -> tuple[Switch, ...]:
        return (
            *_without_custom(argument),
            Switch(engine="nccl", environment=(("NCCL_ALGO", algorithm), ("NCCL_PROTO", protocol))),
        )

    return turn_on


NCCL: Final = Strategy(
    axis="allreduce",
    name="nccl",
    sentence="NCCL serves every all-reduce, by its own choice of algorithm and protocol",
    source=_SOURCE,
    apply=chooses("nccl"),
    number="2 (n - 1) hops a call in a ring",
    size="2 (n - 1) / n of the tensor through each port; LL doubles it",
    criticality="exposed",
    risk="none: it is the fallback of every engine",
    hurts="small messages: every hop is a traversal",
    turn_on=_without_custom,
)

NCCL_FORCED: Final = tuple(
    Strategy(
        axis="allreduce",
        name=f"nccl-{algorithm.lower()}-{protocol.lower()}",
        sentence=f"NCCL's {algorithm.lower()} with the {protocol} protocol, whatever its cost model says",
        source=_SOURCE,
        apply=chooses(f"nccl-{algorithm.lower()}-{protocol.lower()}"),
        number="2 (n - 1) hops a call" + ("" if algorithm == "Ring" else ", up and down a chain on one node"),
        size="as the protocol: LL sends 8 bytes of flags with 8 of data, Simple data alone",
        criticality="exposed",
        risk="the variables hold for every collective of the process, prefill's too",
        hurts="the sizes that NCCL's own choice served better",
        turn_on=_forced(algorithm, protocol),
    )
    for algorithm in ("Ring", "Tree")
    for protocol in ("LL", "LL128", "Simple")
)
