"""Dispatch of collectives: which backend serves, which are refused and in what words; engine files and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pciesim.errors import InputError, UnknownName
from pciesim.formats.engine_yaml import engine_names, load_engine
from pciesim.model import Precision
from pciesim.schedule import Box, Category, Collective, CollectiveKind, EngineSpec

PCIE = Box(capability=120, p2p=True, nvlink=False)
NVLINK = Box(capability=90, p2p=True, nvlink=True, multicast=True)


def a_sum(
    nbytes: int = 8192, *, ranks: int = 8, precision: Precision = Precision.BF16, group: str = "tp"
) -> Collective:
    return Collective(
        name="experts", category=Category.ALL_REDUCE, kind=CollectiveKind.ALL_REDUCE, nbytes=nbytes, ranks=ranks,
        precision=precision, group=group,
    )  # fmt: skip


def refusals(engine: EngineSpec, op: Collective, box: Box) -> dict[str, str]:
    return {backend.name: reason for backend, reason in engine.decide(op, box).refused}


@pytest.mark.parametrize("name", engine_names())
def test_every_engine_has_a_last_resort_for_every_operation(name: str) -> None:
    engine = load_engine(name)
    for kind in CollectiveKind:
        op = Collective(name="x", category=Category.ALL_REDUCE, kind=kind, nbytes=7, ranks=3, precision=Precision.FP32)
        assert engine.decide(op, Box(capability=75, p2p=False, nvlink=False)).backend.algorithm == "nccl"


@pytest.mark.parametrize("name", ["sglang", "sglang-0.5.9", "vllm", "vllm-0.17"])
def test_more_than_two_gpus_without_nvlink_get_nccl(name: str) -> None:
    engine = load_engine(name)
    for ranks in (4, 8):
        assert engine.decide(a_sum(ranks=ranks), PCIE).backend.algorithm == "nccl"
    why = next(reason for each, reason in refusals(engine, a_sum(), PCIE).items() if "one stage" in each)
    assert why == "needs NVLink between all pairs for more than 2 GPUs"


@pytest.mark.parametrize("name", ["sglang", "sglang-0.5.9", "vllm", "vllm-0.17"])
def test_two_gpus_get_the_custom_kernel_up_to_eight_mebibytes(name: str) -> None:
    engine = load_engine(name)
    assert engine.decide(a_sum(ranks=2), PCIE).backend.algorithm == "vllm-1stage"
    assert engine.decide(a_sum(8 * 2**20 + 16, ranks=2), PCIE).backend.algorithm == "nccl"
    assert engine.decide(a_sum(ranks=2), Box(capability=120, p2p=False, nvlink=False)).backend.algorithm == "nccl"


def test_the_custom_kernel_can_be_disabled() -> None:
    engine = load_engine("sglang").with_options({"--disable-custom-all-reduce": "1"})
    assert engine.decide(a_sum(ranks=2), PCIE).backend.algorithm == "nccl"


@pytest.mark.parametrize(
    ("name", "option"),
    [("sglang", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"), ("vllm", "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC")],
)
def test_pcie_ipc_serves_bf16_sums_of_the_tensor_group(name: str, option: str) -> None:
    engine = load_engine(name).with_options({option: "1"})
    assert engine.decide(a_sum(), PCIE).backend.algorithm == "pcie-ipc"
    assert engine.decide(a_sum(8, precision=Precision.FP32), PCIE).backend.algorithm == "nccl"
    assert engine.decide(a_sum(group="attention_tp"), PCIE).backend.algorithm == "nccl"
    assert engine.decide(a_sum(ranks=6), PCIE).backend.algorithm == "nccl"
    assert engine.with_options({option: "0"}).decide(a_sum(), PCIE).backend.algorithm == "nccl"


def test_the_older_sglang_has_no_pcie_ipc() -> None:
    with pytest.raises(UnknownName, match="unknown option of SGLang"):
        load_engine("sglang-0.5.9").with_options({"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"})


def test_multicast_and_generation_are_named() -> None:
    reasons = refusals(load_engine("vllm"), a_sum(), PCIE)
    assert reasons["FlashInfer all-reduce"] == "built for SM90, SM100, SM103, SM107, this GPU is SM120"
    assert reasons["torch symmetric memory"] == "built for SM90, SM100, SM103, this GPU is SM120"
    assert reasons["quick reduce"] == "runs on rocm only"
    hopper_on_pcie = Box(capability=90, p2p=True, nvlink=False)
    assert refusals(load_engine("vllm"), a_sum(), hopper_on_pcie)["torch symmetric memory"] == "needs NVLink multicast"


def test_nvlink_gets_flashinfer_first() -> None:
    assert load_engine("sglang").decide(a_sum(), NVLINK).backend.name == "FlashInfer fused all-reduce"


def test_fusion_is_on_by_itself_for_experts_only() -> None:
    dense = Box(capability=90, p2p=True, nvlink=True, multicast=True, experts=False)
    engine = load_engine("sglang")
    assert refusals(engine, a_sum(), dense)["FlashInfer fused all-reduce"].startswith("on by itself only for models")
    asked = engine.with_options({"--flashinfer-allreduce-fusion-backend": "auto"})
    assert asked.decide(a_sum(), dense).backend.name == "FlashInfer fused all-reduce"
    disabled = engine.with_options({"--enforce-disable-flashinfer-allreduce-fusion": "1"})
    assert disabled.decide(a_sum(), NVLINK).backend.algorithm == "vllm-1stage"


def test_batches_are_padded_to_captured_graphs() -> None:
    """SGLang captures 1, 2, 4, 8, 12, 16, 24, ...; vLLM 1, 2, 4, 8, 16, 24, ..."""
    padded = load_engine("sglang").padded
    assert [padded(each) for each in (1, 3, 5, 9, 13, 17, 512, 513)] == [1, 4, 8, 12, 16, 24, 512, 513]
    assert [load_engine("vllm").padded(each) for each in (1, 3, 5, 9, 20, 257)] == [1, 4, 8, 16, 24, 272]


def test_unknown_engine() -> None:
    with pytest.raises(UnknownName, match="did you mean 'sglang'"):
        load_engine("sglan")


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_can_extend_a_shipped_engine(tmp_path: Path) -> None:
    engine = load_engine(write(tmp_path, "schema: pciesim/engine/1\nextends: vllm\nprefill_chunk: 2048\n"))
    assert (engine.name, engine.title, engine.prefill_chunk) == ("mine", "vLLM", 2048)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("schema: pciesim/engine/1\nextends: vllm\nprefil_chunk: 1\n", "mine.yaml:3:1", "did you mean 'prefill_chunk'"),
        ("schema: pciesim/engine/1\nextends: vlm\n", "", "unknown engine 'vlm'"),
        ("schema: pciesim/engine/1\nextends: vllm\ngraph_rows: [1, 8 to 16]\n", "mine.yaml:3:", "'16-256 by 8'"),
        ("schema: pciesim/engine/1\ntitle: X\n", "mine.yaml", "is missing"),
    ],
)
def test_faults_of_a_file_say_where(tmp_path: Path, text: str, place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_engine(write(tmp_path, text))
    assert place in str(caught.value)
    assert said in str(caught.value)
