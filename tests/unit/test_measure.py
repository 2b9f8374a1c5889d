"""``pciesim measure`` without a GPU: the plan, the controller with pretended processes, the manifest."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pciesim.errors import InputError, UnknownName
from pciesim.measure import controller
from pciesim.measure.controller import Crew, measure
from pciesim.measure.experiments.peer_copies import patterns
from pciesim.measure.manifest import manifest_text
from pciesim.measure.options import Options
from pciesim.measure.plan import EXPERIMENTS, Experiment, Job, plan
from pciesim.measure.rows import STATUS, append, read, states
from pciesim.measure.system import scrub_log, without_identities
from pciesim.measure.timing import summary

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(out=tmp_path / "run", full=False, command="test")


def names(jobs: list[Job]) -> list[str]:
    return [each.name for job in jobs for each in job.experiments]


def test_checks_come_first_and_in_processes_of_their_own(options: Options) -> None:
    jobs = plan(options, 8, ())
    assert names(jobs)[0] == "p2p_check"
    checks = [job for job in jobs if job.experiments[0].log]
    assert jobs[: len(checks)] == checks
    assert all("NCCL_DEBUG" in dict(job.environment) for job in checks)
    assert not any("NCCL_DEBUG" in dict(job.environment) for job in jobs[len(checks) :])


def test_processes_start_four_times(options: Options) -> None:
    assert [job.transport for job in plan(options, 8, ())] == ["p2p", "host", "host", "p2p"]


def test_multicast_stays_off_and_host_transport_is_forced(options: Options) -> None:
    for job in plan(options, 2, ()):
        environment = dict(job.environment)
        assert environment["NCCL_NVLS_ENABLE"] == "0"
        assert ("NCCL_P2P_DISABLE" in environment) == (job.transport == "host")


def test_one_gpu_measures_what_one_gpu_can(options: Options) -> None:
    assert names(plan(options, 1, ()))
    assert all(EXPERIMENTS[name].least_gpus == 1 for name in names(plan(options, 1, ())))


def test_finished_experiments_are_left_out(options: Options) -> None:
    left = names(plan(options, 2, ["decode.host", "p2p_check"]))
    assert "decode.host" not in left
    assert "p2p_check" not in left
    assert "decode.p2p" in left


def test_only_takes_families_and_single_names(options: Options) -> None:
    assert names(plan(replace(options, only=("decode",)), 2, ())) == ["decode.host", "decode.p2p"]
    assert names(plan(replace(options, only=("nccl_forced.p2p",)), 2, ())) == ["nccl_forced.p2p"]
    with pytest.raises(UnknownName, match="did you mean 'decode'"):
        plan(replace(options, only=("decoed",)), 2, ())


class Pretended(Crew):
    """Processes that write their status at once, up to an experiment that crashes or hangs."""

    def __init__(self, out: Path, experiments: tuple[Experiment, ...], fate: Callable[[str], str | None]) -> None:
        super().__init__([], out)
        self.code: int | None = 0
        self.ended = False
        for each in experiments:
            append(out / STATUS, {"experiment": each.name, "state": "started"})
            if (what := fate(each.name)) is not None:
                self.code = 1 if what == "crash" else None
                return
            append(out / STATUS, {"experiment": each.name, "state": "finished", "seconds": 1.0})

    def codes(self) -> list[int | None]:
        return [self.code]

    def end(self) -> None:
        self.ended = True

    def last_words(self, keep: Path) -> str:
        keep.write_text("Traceback\n", encoding="utf-8")
        return "RuntimeError: no"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A machine with two GPUs whose experiments pass at once; collects what each start was given."""
    monkeypatch.setattr(controller, "gpu_indexes", lambda: (0, 1))
    monkeypatch.setattr(controller, "record_system", lambda _: None)
    monkeypatch.setattr(controller, "POLL", 0.0)
    return []


def run(options: Options, starts: list[tuple[str, ...]], fate: Callable[[str], str | None] = lambda _: None) -> int:
    crews: list[Pretended] = []

    def start(options: Options, _job: Job, experiments: tuple[Experiment, ...], _gpus: tuple[int, ...]) -> Crew:
        starts.append(tuple(each.name for each in experiments))
        crews.append(Pretended(options.out, experiments, fate))
        return crews[-1]

    bad = measure(options, start=start, progress=io.StringIO())
    assert all(crew.ended for crew in crews), "processes are ended whatever happens"
    return bad


def test_a_run_finishes_and_is_not_repeated(options: Options, box: list[tuple[str, ...]]) -> None:
    assert run(options, box) == 0
    assert set(states(options.out).values()) == {"finished"}
    before = len(box)
    assert run(options, box) == 0
    assert len(box) == before, "nothing was left to start"


def test_a_crash_becomes_a_finding_and_the_rest_goes_on(options: Options, box: list[tuple[str, ...]]) -> None:
    assert run(options, box, lambda name: "crash" if name == "decode.host" else None) == 1
    assert states(options.out)["decode.host"] == "failed"
    assert states(options.out)["host_copies"] == "finished"
    assert (options.out / "crash.decode.host.txt").is_file()
    again = run(options, [])
    assert again == 0
    assert states(options.out)["decode.host"] == "finished", "what failed is tried again"


