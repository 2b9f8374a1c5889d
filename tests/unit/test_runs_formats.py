"""Measurements of other tools: what each says, and one clear line where it says too little."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pciesim.calibrate.readings import What
from pciesim.collectives.curve import Curve
from pciesim.errors import InputError
from pciesim.formats.points_csv import points_text, read_points
from pciesim.formats.runs_context import ImportContext
from pciesim.formats.runs_csv import read_curve
from pciesim.formats.runs_measure import read_measure_folder
from pciesim.formats.runs_nccl_log import read_nccl_log
from pciesim.formats.runs_serving import read_serving
from pciesim.formats.runs_table import RUN_FORMATS, import_runs
from pciesim.formats.runs_trace import kernel_totals, read_kernels
from pciesim.schedule import Category, CollectiveKind

TWO = ImportContext(topology="h200x2_shm", gpus=(0, 1))

NCCL_TESTS = """\
# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: {program}
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1234 on       host device  0 [0000:01:00] NVIDIA H200
#  Rank  1 Group  0 Pid   1234 on       host device  1 [0000:02:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     {redop}      -1    17.20    0.06    0.06      0    16.90    0.06    0.06      0
        4096          1024     float     {redop}      -1    17.55    0.23    0.23      {wrong}  17.10  0.24  0.24  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.148
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_nccl_tests_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", NCCL_TESTS.format(program="all_reduce_perf", redop="sum", wrong="0"))
    run = import_runs(path, TWO)
    assert [(p.nbytes, p.latency, p.kind) for p in run.points] == [
        (1024, pytest.approx(17.2e-6), CollectiveKind.ALL_REDUCE),
        (4096, pytest.approx(17.55e-6), CollectiveKind.ALL_REDUCE),
    ]
    assert run.hashes[0][0] == "a.txt"
    assert not run.notes


def test_an_all_gather_counts_the_gathered_tensor(tmp_path: Path) -> None:
    """1,024 bytes gathered on two ranks: each passes in 512."""
    path = write(tmp_path, "a.txt", NCCL_TESTS.format(program="all_gather_perf", redop="none", wrong="N/A"))
    assert [p.nbytes for p in import_runs(path, TWO).points] == [512, 2048]


