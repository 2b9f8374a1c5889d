"""``pciesim collective`` and ``pciesim nccl``: answers, JSON against its schema, refusals in one line."""

from __future__ import annotations

import json

import jsonschema
import pytest

from pciesim.commands.collective import parse_sizes
from pciesim.commands.schema import schema_text
from pciesim.errors import InputError
from pciesim.units import KIB, MIB

KINDS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]


@pytest.mark.parametrize("kind", KINDS)
def test_json_keeps_its_schema(pciesim, kind):
    done = pciesim("collective", kind, "--topo", "rtx6000x4", "--bytes", "8KiB,1MiB", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    jsonschema.validate(document, json.loads(schema_text("collective")), jsonschema.Draft202012Validator)
    assert {row["bytes"] for row in document["rows"]} == {8 * KIB, MIB}
    for row in document["rows"]:
        latency = row["latency_s"]
        assert 0 < latency["low"] <= latency["value"] <= latency["high"]
        assert row["algbw_bytes_per_s"] == pytest.approx(row["counted_bytes"] / latency["value"], rel=1e-6)
    for size in (8 * KIB, MIB):
        same = [row for row in document["rows"] if row["bytes"] == size]
        fastest = [row for row in same if row["fastest"]]
        assert len(fastest) == 1
        assert fastest[0]["latency_s"]["value"] == min(row["latency_s"]["value"] for row in same)
    floors = {each["bytes"]: each["latency_s"] for each in document["floors"]}
    assert all(row["latency_s"]["value"] >= floors[row["bytes"]] for row in document["rows"])


def test_bandwidths_are_those_of_nccl_tests(pciesim):
    done = pciesim(
        "collective", "all_gather", "--topo", "rtx6000x4", "--bytes", "1MiB", "--algorithm", "nccl", "--json"
    )
    (row,) = json.loads(done.out)["rows"]
    assert row["counted_bytes"] == 4 * MIB  # gathered
    assert row["busbw_bytes_per_s"] == pytest.approx(row["algbw_bytes_per_s"] * 3 / 4)


def test_the_table_marks_crossovers_and_refusals(pciesim, tmp_path):
    picture = tmp_path / "all_reduce.svg"
    done = pciesim(
        "collective", "all_reduce", "--topo", "rtx6000x8_2switch", "--bytes", "1KiB:16MiB:x4",
        "--algorithm", "nccl,oneshot-push,hierarchical,symm-mem", "--plot", picture,
    )  # fmt: skip
    assert done.code == 0
    assert "Crossovers" in done.out
    assert "hierarchical -> nccl" in done.out
    assert "no native peer-to-peer atomics" in done.out.replace("\n    ", " ").replace("\n", " ")
    assert picture.read_text().startswith("<?xml")
    assert max(map(len, done.out.splitlines())) <= 110


def test_estimate_is_near_simulate(pciesim):
    def times(evaluator):
        done = pciesim("collective", "all_reduce", "--topo", "rtx6000x8", "--evaluator", evaluator, "--json")
        return [row["latency_s"]["value"] for row in json.loads(done.out)["rows"]]

    assert times("estimate") == pytest.approx(times("simulate"), rel=0.02)


def test_skew(pciesim):
    def slowest(*more):
        done = pciesim("collective", "all_to_all", "--topo", "rtx6000x4", "--bytes", "4MiB", "--algorithm",
                       "oneshot-push", "--json", *more)  # fmt: skip
        return json.loads(done.out)["rows"][0]["latency_s"]["value"]

    # Even loads bind where a rank stores to three peers at once, a hot rank at the full rate of its port.
    assert slowest("--skew", "2") > 1.3 * slowest()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["collective", "all_reduce", "--topo", "rtx6000x8", "--algorithm", "oneshot-pul"],
            2,
            "did you mean 'oneshot-pull'",
        ),
        (["collective", "allreduce", "--topo", "rtx6000x8"], 2, "did you mean 'all_reduce'"),
        (["collective", "all_reduce", "--topo", "rtx6000x8", "--gpus", "0-9"], 2, "GPU 8"),
        (["collective", "all_reduce", "--topo", "rtx6000x8", "--bytes", "8"], 2, "has no unit"),
        (["collective", "all_reduce", "--topo", "rtx6000x8", "--bytes", "1MiB:1KiB:x2"], 2, "begin"),
        (["collective", "all_reduce", "--topo", "rtx6000x8", "--bytes", "1KiB:1MiB:x1"], 2, "above 1"),
        (["collective", "all_reduce", "--topo", "rtx6000x8", "--skew", "2"], 2, "all_to_all"),
        (["collective", "all_reduce", "--topo", "rtx6000x8", "--algorithm", "symm-mem"], 1, "atomics"),
        (["collective", "broadcast", "--topo", "rtx6000x8", "--algorithm", "twoshot-push"], 1, "does not serve"),
        (["collective", "all_reduce", "--topo", "rtx6000x8", "--plot", "x.gif"], 2, ".gif"),
        (["nccl", "graph", "--topo", "rtx6000x8"], 2, "one of --out FILE"),
        (["nccl", "graph", "--topo", "rtx6000x8", "--check", "nowhere.xml"], 2, "cannot be read"),
        (["nccl", "explain", "--topo", "rtx6000x8", "--collective", "all_to_all"], 1, "sends and receives"),
        (["nccl", "explain", "--topo", "rtx6000x8", "--nccl", "NCCL_ALGO=Rings"], 2, "did you mean 'Ring'"),
    ],
)
def test_refusals(pciesim, words, code, message):
    done = pciesim(*words)
    assert done.code == code
    assert message in done.one_line()