def test_a_hang_is_ended_and_said(
    options: Options, box: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(float(100 * tick) for tick in range(10**6))
    monkeypatch.setattr(controller.time, "monotonic", lambda: next(clock))
    assert run(options, box, lambda name: "hang" if name == "nccl_first.p2p" else None) == 1
    assert states(options.out)["nccl_first.p2p"] == "hung"
    manifest = YAML(typ="safe").load((options.out / "manifest.yaml").read_text(encoding="utf-8"))
    assert any("did not end in time" in each["text"] for each in manifest["findings"])


@pytest.mark.parametrize("row", [{"right": False}, {"reachable": False}], ids=["wrong data", "unreachable"])
def test_peer_experiments_are_skipped_where_peers_cannot_be_trusted(
    options: Options, box: list[tuple[str, ...]], row: dict[str, Any]
) -> None:
    options.out.mkdir()
    append(options.out / "p2p_check.jsonl", row)
    assert run(options, box) == 0
    found = states(options.out)
    assert found["peer_copies"] == found["oneshot_peer"] == found["latency_peer"] == "skipped"
    assert found["oneshot_host"] == "finished"


def test_no_gpu_is_bad_usage(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "gpu_indexes", lambda: ())
    with pytest.raises(InputError, match="no NVIDIA GPU"):
        measure(options)


def test_a_gpu_that_is_not_there(options: Options, box: list[tuple[str, ...]]) -> None:
    with pytest.raises(InputError, match="GPU 7"):
        run(replace(options, gpus=(0, 7)), box)


def test_rows_survive_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append(path, {"s": 1.0})
    with path.open("a", encoding="utf-8") as file:
        file.write('{"s": 2')
    assert read(path) == [{"s": 1.0}]
    assert read(tmp_path / "none") == []


def test_the_manifest_lists_files_with_hashes(options: Options) -> None:
    options.out.mkdir()
    (options.out / "topo.txt").write_text("GPU0\n", encoding="utf-8")
    append(options.out / STATUS, {"experiment": "launch", "state": "finished", "seconds": 2.0})
    text = manifest_text(options, (0,), hardware=["0, NVIDIA H200, 580, 1 MiB"], commit="abc")
    found = YAML(typ="safe").load(text)
    assert found["files"]["topo.txt"]["sha256"] == hashlib.sha256(b"GPU0\n").hexdigest()
    assert found["experiments"]["launch"]["state"] == "finished"
    assert found["hardware"] == "1 of 1 GPUs: NVIDIA H200"
    assert found["tool"]["commit"] == "abc"


def test_identities_are_left_out() -> None:
    said = (
        "GPU 00000000:01:00.0\n"
        "    Product Name                          : NVIDIA H200\n"
        "    Serial Number                         : 1652\n"
        "    GPU UUID                              : GPU-1\n"
        "    Processes\n"
        "        Process ID                        : 12\n"
        "            Name                          : secret\n"
        "    Capabilities\n"
        "        EGM                               : disabled\n"
    )
    kept = without_identities(said)
    assert "H200" in kept
    assert "EGM" in kept
    assert not any(word in kept for word in ("1652", "GPU-1", "secret"))


def test_host_names_are_taken_out_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("mybox:123:456 [0] NCCL INFO hello\n", encoding="utf-8")
    scrub_log(log)
    assert log.read_text(encoding="utf-8") == "host:0:0 [0] NCCL INFO hello\n"


def test_a_summary_is_per_call() -> None:
    found = summary([10.0, 30.0, 20.0, 40.0], 10)
    assert (found.median, found.least, found.most, found.halves) == (2.5, 1.0, 4.0, (2.0, 3.0))


def test_patterns_of_eight_gpus_are_what_they_say() -> None:
    found = dict(patterns(8, full=True))
    ring = found["write ring +3"]
    assert sorted(flow.source for flow in ring) == sorted(flow.target for flow in ring) == list(range(8))
    assert all((flow.target - flow.source) % 8 == 3 for flow in ring)
    assert len(found["read all to all"]) == 56
    assert all(flow.issuer == flow.target for flow in found["read all to all"])
    for name, flows in patterns(8, full=True):
        if name.endswith("two pairs"):
            assert len({rank for flow in flows for rank in (flow.source, flow.target)}) == 4


def test_it_runs_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """The device that is measured may have none of pciesim's dependencies: -S -s hides every installed package."""
    command = [sys.executable, "-S", "-s", "-m", "pciesim.measure", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert done.returncode == 2
    assert done.stderr == "pciesim: error: no NVIDIA GPU here: 'nvidia-smi' is missing or lists none\n"


def test_every_experiment_has_its_file() -> None:
    folder = ROOT / "pciesim" / "measure" / "experiments"
    for each in EXPERIMENTS.values():
        assert "def run(worker: Worker)" in (folder / f"{each.module}.py").read_text(encoding="utf-8")


def test_rows_are_json(tmp_path: Path) -> None:
    append(tmp_path / "x.jsonl", {"a": [1, 2]})
    assert json.loads((tmp_path / "x.jsonl").read_text(encoding="utf-8")) == {"a": [1, 2]}
