"""The hardware catalogue: spellings, sources, and figures that can be checked against each other."""

from __future__ import annotations

import pytest

from pciesim.errors import UnknownName
from pciesim.formats.catalogue import (
    gpu_names,
    gpu_type,
    host_by_cpuid,
    host_names,
    host_type,
    switch_names,
    switch_type,
)
from pciesim.hardware import PCIE_GENERATIONS, PCIE_WIDTHS, pcie_bandwidth
from pciesim.units import GB


def test_line_rates_of_the_standard() -> None:
    """x16 per direction: Gen3 15.754, Gen4 31.508, Gen5 63.015 GB/s (128b/130b), Gen6 118 (flits)."""
    rates = [pcie_bandwidth(generation, 16) / GB for generation in (3, 4, 5, 6)]
    assert rates == pytest.approx([15.754, 31.508, 63.015, 118.0], rel=1e-4)


@pytest.mark.parametrize("name", gpu_names())
def test_gpu(name: str) -> None:
    gpu = gpu_type(name)
    assert gpu.pcie_generation in PCIE_GENERATIONS
    assert gpu.pcie_width in PCIE_WIDTHS
    assert gpu.source
    assert gpu.nvlink == (gpu.nvlinks > 0) == (gpu.nvlink_bandwidth > 0)
    dense = gpu.dense_flops
    assert dense.get("fp8", 2 * dense["bf16"]) == pytest.approx(2 * dense["bf16"], rel=0.02)
    assert gpu_type(gpu.name).key == gpu_type(f"NVIDIA {gpu.name}").key == name
    assert hash(gpu) == hash(gpu_type(name))


@pytest.mark.parametrize(
    ("spelling", "key"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx_pro_6000_ws"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx_pro_6000_max_q"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100 80GB PCIe", "a100_pcie"),
    ],
)
def test_products_as_nvidia_smi_names_them(spelling: str, key: str) -> None:
    assert gpu_type(spelling).key == key


@pytest.mark.parametrize(
    ("spelling", "key"),
    [
        ("EPYC 9575F", "epyc_turin"),
        ("AMD EPYC 9374F 32-Core Processor", "epyc_genoa"),
        ("AMD EPYC 7V13 64-Core Processor", "epyc_milan"),
        ("AMD EPYC 7542 32-Core Processor", "epyc_rome"),
        ("AMD Ryzen Threadripper PRO 7955WX 16-Cores", "threadripper_pro_7000"),
        ("INTEL(R) XEON(R) PLATINUM 8562Y+", "xeon_emr"),
        ("Intel(R) Xeon(R) Gold 6430", "xeon_spr"),
        ("Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", "xeon_icx"),
        ("Intel(R) Xeon(R) 6960P", "xeon_gnr"),
        ("xeon_gnr_sp", "xeon_gnr_sp"),
    ],
)
def test_cpus_by_their_own_names(spelling: str, key: str) -> None:
    assert host_type(spelling).key == key


def test_nccl_constants_between_sockets_follow_its_rule() -> None:
    """NCCL 2.30.7: 16 GB/s for AMD; Intel model >= 0xCF 40, >= 0x8F 22, >= 0x55 10. Granite Rapids is 0xAD: 22."""
    for name in host_names():
        host = host_type(name)
        if host.vendor == "intel":
            steps = ((0xCF, 40), (0x8F, 22), (0x55, 10))
            assert host.nccl_socket_bandwidth == next(rate for least, rate in steps if host.model >= least) * GB
            assert host.nccl_p2p_overhead == pytest.approx(6 / 5)
        else:
            assert host.nccl_socket_bandwidth == 16 * GB
        assert (host.socket_links > 0) == (host.max_sockets > 1)


def test_cpuid() -> None:
    found = host_by_cpuid("intel", 6, 207)
    assert found is not None
    assert found.key == "xeon_emr"
    assert host_by_cpuid("amd", 1, 1) is None


@pytest.mark.parametrize("name", switch_names())
def test_switch(name: str) -> None:
    chip = switch_type(name)
    assert chip.lanes >= 96
    assert 90e-9 <= chip.hop <= 160e-9
    assert chip.source


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        switch_type("microchip_pm5010")
    assert caught.value.nearest == "microchip_pm50100"
