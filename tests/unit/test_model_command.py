"""``pciesim model``: exit codes, text, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pciesim.cli import run


def test_show_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model", "show", "qwen35_397b", "--tp", "8", "--context", "131072", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == "pciesim/model-summary/1"
    assert shown["parameters"]["total"] == 396_346_350_336
    assert shown["parameters"]["active"] == 17_349_040_896
    assert shown["all_reduce_count"] == 121
    assert [(share["tp"], share["kv_bytes_per_token"]) for share in shown["per_gpu"]] == [(8, 7680)]
    assert sum(module["parameters"] for module in shown["modules"] if module["module"] != "mtp") == 396_346_350_336


def test_show_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model", "show", "gpt_oss_120b"]) == 0
    shown = capsys.readouterr().out
    assert "116.83 B parameters, 5.71 B active" in shown
    assert "18 x attention (window 128) + experts" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_list_names_every_shipped_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["models"]
    names = {path.stem for path in (Path(__file__).parents[2] / "models").glob("*.yaml")}
    assert {entry["id"] for entry in listed} == names
    assert run(["model", "list"]) == 0
    assert "kimi_k25" in capsys.readouterr().out


def test_import_writes_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8,
        "num_hidden_layers": 4, "vocab_size": 1000,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    output = tmp_path / "tiny.yaml"
    command = ["model", "import", str(tmp_path), "--name", "Tiny", "-o", str(output)]
    assert run(command) == 0
    assert run(command) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["model", "show", str(output)]) == 0
    assert "Tiny" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "qwen35_379b"], "did you mean 'qwen35_397b'?"),
        (["show", "qwen35_397b", "--tp", "3"], "cannot run at TP 3, EP 1: TP 3 does not divide the 32 query heads"),
        (["show", "qwen35_397b", "--ep", "2"], "--ep needs --tp"),
        (["import", "models/no_such_file.json"], "cannot be read"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model", *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
