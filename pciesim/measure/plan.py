"""The table of experiments: what each is about, what it needs, how long it takes, in the order of their worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pciesim.errors import UnknownName
from pciesim.measure.options import Options
from pciesim.units import Seconds

__all__ = ["EXPERIMENTS", "Experiment", "Job", "plan"]

HOST: Final = {"NCCL_P2P_DISABLE": "1"}
SAFE: Final = {  # multicast can put some servers' GPUs out of service
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """``module`` of ``pciesim.measure.experiments`` has a ``run(worker)``. ``seconds`` are (quick, full) estimates.

    ``transport`` is ``p2p`` (as NCCL likes) or ``host`` (NCCL_P2P_DISABLE=1: through host memory). ``peers`` says that
    GPUs must reach each other's memory. ``log`` runs it in processes of its own in which NCCL writes its log.
    """

    name: str
    module: str
    about: str
    transport: str
    seconds: tuple[Seconds, Seconds]
    least_gpus: int = 2
    quick: bool = True
    peers: bool = False
    log: bool = False
    extra: tuple[tuple[str, str], ...] = ()  # variables beyond those of the transport, read once by a process


def _both(
    name: str, module: str, about: str, seconds: tuple[Seconds, Seconds], *, quick: bool = True, log: bool = False
) -> list[Experiment]:
    return [
        Experiment(
            name=f"{name}.{transport}",
            module=module,
            about=f"{about} ({where})",
            transport=transport,
            seconds=seconds,
            quick=quick,
            log=log,
        )
        for transport, where in (("host", "through host memory"), ("p2p", "default transport"))
    ]


_ALL: Final = (
    Experiment(name="p2p_check", module="p2p_check", transport="p2p", seconds=(1, 2), log=True,
               about="copies between GPUs both ways, by copy engine, stores and loads: is the data right"),
    *_both("nccl_first", "nccl_first", "a first all-reduce: does it end, is it right, what did NCCL choose", (2, 3),
           log=True),
    Experiment(name="link_load", module="link_load", transport="p2p", seconds=(4, 4), least_gpus=1, log=True,
               about="PCIe generation and width while all GPUs copy"),
    *_both("nccl_sizes", "nccl_sizes", "collectives by size and world, in a graph and launched one by one", (2, 25)),
    Experiment(name="oneshot_host", module="oneshot_host", transport="host", seconds=(2, 6),
               about="one-shot all-reduce kernels through pinned host memory"),
    *_both("decode", "decode", "decode steps of a dense 8B and a 30B-A3B model", (3, 40)),
    Experiment(name="host_copies", module="host_copies", transport="host", seconds=(1, 4), least_gpus=1,
               about="copy engine between host and GPUs: one, pairs, all; each direction and both"),
    *_both("nccl_forced", "nccl_forced", "all-reduce by forced algorithm and protocol", (4, 25), quick=False),
    *_both("nccl_channels", "nccl_channels", "all-reduce by number of channels", (4, 20), quick=False),
    Experiment(name="latency_host", module="latency_host", transport="host", seconds=(1, 2), least_gpus=1,
               about="load chain, flag round trip and fence through host memory"),
    Experiment(name="oneshot_peer", module="oneshot_peer", transport="p2p", seconds=(2, 6), peers=True,
               about="one-shot all-reduce kernels over peer memory, push and pull"),
    Experiment(name="latency_peer", module="latency_peer", transport="p2p", seconds=(1, 2), peers=True,
               about="load chain, flag round trip and fence through peer memory"),
    Experiment(name="peer_copies", module="peer_copies", transport="p2p", seconds=(1, 3), peers=True,
               about="copy engine between GPUs: pairs, both ways, rings, all to all"),
    Experiment(name="sm_copies", module="sm_copies", transport="p2p", seconds=(1, 3), least_gpus=1,
               about="copies by kernels: stores and loads to peers and to host memory"),
    *_both("nccl_between", "nccl_between", "all-reduces between GEMMs: what one adds to a step", (1, 5)),
    *_both("overlap", "overlap", "a stream of GEMMs and one of all-reduces, alone and together", (1, 3)),
    Experiment(name="launch", module="launch", transport="p2p", seconds=(1, 1), least_gpus=1,
               about="empty kernels and launch gaps, in a graph and launched one by one"),
    Experiment(name="kernels", module="kernels", transport="p2p", seconds=(2, 30), least_gpus=1,
               about="GEMM, attention, small kernels and grouped GEMM of one GPU"),
    Experiment(name="nccl_memcpy", module="nccl_memcpy", transport="host", seconds=(2, 6), quick=False,
               about="all-reduce through host memory by copy engines", extra=(("NCCL_SHM_USE_CUDA_MEMCPY", "1"),)),
)  # fmt: skip

EXPERIMENTS: Final[Mapping[str, Experiment]] = {each.name: each for each in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Experiments that share one start of the processes, and the environment these get."""

    transport: str
    experiments: tuple[Experiment, ...]
    environment: tuple[tuple[str, str], ...]


def plan(options: Options, gpus: int, done: Iterable[str]) -> list[Job]:
    """What is left to do, grouped so that the processes start as rarely as can be.

    Checks come first. Raises UnknownName for an experiment that is not in the table (``nccl_sizes`` stands for both
    of its transports).
    """
    finished = set(done)
    chosen = [
        each
        for each in _chosen(options.only)
        if each.name not in finished and gpus >= each.least_gpus and (options.full or each.quick or options.only)
    ]
    jobs: list[Job] = []
    for log in (True, False):
        for transport in ("p2p", "host") if log else ("host", "p2p"):
            here = [each for each in chosen if each.log == log and each.transport == transport]
            for extra in dict.fromkeys(each.extra for each in here):
                part = tuple(each for each in here if each.extra == extra)
                environment = (*_environment(transport, options, log), *extra)
                jobs.append(Job(transport=transport, experiments=part, environment=environment))
    return jobs


def _chosen(only: Sequence[str] | None) -> list[Experiment]:
    if only is None:
        return list(_ALL)
    families = {each.name.partition(".")[0] for each in _ALL}
    for name in only:
        if name not in EXPERIMENTS and name not in families:
            raise UnknownName("experiment", name, families)
    return [each for each in _ALL if each.name in only or each.name.partition(".")[0] in only]


def _environment(transport: str, options: Options, log: bool) -> tuple[tuple[str, str], ...]:
    values = dict(SAFE)
    if transport == "host":
        values |= HOST
    if log:
        values |= {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,TUNING,ENV",
            "NCCL_DEBUG_FILE": str(options.out / f"nccl_log.{transport}.txt"),
            "NCCL_TOPO_DUMP_FILE": str(options.out / f"nccl_topo.{transport}.xml"),
            "NCCL_GRAPH_DUMP_FILE": str(options.out / f"nccl_graph.{transport}.xml"),
        }
    return tuple(sorted(values.items()))