def test_wrong_results_are_said(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", NCCL_TESTS.format(program="all_reduce_perf", redop="sum", wrong="7"))
    assert "7 wrong results" in import_runs(path, TWO).notes[0]


def test_the_collective_is_known_by_its_bandwidths_or_asked_for(tmp_path: Path) -> None:
    """Bus over algorithm bandwidth is 2 (n - 1) / n = 1 for an all-reduce of two ranks."""
    path = write(tmp_path, "a.txt", NCCL_TESTS.format(program="?", redop="sum", wrong="0"))
    assert {p.kind for p in import_runs(path, TWO).points} == {CollectiveKind.ALL_REDUCE}
    path = write(tmp_path, "b.txt", NCCL_TESTS.format(program="?", redop="none", wrong="0"))
    with pytest.raises(InputError, match=r"b\.txt: does not say which collective"):
        import_runs(path, TWO)


def test_nccl_tests_json(tmp_path: Path) -> None:
    document = {
        "version": 3, "nccl_version": 22809, "args": ["./all_reduce_perf", "-g", "2"], "devices": [{}, {}],
        "results": [{"size": 1024, "type": "float", "out_of_place": {"p50_us": 16.0, "avg_us": 17.0, "nwrong": 0}}],
    }  # fmt: skip
    run = import_runs(write(tmp_path, "r.json", json.dumps(document)), TWO)
    assert [(p.nbytes, p.latency) for p in run.points] == [(1024, pytest.approx(16e-6))]
    broken = write(tmp_path, "s.json", json.dumps({**document, "devices": []}))
    with pytest.raises(InputError, match="does not list its devices"):
        import_runs(broken, TWO)


def test_p2p_bandwidth_latency_test(tmp_path: Path) -> None:
    text = (
        "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 900.00  21.00\n"
        "     1  21.00 900.00\n"
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1\n"
        "     0 900.00  53.90\n     1  53.60 900.00\n"
        "P2P=Enabled Latency (P2P Writes) Matrix (us)\n  GPU  0  1\n  0  1.60  0.45\n  1  0.44  1.60\n"
    )
    run = import_runs(write(tmp_path, "p2p.txt", text), TWO)
    assert [(r.what, r.gpus, r.value) for r in run.readings] == [
        (What.PEER_COPY, (0, 1), 53.9e9),
        (What.PEER_COPY, (1, 0), 53.6e9),
    ]
    assert "not of seeing it" in run.notes[0]


def test_nvbandwidth_text_and_json(tmp_path: Path) -> None:
    text = (
        "nvbandwidth Version: v0.8\n\nRunning host_to_device_memcpy_ce.\n"
        "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0     55.63     55.64\n\n"
        "SUM host_to_device_memcpy_ce 111.27\n\nRunning device_to_device_memcpy_write_ce.\n"
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0       N/A     53.10\n"
        " 1     53.20       N/A\n\nSUM device_to_device_memcpy_write_ce 106.30\n\nRunning device_local_copy.\n"
    )
    expected = [(What.HOST_COPY, (0,)), (What.HOST_COPY, (1,)), (What.PEER_COPY, (0, 1)), (What.PEER_COPY, (1, 0))]
    run = import_runs(write(tmp_path, "nv.txt", text), TWO)
    assert [(r.what, r.gpus) for r in run.readings] == expected
    assert "device_local_copy" in run.notes[0]
    cases = [
        {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [["55.63", "55.64"]]},
        {"name": "device_to_device_memcpy_write_ce", "bandwidth_matrix": [["N/A", "53.1"], ["53.2", "N/A"]]},
    ]
    run = import_runs(write(tmp_path, "nv.json", json.dumps({"nvbandwidth": {"testcases": cases}})), TWO)
    assert [(r.what, r.gpus) for r in run.readings] == expected


def test_p2pmark(tmp_path: Path) -> None:
    text = (
        "p2pmark\n  +1   50.13 avg  401.01 total\nP2P latency, 128-byte remote reads (us)\n        0     1\n"
        "  0   0.00  0.72\n  1   0.71  0.00\n\nAll-reduce latency\n   8 KB    6.4   11.2\n"
    )
    run = import_runs(write(tmp_path, "mark.txt", text), TWO)
    assert [(r.what, r.gpus, r.value) for r in run.readings] == [
        (What.PEER_LOAD, (0, 1), pytest.approx(0.72e-6)),
        (What.PEER_LOAD, (1, 0), pytest.approx(0.71e-6)),
    ]
    assert [(p.algorithm, p.nbytes, p.latency) for p in run.points] == [
        ("oneshot-pull", 8000, pytest.approx(6.4e-6)),
        ("nccl", 8000, pytest.approx(11.2e-6)),
    ]
    assert "distance 1" in run.notes[0]


@pytest.mark.parametrize(
    "text",
    ["bytes,latency_us\n8192,6.4\n65536,12\n", "size,latency\n8 KiB,6.4 us\n64KiB,0.012 ms\n"],
    ids=["head", "cell"],
)
def test_a_curve_with_units(tmp_path: Path, text: str) -> None:
    curve = read_curve(write(tmp_path, "mine.csv", text))
    assert curve.points == ((8192, pytest.approx(6.4e-6)), (65536, pytest.approx(12e-6)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r":1: expected the columns"),
        ("bytes,latency\n8192,6.4\n", r":2: .*has no unit"),
        ("bytes,latency_us\n8192,6.4,3\n", r":2: expected two values, found 3"),
        ("bytes,latency_us\n8192,0\n", r":2: .*positive"),
        ("bytes,latency_us\n", r"has no rows"),
    ],
)  # fmt: skip
def test_a_curve_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_curve(write(tmp_path, "mine.csv", text))


def test_a_curve_between_and_beyond_its_points() -> None:
    """Halfway in logs between 4 and 16 us is 8; beyond the end the last slope, 12 us for 12 KB, goes on."""
    curve = Curve(name="mine", points=((1000, 4e-6), (4000, 4e-6), (16000, 16e-6)))
    assert curve.latency(8000) == pytest.approx(8e-6)
    assert curve.latency(600) == 4e-6
    assert curve.latency(28000) == pytest.approx(28e-6)


def test_nothing_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no measurement in a known format"):
        import_runs(write(tmp_path, "a.txt", "hello\n"), TWO)
    with pytest.raises(InputError, match="holds no measurements"):
        import_runs(tmp_path, TWO)
    with pytest.raises(InputError, match=r"gone\.txt"):
        import_runs(tmp_path / "gone.txt", TWO)
    assert {each.title for each in RUN_FORMATS.values()}


