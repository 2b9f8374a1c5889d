"""One process of a run: joins the others, goes through the experiments it was given, says how far it is.

Started by the controller, once per GPU. The first rank writes the status file; an exception ends the process, the
controller then goes on with the next experiment in new ones.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from pciesim.measure.manifest import SOFTWARE
from pciesim.measure.plan import EXPERIMENTS
from pciesim.measure.rows import STATUS, append, now
from pciesim.measure.team import Worker, load_torch
from pciesim.units import Seconds

__all__ = ["main"]

SETTLE: Final[Seconds] = 0.5  # whoever leaves first must not take the connection from under the others
PATIENCE: Final = timedelta(minutes=30)  # the controller's watchdog is the one that decides
DRIVER: Final = Path("/proc/driver/nvidia/version")
PCI: Final = Path("/sys/bus/pci/devices")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs as one rank."""
    options = _parser().parse_args(arguments)
    gpus = tuple(int(each) for each in options.gpus.split(","))
    torch = load_torch()
    torch.cuda.set_device(gpus[options.rank])
    torch.zeros(1, device="cuda")  # makes the primary context current for the driver calls
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=Path(options.store).resolve().as_uri(), rank=options.rank,
                            world_size=len(gpus), timeout=PATIENCE)  # fmt: skip
    worker = Worker(torch=torch, rank=options.rank, gpus=gpus, out=Path(options.out), transport=options.transport,
                    full=options.full)  # fmt: skip
    _stay_near(worker)
    if worker.rank == 0:
        append(worker.out / SOFTWARE, _versions(worker))
    torch.manual_seed(options.rank)
    team = None
    if len(gpus) > 1:
        worker.teams()
        team = worker.team(len(gpus))
    for name in options.experiments.split(","):
        worker.experiment = name
        _say(worker, state="started")
        begin = time.perf_counter()
        with torch.inference_mode():
            importlib.import_module(f"pciesim.measure.experiments.{EXPERIMENTS[name].module}").run(worker)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if team is not None:
            team.barrier()
        _say(worker, state="finished", seconds=round(time.perf_counter() - begin, 1))
    if team is not None:
        team.barrier()
        time.sleep(SETTLE)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not through destructors: communicators that wait for each other would only cost time


def _versions(worker: Worker) -> dict[str, str]:
    torch = worker.torch
    nccl = torch.cuda.nccl.version()
    return {
        "driver": _driver(),
        "pytorch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl),
    }


def _driver() -> str:
    try:
        return DRIVER.read_text(encoding="ascii").splitlines()[0].split("  ")[1].strip()
    except (OSError, IndexError):
        return "unknown"


def _say(worker: Worker, **values: object) -> None:
    if worker.rank == 0:
        append(worker.out / STATUS, {"experiment": worker.experiment, **values, "at": now()})


def _stay_near(worker: Worker) -> None:
    """Keeps this process on the cores beside its GPU, as NCCL does, so that host memory is the near one."""
    listed = PCI / worker.driver.bus_id(worker.device) / "local_cpulist"
    try:
        cores = {
            core
            for part in listed.read_text(encoding="ascii").strip().split(",")
            for core in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        }
        os.sched_setaffinity(0, cores & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    except (OSError, ValueError):
        return  # not told: stay where the system put us


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pciesim.measure.worker")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--gpus", required=True)
    parser.add_argument("--transport", required=True)
    parser.add_argument("--experiments", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--full", action="store_true")
    return parser


if __name__ == "__main__":
    main()
