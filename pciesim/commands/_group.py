"""What commands about collectives share: from the options that name a box and a group to a timer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pciesim.errors import InputError

if TYPE_CHECKING:
    from pciesim.evaluate.collective import CollectiveTimer

__all__ = ["group_timer"]


def group_timer(
    *,
    topo: str,
    gpus: str | None,
    profile: str | None,
    evaluator: str,
    overlay: Path | None,
    nccl: list[str] | None,
) -> CollectiveTimer:
    """The timer of a group of GPUs, in rank order, as options name them (``gpus`` None: all).

    Raises InputError for anything that cannot be read or is not there.
    """
    from dataclasses import replace

    from pciesim.api import box_profile, nccl_environment
    from pciesim.commands.predict import parse_assignments, parse_gpus
    from pciesim.evaluate.collective import CollectiveTimer
    from pciesim.formats.catalogue import gpu_type
    from pciesim.formats.shipped import find_input
    from pciesim.formats.topology import load_fabric

    fabric = load_fabric(find_input("topologies", topo), overlay)
    variables = parse_assignments("--nccl", nccl or [])
    if variables:
        fabric = replace(fabric, nccl=nccl_environment(fabric.nccl, variables))
    names = {gpu.index: gpu.name for gpu in fabric.gpus}
    chosen = tuple(names) if gpus is None else parse_gpus(gpus)
    for index in chosen:
        if index not in names:
            raise InputError(f"--gpus names GPU {index}; '{fabric.name}' has GPUs 0 to {max(i or 0 for i in names)}")
    gpu = gpu_type(fabric.gpu_model or "rtx_pro_6000")
    return CollectiveTimer(
        fabric=fabric,
        gpus=tuple(names[index] for index in chosen),
        compute_capability=gpu.compute_capability,
        profile=box_profile(fabric, profile),
        evaluator=evaluator,
    )
