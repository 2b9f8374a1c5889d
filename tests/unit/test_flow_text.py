"""Flows as people write them."""

from __future__ import annotations

import pytest

from pciesim.errors import InputError, UnknownName
from pciesim.formats.flow_text import parse_flows
from pciesim.units import GB
from tests.support.fabrics import box

BOX = box([[0, 1], [2, 3]], sockets=[0, 1])


def pairs(*words: str) -> list[tuple[str, str]]:
    return [(flow.source.removeprefix("GPU"), flow.target.removeprefix("GPU")) for flow in parse_flows(words, BOX)]


@pytest.mark.parametrize("text", ["0>3", "0:3", "0->3", "GPU0>3", "gpu0:GPU3"])
def test_one_flow(text: str) -> None:
    assert pairs(text) == [("0", "3")]


def test_several() -> None:
    assert pairs("0>1 1>0", "2:3") == [("0", "1"), ("1", "0"), ("2", "3")]
    assert pairs("0-1>2,3") == [("0", "2"), ("0", "3"), ("1", "2"), ("1", "3")]
    assert pairs("host:all") == [("host", "0"), ("host", "1"), ("host", "2"), ("host", "3")]
    assert pairs("0:memory1") == [("0", "memory1")]
    assert len(pairs("all-to-all")) == 12
    assert pairs("all-to-all:1,3") == [("1", "3"), ("3", "1")]
    assert pairs("stagger:3") == [("0", "3"), ("1", "0"), ("2", "1"), ("3", "2")]
    assert pairs("stagger:1:0-2") == [("0", "1"), ("1", "2"), ("2", "0")]


def test_a_cap() -> None:
    assert parse_flows(["0>1@10GB/s"], BOX)[0].cap == 10 * GB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "is not a flow"), ("0-3", "is not a flow"), ("0>", "is not a flow"), ("0>9", "names GPU 9"),
        ("0>0", "no flow between"), ("stagger", "by how many"), ("stagger:4", "to itself"), ("0>1@10", "10"),
        ("host:memory1", "nothing moves the bytes"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_flows([text], BOX)


def test_a_misspelt_device() -> None:
    with pytest.raises(UnknownName, match="did you mean 'memory0'"):
        parse_flows(["0>memry0"], BOX)


def test_only_ends_are_ends() -> None:
    with pytest.raises(UnknownName):
        parse_flows(["0>socket1"], BOX)
