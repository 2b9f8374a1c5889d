"""Collective tasks on hand-wired boxes."""

from __future__ import annotations

from pciesim.collectives.task import BackendCosts, Task
from pciesim.fabric import Fabric, NcclEnvironment
from pciesim.profile import Profile
from pciesim.schedule import CollectiveKind
from tests.support.fabrics import box
from tests.support.profiles import round_profile

BOXES = {
    "four on one socket": [[0, 1, 2, 3]],
    "two switches of four": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "eight on two sockets": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "four through host memory": [[0, 1, 2, 3]],
    "two": [[0, 1]],
    "three": [[0, 1, 2]],
    "three islands of two": [[0, 1], [2, 3], [4, 5]],
}
SWITCHED = {"two switches of four", "three islands of two"}


def fabric_named(name: str) -> Fabric:
    return box(
        BOXES[name],
        switched=name in SWITCHED,
        sockets=[0, 1] if name == "eight on two sockets" else None,
        nccl=NcclEnvironment(p2p_level="PXB" if "host memory" in name else "SYS", graph_file=True),
        name=name,
    )


def task(
    fabric: Fabric,
    nbytes: int,
    *,
    kind: CollectiveKind = CollectiveKind.ALL_REDUCE,
    profile: Profile | None = None,
    loads: tuple[tuple[float, ...], ...] = (),
) -> Task:
    return Task(
        kind=kind,
        nbytes=nbytes,
        fabric=fabric,
        gpus=tuple(gpu.name for gpu in fabric.gpus),
        compute_capability=120,
        costs=BackendCosts.of(profile or round_profile()),
        loads=loads,
    )