def test_nccl_explains_the_fallback(pciesim):
    done = pciesim("nccl", "explain", "--topo", "rtx6000x8", "--nccl", "NCCL_GRAPH_FILE=0", "--bytes", "2KiB,64KiB")
    assert done.code == 0, done.err
    assert "fell back to rank order" in done.out
    assert "64 KiB: Ring Simple is" in done.out
    as_json = pciesim("nccl", "explain", "--topo", "rtx6000x8", "--bytes", "64KiB", "--json")
    document = json.loads(as_json.out)
    assert document["schema"] == "pciesim/nccl/1"
    assert not document["ring"]["fallback"]
    assert [option["chosen"] for option in document["rows"][0]["options"]].count(True) == 1


def test_nccl_graph_mends_it(pciesim, tmp_path):
    path = tmp_path / "graph.xml"
    done = pciesim("nccl", "graph", "--topo", "rtx6000x8", "--nccl", "NCCL_GRAPH_FILE=0", "-o", path, "--json",
                   "--bytes", "32KiB")  # fmt: skip
    document = json.loads(done.out)
    assert done.code == 0, done.err
    assert document["faults"] == []
    assert document["environment"]["NCCL_GRAPH_FILE"] == str(path)
    (row,) = document["rows"]  # owners measure 48.2 -> 26.2 us
    assert row["before_s"] == pytest.approx(48.2e-6, rel=0.15)
    assert row["after_s"] == pytest.approx(26.2e-6, rel=0.25)
    assert pciesim("nccl", "graph", "--topo", "rtx6000x8", "--check", path).code == 0
    path.write_text(path.read_text().replace('dev="7"', 'dev="6"'))
    refused = pciesim("nccl", "graph", "--topo", "rtx6000x8", "--check", path)
    assert refused.code == 1
    assert "not each of the GPUs" in refused.out


def test_sizes():
    assert parse_sizes("1KiB:8KiB:x2") == [1024, 2048, 4096, 8192]
    assert parse_sizes("8KiB, 1KiB,8KiB") == [1024, 8192]
    assert parse_sizes("1KiB:4KiB") == [1024, 2048, 4096]
    with pytest.raises(InputError, match="more than"):
        parse_sizes("1B:1GiB:x1.01")
