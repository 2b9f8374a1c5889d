"""Kernel tables of the optional library: refused in one line without it, equal to the shipped ones with it."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError

import pytest

from pciesim.api import predict
from pciesim.errors import InputError, UnknownName
from pciesim.formats import aiconfigurator
from pciesim.formats.kernel_tables import load_kernel_tables

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed"
)


def test_refused_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(aiconfigurator, "version", missing)
    with pytest.raises(InputError, match=r"not installed; pip install 'pciesim\[aiconfigurator\]'"):
        aiconfigurator.library_tables("l40s")


def test_other_tables_are_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        predict(topo="rtx6000x4", model="llama31_8b", kernels="vidur")


@needs_library
def test_a_gpu_that_it_lacks() -> None:
    with pytest.raises(UnknownName):
        aiconfigurator.library_tables("rtx_3090")


@needs_library
@pytest.mark.parametrize("name", ["gemm/nvfp4", "attention/flashinfer__fp8__128__0", "moe/vllm__marlin__mxfp4"])
def test_same_rows_as_the_shipped_tables(name: str) -> None:
    """The shipped tables of RTX PRO 6000 were split from this library's files, to five digits."""
    theirs = aiconfigurator.library_tables("rtx_pro_6000")[0].table(name)
    ours = load_kernel_tables("rtx_pro_6000").table(name)
    assert theirs is not None
    assert ours is not None
    for key in list(ours.lines)[:20]:
        mine, library = ours.curve(*key), theirs.curve(*key)
        assert mine is not None
        assert library is not None
        for point, seconds in zip(mine.points, mine.seconds, strict=True):
            assert library.at(point) == pytest.approx(seconds, rel=2e-3)


@needs_library
def test_the_tables_of_another_gpu() -> None:
    tables, found = aiconfigurator.library_tables("l40s")
    assert found.startswith("aiconfigurator-core")
    assert "gemm/bf16" in tables.names
