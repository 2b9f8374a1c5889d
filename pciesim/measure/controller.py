"""Runs the plan: starts one process per GPU, watches the clock, and goes on after a crash or a hang.

A hang is something to know about a machine, not a stuck tool: the processes are ended, the manifest says so, and the
remaining experiments run in new processes. What is finished is not run again when the command is repeated.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from pciesim.errors import InputError
from pciesim.measure.manifest import write_manifest
from pciesim.measure.options import Options
from pciesim.measure.plan import Experiment, Job, plan
from pciesim.measure.rows import STATUS, append, finding, now, read, states
from pciesim.measure.system import gpu_indexes, record_system
from pciesim.units import Seconds

__all__ = ["Crew", "measure", "start_crew"]

START: Final[Seconds] = 120.0  # a cold import of PyTorch, contexts on eight GPUs
SLACK: Final[Seconds] = 25.0  # of any experiment, beyond several times its estimate
POLL: Final[Seconds] = 0.2
ROOT: Final = Path(__file__).resolve().parents[2]  # where the package lies, for the workers' PYTHONPATH
FIRST_RANK_ONLY: Final = ("NCCL_DEBUG",)  # dumps are made by all ranks together, though one writes them
CHECKED: Final = "p2p_check"

Start = Callable[[Options, Job, tuple[Experiment, ...], tuple[int, ...]], "Crew"]


def measure(options: Options, *, start: Start | None = None, progress: TextIO = sys.stderr) -> int:
    """Runs everything that is left and writes the manifest. Returns how many experiments failed or hung.

    ``start`` starts the processes of a job (another one in tests). Raises InputError where there is no GPU.
    """
    gpus = _gpus(options)
    options.out.mkdir(parents=True, exist_ok=True)
    record_system(options.out)
    run = _Run(options=options, gpus=gpus, start=start or start_crew, progress=progress)
    try:
        run.go()
    finally:
        write_manifest(options, gpus)
    return run.bad


def _gpus(options: Options) -> tuple[int, ...]:
    here = gpu_indexes()
    if not here:
        raise InputError("no NVIDIA GPU here: 'nvidia-smi' is missing or lists none")
    for index in options.gpus or ():
        if index not in here:
            raise InputError(f"--gpus names GPU {index}; this machine has {', '.join(map(str, here))}")
    return options.gpus or here


class Crew:
    """The processes of a job, and their end."""

    __slots__ = ("_folder", "processes")

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
        self.processes, self._folder = list(processes), folder

    def codes(self) -> list[int | None]:
        """Exit codes; None where a process still runs."""
        return [process.poll() for process in self.processes]

    def end(self) -> None:
        """Ends what still runs, politely first."""
        for sign, wait in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
            for process in self.processes:
                if process.poll() is None:
                    process.send_signal(sign)
            deadline = time.monotonic() + wait
            while time.monotonic() < deadline and None in self.codes():
                time.sleep(POLL)

    def last_words(self, keep: Path) -> str:
        """The last line of the first process that complained; all it said goes into a file."""
        for code, path in zip(self.codes(), sorted(self._folder.glob("rank*.log")), strict=False):
            lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            if code and lines:
                keep.write_text("\n".join(lines[-200:]) + "\n", encoding="utf-8")
                said = [line for line in lines if "Error" in line or "error" in line]
                return (said or lines)[-1].strip()[:300]
        return "no message"


def start_crew(options: Options, job: Job, experiments: tuple[Experiment, ...], gpus: tuple[int, ...]) -> Crew:
    """One process per GPU for the given experiments."""
    folder = Path(tempfile.mkdtemp(prefix="pciesim-measure-"))
    processes: list[subprocess.Popen[bytes]] = []
    for rank in range(len(gpus)):
        environment = {**dict(job.environment), **os.environ} | {  # what the user has set wins
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        }
        if job.transport == "host":
            environment |= {"NCCL_P2P_DISABLE": "1"}
        if rank:
            environment = {k: v for k, v in environment.items() if not k.startswith(FIRST_RANK_ONLY)}
        command = [sys.executable, "-m", "pciesim.measure.worker", "--out", str(options.out), "--rank", str(rank),
                   "--gpus", ",".join(map(str, gpus)), "--transport", job.transport, "--store", str(folder / "store"),
                   "--experiments", ",".join(each.name for each in experiments)]  # fmt: skip
        command += ["--full"] if options.full else []
        with (folder / f"rank{rank:02}.log").open("wb") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    return Crew(processes, folder)


@dataclass(slots=True, kw_only=True)
class _Run:
    options: Options
    gpus: tuple[int, ...]
    start: Start
    progress: TextIO
    bad: int = 0
    begun: Seconds = 0.0
    pace: float = 1.0  # seconds taken per second estimated
    total: int = 0
    count: int = 0
    left: Seconds = 0.0

    def go(self) -> None:
        self.begun = time.monotonic()
        known = states(self.options.out)
        done = [name for name, state in known.items() if state in {"finished", "skipped"}]
        jobs = plan(self.options, len(self.gpus), done)
        if not jobs:
            self.say("everything asked for is there already")
        self.total = sum(len(job.experiments) for job in jobs)
        self.left = sum(self.cost(each) for job in jobs for each in job.experiments)
        for job in jobs:
            waiting = list(job.experiments)
            while waiting and not self.over():
                waiting = self.attend(job, self.allowed(waiting))
        if self.over():
            self.say("the time limit is reached; run the same command again for the rest")

    def allowed(self, waiting: Sequence[Experiment]) -> list[Experiment]:
        """Without what this machine cannot do, as the checks found."""
        checks = read(self.options.out / f"{CHECKED}.jsonl")
        trusted = all(row.get("right", True) for row in checks)
        reachable = all(row.get("reachable", True) for row in checks)
        reachable = reachable and states(self.options.out).get(CHECKED) not in {"failed", "hung"}
        kept: list[Experiment] = []
        for each in waiting:
            if each.peers and not (trusted and reachable):
                why = "peer memory cannot be reached" if trusted else "peer copies returned wrong data"
                self.note(each, "skipped", f"{each.name} skipped: {why}")
            else:
                kept.append(each)
        return kept

    def attend(self, job: Job, waiting: list[Experiment]) -> list[Experiment]:
        """Starts the processes for what waits and watches them; what is left when they end."""
        if not waiting:
            return []
        seen = len(read(self.options.out / STATUS))
        crew = self.start(self.options, job, tuple(waiting), self.gpus)
        current: Experiment | None = None
        deadline = time.monotonic() + START
        hung = False
        try:
            while True:
                codes = crew.codes()
                ended = any(codes) or None not in codes
                if ended:
                    time.sleep(POLL)  # the first rank may be about to write its last row
                rows = read(self.options.out / STATUS)
                for row in rows[seen:]:
                    if row["state"] == "started":
                        if self.over():
                            return waiting
                        current = waiting[0]
                        self.count += 1
                        self.say(f"[{self.count}/{self.total}] {current.name}: {current.about}; "
                                 f"about {self.left * self.pace:.0f} s left")  # fmt: skip
                        deadline = time.monotonic() + SLACK + 6 * self.cost(current)
                    elif row["state"] == "finished" and current is not None:
                        self.finished(current, float(row["seconds"]))
                        waiting, current = waiting[1:], None
                        deadline = time.monotonic() + START
                seen = len(rows)
                if ended:
                    break
                if time.monotonic() > deadline:
                    hung = True
                    break
                time.sleep(POLL)
            if waiting:
                stuck = current or waiting[0]
                time.sleep(POLL)
                words = crew.last_words(self.options.out / f"crash.{stuck.name}.txt")
                state, what = ("hung", "did not end in time") if hung else ("failed", f"failed: {words}")
                self.note(stuck, state, f"{stuck.name} {what}")
                self.bad += 1
                return [each for each in waiting if each is not stuck]
            return []
        finally:
            crew.end()

    def finished(self, experiment: Experiment, seconds: Seconds) -> None:
        cost = self.cost(experiment)
        self.left -= cost
        self.pace = 0.7 * self.pace + 0.3 * max(0.2, min(5.0, seconds / cost))

    def note(self, experiment: Experiment, state: str, text: str) -> None:
        """A state of an experiment that its own processes cannot write, and the finding that goes with it."""
        append(self.options.out / STATUS, {"experiment": experiment.name, "state": state, "at": now()})
        finding(self.options.out, experiment.name, text)
        self.left -= self.cost(experiment)
        self.say(f"warning: {text}")

    def cost(self, experiment: Experiment) -> Seconds:
        """About how long an experiment takes here: estimates are for two GPUs."""
        return experiment.seconds[self.options.full] * max(1.0, math.sqrt(len(self.gpus) / 2))

    def over(self) -> bool:
        limit = self.options.limit
        return limit is not None and time.monotonic() - self.begun > limit

    def say(self, text: str) -> None:
        self.progress.write(f"pciesim: {text}\n")
        self.progress.flush()
