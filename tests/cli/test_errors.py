"""What becomes of an error: its exit code, and one line on stderr."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable

import pytest

from pciesim.errors import CalibrationError, Infeasible, InputError, UnknownName
from pciesim.prediction import Prediction
from tests.cli.conftest import Outcome
from tests.support.predictions import a_prediction

Run = Callable[..., Outcome]
ASK = ("predict", "--topo", "a_box", "--model", "a_model")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A fake ``pciesim.api``: answers with ``answer['with']``, or raises it; remembers what it was asked."""
    state: dict[str, object] = {"with": a_prediction()}

    def predict(**asked: object) -> Prediction:
        state["asked"] = asked
        if isinstance(state["with"], BaseException):
            raise state["with"]
        assert isinstance(state["with"], Prediction)
        return state["with"]

    fake = types.ModuleType("pciesim.api")
    fake.predict = predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pciesim.api", fake)
    monkeypatch.setattr("pciesim.api", fake, raising=False)
    return state


@pytest.mark.usefixtures("answer")
def test_the_answer_goes_to_stdout(pciesim: Run) -> None:
    done = pciesim(*ASK)
    assert (done.code, done.err) == (0, "")
    assert "14.0 ms a step" in done.out


def test_defaults_reach_the_library(pciesim: Run, answer: dict[str, object]) -> None:
    pciesim(*ASK)
    assert answer["asked"] == {
        "topo": "a_box", "model": "a_model", "tp": None, "batch": 1, "context": None, "gpus": None,
        "engine": "sglang", "allreduce": "auto", "profile": None, "evaluator": "simulate", "overlay": None, "nccl": {},
        "phase": "decode", "prompt": None, "chunk": None, "ep": 1, "dp": 1, "pp": 1, "attention_dp": 1, "options": {},
        "layers": False, "kernels": "shipped", "skew": 1.0, "strategies": {}, "hypothetical": False,
    }  # fmt: skip


def test_options_reach_the_library(pciesim: Run, answer: dict[str, object]) -> None:
    done = pciesim(
        *ASK, "--gpus", "0-2,5", "--nccl", "NCCL_ALGO=Ring", "--nccl", "NCCL_PROTO=LL", "--evaluator", "estimate"
    )
    assert done.code == 0
    asked = answer["asked"]
    assert isinstance(asked, dict)
    assert asked["gpus"] == (0, 1, 2, 5)
    assert asked["nccl"] == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert asked["evaluator"] == "estimate"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("is a binary file, expected text", where="box.txt"), 2, "box.txt: is a binary file, expected text"),
        (UnknownName("engine", "sglan", ["sglang", "vllm"]), 2,
         "unknown engine 'sglan'; did you mean 'sglang'? (valid: sglang, vllm)"),
        (Infeasible("needs 3 GB more\nthan there is"), 1, "needs 3 GB more than there is"),
        (CalibrationError("profile 'x' has no parameter 'y'"), 3, "profile 'x' has no parameter 'y'"),
    ],
)  # fmt: skip
def test_expected_errors(pciesim: Run, answer: dict[str, object], error: Exception, code: int, line: str) -> None:
    answer["with"] = error
    done = pciesim(*ASK)
    assert done.code == code
    assert done.one_line() == line


def test_a_bug_keeps_its_traceback(pciesim: Run, answer: dict[str, object]) -> None:
    answer["with"] = ZeroDivisionError("division by zero")
    done = pciesim(*ASK)
    assert done.code == 70
    assert "Traceback" in done.err
    assert "ZeroDivisionError: division by zero" in done.err
    assert done.err.splitlines()[-1].startswith("pciesim: error: this is a bug in pciesim: please report it")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict"], "missing option '--topo'"),
        (["predct"], "no such command 'predct'. Did you mean 'predict'"),
        (["--nonsense"], "no such option: --nonsense"),
        ([*ASK, "--batches", "3"], "no such option: --batches"),
        ([*ASK, "--tp", "eight"], "'--tp'"),
        ([*ASK, "--tp", "0"], "'--tp'"),
        ([*ASK, "--batch", "-1"], "'--batch'"),
        ([*ASK, "--evaluator", "guess"], "'guess' is not one of 'simulate', 'estimate'"),
        ([*ASK, "--gpus", "0,x"], "--gpus '0,x' is not a list of GPU numbers"),
        ([*ASK, "--gpus", "3-1"], "runs backwards"),
        ([*ASK, "--gpus", "0,0-1"], "names a GPU twice"),
        ([*ASK, "--nccl", "NCCL_ALGO"], "--nccl 'NCCL_ALGO' is not KEY=VALUE"),
        ([*ASK, "--nccl", "NCCL_ALGO=Ring", "--nccl", "NCCL_ALGO=Tree"], "sets NCCL_ALGO twice"),
        (["schema", "topologie"], "unknown schema 'topologie'; did you mean 'topology'?"),
    ],
)
@pytest.mark.usefixtures("answer")
def test_bad_usage(pciesim: Run, words: list[str], said: str) -> None:
    done = pciesim(*words)
    assert done.code == 2
    assert said in done.one_line()


def test_no_arguments_show_the_help(pciesim: Run) -> None:
    bare, asked = pciesim(), pciesim("--help")
    assert bare == asked
    assert bare.code == 0
    assert "pciesim predict --topo rtx6000x8" in bare.out


def test_a_group_without_a_command_shows_its_help(pciesim: Run) -> None:
    done = pciesim("model")
    assert (done.code, done.err) == (0, "")
    assert "show" in done.out


@pytest.mark.parametrize("command", ["predict", "schema"])
def test_help_shows_an_example(pciesim: Run, command: str) -> None:
    done = pciesim(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"pciesim {command} " in done.out.partition("Example")[2]


def test_version(pciesim: Run) -> None:
    from pciesim import __version__

    assert pciesim("--version").out == f"pciesim {__version__}\n"


# -- in a process of its own ----------------------------------------------------------------------------------------


def start(code: str) -> subprocess.Popen[bytes]:
    """A pciesim whose library is replaced by a snippet that defines ``predict``."""
    fake = (
        "import sys, types\n"
        f"{code}\n"
        "import pciesim\n"
        "pciesim.api = sys.modules['pciesim.api'] = types.SimpleNamespace(predict=predict)\n"
        "from pciesim.cli import main\n"
        f"sys.argv = ['pciesim', *{list(ASK)!r}]\n"
        "main()\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", fake], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_control_c_ends_quietly() -> None:
    process = start("import time\ndef predict(**asked):\n    print('ready', file=sys.stderr)\n    time.sleep(30)")
    assert process.stderr is not None
    assert process.stderr.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_reader_that_leaves_is_no_error() -> None:
    process = start("from tests.support.predictions import a_prediction\ndef predict(**asked): return a_prediction()")
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (141, b"")


def test_colour_only_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich decides; this holds the decision in place: NO_COLOR wins over a terminal that could."""
    import io

    from rich.console import Console

    from pciesim.reports.prediction_text import render

    def shown() -> str:
        console = Console(file=io.StringIO(), force_terminal=True, width=100)
        with console.capture() as capture:
            console.print(render(a_prediction()))
        return capture.get()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[36m" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in shown()
