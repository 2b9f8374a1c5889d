"""Model files: what they mean and how they are refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pciesim.errors import InputError, UnknownName
from pciesim.formats.model import load_model
from pciesim.formats.model_yaml import ModelDocument, parse_model
from pciesim.model import Precision

MODELS = Path(__file__).parents[2] / "models"
SMALL = """\
schema: pciesim/model/1
name: Small
hidden: 1024
vocabulary: 32000
precision: {attention: fp8, o_proj: bf16, kv_cache: fp8}
blocks:
  attention: {kind: attention, heads: 8, kv_heads: 2, head_dim: 128}
  mlp: {kind: dense_mlp, intermediate: 4096}
layers:
  - {repeat: 2, pattern: [attention + mlp]}
"""


def test_precision_is_by_class_then_by_matrix() -> None:
    spec = parse_model(SMALL, source="small.yaml")
    found = {linear.name: linear.precision for linear in spec.layers[0].linears(spec.hidden)}
    assert found == {
        "q_proj": Precision.FP8, "k_proj": Precision.FP8, "v_proj": Precision.FP8, "o_proj": Precision.BF16,
        "gate_up_proj": Precision.BF16, "down_proj": Precision.BF16,
    }  # fmt: skip
    assert spec.kv_precision is Precision.FP8
    assert spec.head_precision is Precision.BF16


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden: 1024", "hiden: 1024", r"^m\.yaml:3:1: unknown key 'hiden'; did you mean 'hidden'"),
        ("hidden: 1024", "hidden: 0", r"^m\.yaml:3:1: hidden: input should be greater than 0"),
        ("kind: dense_mlp", "kind: dense", r"^m\.yaml:8:\d+: .*dense_mlp"),
        ("[attention + mlp]", "[attention + mpl]", "unknown block 'mpl'; did you mean 'mlp'"),
        ("[attention + mlp]", "[attention + attention]", "two blocks of one kind"),
        ("o_proj: bf16", "o_prj: bf16", "unknown module or matrix in precision 'o_prj'; did you mean 'o_proj'"),
        ("attention: fp8", "attention: fp9", r"^m\.yaml:5:\d+: precision\.attention"),
        ("schema: pciesim/model/1", "schema: pciesim/model/9", r"^m\.yaml:1:1: schema"),
    ],
)
def test_faults_are_one_clear_line(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_model(SMALL.replace(old, new), source="m.yaml")
    assert "\n" not in str(caught.value)


def test_unknown_precision_name_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        parse_model(SMALL.replace("o_proj", "x"), source="m.yaml")


@pytest.mark.bench
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_model_loads_quickly(path: Path) -> None:
    """Under 10 ms once the libraries are imported (best of five: the machine may be busy)."""
    load_model(path)
    best = min(_seconds(path) for _ in range(5))
    assert best < 0.010


def _seconds(path: Path) -> float:
    start = time.perf_counter()
    load_model(path)
    return time.perf_counter() - start


def test_schema_is_a_json_schema() -> None:
    schema = ModelDocument.model_json_schema(by_alias=True)
    assert schema["additionalProperties"] is False
    assert "blocks" in schema["required"]
