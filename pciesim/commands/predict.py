"""``pciesim predict``: what a box will do with a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pciesim.errors import InputError

__all__ = ["app", "parse_assignments", "parse_gpus"]

EXAMPLES = """\b
Examples:
  pciesim predict --topo rtx6000x8 --model qwen35_397b
  pciesim predict --topo rtx6000x8 --model qwen35_397b --tp 4 --gpus 0-3 --json
  pciesim predict --topo my_box.txt --overlay my_box.yaml --model qwen35_397b
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Evaluator(StrEnum):
    """How the time of a step is found."""

    SIMULATE = "simulate"
    ESTIMATE = "estimate"


def parse_gpus(text: str) -> tuple[int, ...]:
    """``'0-3,6'`` -> (0, 1, 2, 3, 6). Raises InputError when it is not a list of distinct GPU numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise InputError(f"--gpus '{text}' is not a list of GPU numbers; write it like '0,1,2,3' or '0-3,6'")
        if dash and int(last) < int(first):
            raise InputError(f"--gpus '{text}': the range '{part.strip()}' runs backwards")
        found.extend(range(int(first), int(last or first) + 1))
    if len(set(found)) < len(found):
        raise InputError(f"--gpus '{text}' names a GPU twice")
    return tuple(found)


def parse_assignments(option: str, texts: list[str]) -> dict[str, str]:
    """``['NCCL_ALGO=Ring']`` -> {'NCCL_ALGO': 'Ring'}. Raises InputError for anything that is not KEY=VALUE."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise InputError(f"{option} '{text}' is not KEY=VALUE; write it like '{option} NCCL_ALGO=Ring'")
        if key in found:
            raise InputError(f"{option} sets {key} twice")
        found[key] = value
    return found


@app.command(epilog=EXAMPLES)
def predict(
    topo: Annotated[
        str,
        typer.Option(
            metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', as a file or the name of a shipped one."
        ),
    ],
    model: Annotated[
        str, typer.Option(metavar="FILE|NAME", help="Model description, as a file or the name of a shipped one.")
    ],
    tp: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tensor-parallel degree.", show_default="all GPUs of the file"),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Sequences decoded together.")] = 1,
    context: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens already in the KV cache of each sequence.")
    ] = 1024,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="GPUs to use, as in 0,1,2,3 or 0-3.", show_default="chosen by distance"),
    ] = None,
    engine: Annotated[str, typer.Option(metavar="NAME", help="Serving engine whose schedule is followed.")] = "sglang",
    allreduce: Annotated[
        str, typer.Option(metavar="NAME", help="All-reduce algorithm, or auto for the engine's own choice.")
    ] = "auto",
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Calibrated profile, as a file or a shipped name.",
            show_default="by GPU and wiring",
        ),
    ] = None,
    evaluator: Annotated[Evaluator, typer.Option(help="Simulate the step, or use the closed form.")] = (
        Evaluator.SIMULATE
    ),
    overlay: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML that states what the matrix cannot show.", show_default="the file beside --topo"
        ),
    ] = None,
    nccl: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="NCCL variable, as in NCCL_P2P_LEVEL=SYS. Can be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (see 'pciesim schema prediction').")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw where the step goes (.svg, .png, .pdf).")
    ] = None,
) -> None:
    """Predict the latency of a decode step, and say where the time goes."""
    from pciesim.api import predict as predict_step

    prediction = predict_step(
        topo=topo,
        model=model,
        tp=tp,
        batch=batch,
        context=context,
        gpus=None if gpus is None else parse_gpus(gpus),
        engine=engine,
        allreduce=allreduce,
        profile=profile,
        evaluator=evaluator.value,
        overlay=overlay,
        nccl=parse_assignments("--nccl", nccl or []),
    )
    if plot is not None:
        from pciesim.reports.prediction_plot import plot_prediction

        plot_prediction(prediction, plot)
    if json:
        from pciesim.reports.prediction_json import to_json

        typer.echo(to_json(prediction))
    else:
        from pciesim.reports.prediction_text import print_prediction

        print_prediction(prediction)