def test_a_folder_of_files(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", NCCL_TESTS.format(program="all_reduce_perf", redop="sum", wrong="0"))
    write(tmp_path, "c.csv", "bytes,latency_us\n8192,6.4\n")
    run = import_runs(tmp_path, TWO)
    assert len(run.points) == 3
    assert [name for name, _ in run.hashes] == ["a.txt", "c.csv"]


def test_points_survive_their_csv(tmp_path: Path) -> None:
    run = import_runs(
        write(tmp_path, "a.txt", NCCL_TESTS.format(program="all_reduce_perf", redop="sum", wrong="0")), TWO
    )
    again = read_points(write(tmp_path, "points.csv", points_text(run.points, lambda _: "fit")))
    assert again == run.points


def test_a_measure_folder(tmp_path: Path) -> None:
    write(tmp_path, "manifest.yaml", "schema: pciesim/run/1\n")
    write(tmp_path, "status.jsonl", '{"experiment": "x", "state": "finding", "text": "odd"}\n')
    row = {"transport": "host", "setting": "ch4_Ring_LL", "kind": "all_reduce", "bytes": 8192, "gpus": [0, 1],
           "mode": "graph", "s": 1e-5}  # fmt: skip
    rows = [row, {**row, "mode": "eager"}, {**row, "s": 2e-5}]
    write(tmp_path, "nccl_channels.host.jsonl", "".join(json.dumps(each) + "\n" for each in rows))
    fence = {"what": "fence", "where": "host", "gpu": 0, "words": 256}
    latency = [
        {"what": "load_chain", "where": "host", "gpu": 0, "s": [1.2e-6, 1.1e-6, 1.3e-6]},
        {**fence, "fence": False, "s": [1e-7, 1e-7]},
        {**fence, "fence": True, "s": [1.5e-6, 1.5e-6]},
    ]
    write(tmp_path, "latency_host.jsonl", "".join(json.dumps(each) + "\n" for each in latency))
    run = read_measure_folder(tmp_path, "h200x2")
    (point,) = run.points
    assert point.algorithm == "nccl-ring-ll"
    assert point.latency == 2e-5, "of two that are the same the last counts"
    assert dict(point.nccl) == {"NCCL_P2P_DISABLE": "1", "NCCL_MIN_NCHANNELS": "4", "NCCL_MAX_NCHANNELS": "4"}
    assert [(r.what, r.value) for r in run.readings] == [
        (What.HOST_LOAD, 1.2e-6),
        (What.HOST_FENCE, pytest.approx(1.4e-6)),
    ]
    assert run.notes == ("odd",)
    write(tmp_path, "latency_host.jsonl", "{\n")
    with pytest.raises(InputError, match=r"latency_host\.jsonl:1:\d+: not a JSON row"):
        read_measure_folder(tmp_path, "h200x2")


def test_nccl_log(tmp_path: Path) -> None:
    text = (
        "h:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
        "h:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nranks 4 cudaDev 0\n"
        "h:1:1 [0] NCCL INFO Channel 00/04 : 0 1 3 2\n"
        "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
        "h:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 3[3] via P2P/CUMEM\n"
        "h:1:1 [0] NCCL INFO 4 coll channels, 4 collnet channels, 0 nvls channels, 4 p2p channels\n"
        "h:1:1 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n"
        "h:1:1 [0] NCCL INFO AllGather: 8192 Bytes -> Algo 1 proto 2 time 12.0\n"
    )
    log = read_nccl_log(write(tmp_path, "log.txt", text))
    assert (log.version, log.ranks, log.ring, log.channels) == ("2.28.9", 4, (0, 1, 3, 2), 4)
    assert log.transports == ("P2P", "SHM")
    assert [(c.algorithm, c.protocol, c.channels) for c in log.choices] == [("Ring", "LL", 2), ("Ring", "Simple", None)]
    with pytest.raises(InputError, match="no NCCL log"):
        read_nccl_log(write(tmp_path, "other.txt", "hello\n"))


def test_serving_output(tmp_path: Path) -> None:
    text = (
        "============ Serving Benchmark Result ============\nMax request concurrency:  8\n"
        "Median TTFT (ms):   210.5\nMean TPOT (ms):  14.5\nMedian TPOT (ms):  13.9\nAccept length:  2.78\n"
    )
    found = read_serving(write(tmp_path, "b.txt", text))
    assert (found.token_interval, found.users, found.accepted) == (pytest.approx(13.9e-3), 8, 2.78)
    one_batch = "Decode.  median latency: 0.01395 s, median throughput:     71.66 token/s\n"
    assert read_serving(write(tmp_path, "c.txt", one_batch)).token_interval == pytest.approx(13.95e-3)
    row = json.dumps({"median_tpot_ms": 13.9, "max_concurrency": 8})
    assert read_serving(write(tmp_path, "d.jsonl", row + "\n")).users == 8
    with pytest.raises(InputError, match="no time per token"):
        read_serving(write(tmp_path, "e.txt", "hello\n"))


def test_profiles(tmp_path: Path) -> None:
    events = [
        {"cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "dur": 12.0},
        {"cat": "kernel", "name": "nvjet_tst_64x8", "dur": 20.0},
        {"cat": "kernel", "name": "nvjet_tst_64x8", "dur": 22.0},
        {"cat": "cpu_op", "name": "aten::mm", "dur": 99.0},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    kernels = read_kernels(path)
    assert (kernels[0].name, kernels[0].count) == ("nvjet_tst_64x8", 2)
    assert kernel_totals(kernels, 2) == {
        Category.GEMM_MIXER: pytest.approx(21e-6),
        Category.ALL_REDUCE: pytest.approx(6e-6),
    }
    nsys = (
        "\nProcessing...\nTime (%),Total Time (ns),Instances,Avg (ns),Name\n"
        '60.0,42000,2,21000,"void flash_fwd_kernel<int, 3>"\n'
    )
    (only,) = read_kernels(write(tmp_path, "nsys.csv", nsys))
    assert (only.category, only.count, only.total) == (Category.ATTENTION, 2, pytest.approx(42e-6))
    with pytest.raises(InputError, match=r"neither a torch\.profiler trace"):
        read_kernels(write(tmp_path, "x.csv", "a,b\n"))
