"""``pciesim predict``: what a box will do with a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pciesim.commands._options import NcclVariables, Overlay
from pciesim.errors import InputError

__all__ = ["app", "parse_assignments", "parse_gpus", "parse_options"]

EXAMPLES = """\b
Examples:
  pciesim predict --topo rtx6000x8 --model qwen35_397b
  pciesim predict --topo rtx6000x8 --model qwen35_397b --tp 4 --gpus 0-3 --json
  pciesim predict --topo rtx6000x8 --model qwen35_397b --phase prefill --prompt 4096
  pciesim predict --topo rtx6000x8 --model qwen35_397b --with spec=mtp:3 --with allreduce=pcie-ipc
  pciesim predict --topo my_box.txt --overlay my_box.yaml --model qwen35_397b
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Phase(StrEnum):
    """What is predicted."""

    DECODE = "decode"
    PREFILL = "prefill"


class Kernels(StrEnum):
    """Where kernel times come from."""

    SHIPPED = "shipped"
    AICONFIGURATOR = "aiconfigurator"


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


def parse_options(option: str, texts: list[str]) -> dict[str, str]:
    """As :func:`parse_assignments`, a name alone being switched on: ``['--enable-mscclpp']``."""
    return parse_assignments(option, [text if "=" in text else f"{text}=1" for text in texts])


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
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Tokens already in the KV cache of each sequence.",
            show_default="1024; a prompt: 0",
        ),
    ] = None,
    phase: Annotated[Phase, typer.Option(help="A decode step, or the time to a prompt's first token.")] = Phase.DECODE,
    prompt: Annotated[int | None, typer.Option(min=1, metavar="N", help="Prompt tokens of each sequence.")] = None,
    chunk: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Prompt tokens of one pass.", show_default="the engine's own"),
    ] = None,
    ep: Annotated[int, typer.Option(min=1, metavar="N", help="Expert-parallel degree; divides --tp.")] = 1,
    pp: Annotated[int, typer.Option(min=1, metavar="N", help="Pipeline stages of --tp GPUs each.")] = 1,
    dp: Annotated[int, typer.Option(min=1, metavar="N", help="Replicas of --tp x --pp GPUs each.")] = 1,
    attention_dp: Annotated[
        int, typer.Option(min=1, metavar="N", help="Groups of a replica that attend to different sequences.")
    ] = 1,
    skew: Annotated[
        float,
        typer.Option(
            min=0, max=3, metavar="S", help="Spread of the routed experts' popularity (log-normal); 0: all alike."
        ),
    ] = 1.0,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="GPUs to use, as in 0,1,2,3 or 0-3.", show_default="chosen by distance"),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="FILE|NAME", help="Serving engine and version, as a file or one of 'pciesim engine list'."
        ),
    ] = "sglang",
    engine_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=VALUE]",
            help="Flag or variable of the engine; 'pciesim engine explain' lists them. Can be repeated.",
        ),
    ] = None,
    allreduce: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="All-reduce algorithm, CSV of your own (bytes,latency_us), or auto: the engine's choice.",
        ),
    ] = "auto",
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Calibrated profile, as a file or a shipped name.",
            show_default="by GPU and wiring",
        ),
    ] = None,
    kernels: Annotated[
        Kernels, typer.Option(help="Kernel tables: shipped, or those of the optional library for this GPU.")
    ] = Kernels.SHIPPED,
    evaluator: Annotated[Evaluator, typer.Option(help="Simulate the step, or use the closed form.")] = (
        Evaluator.SIMULATE
    ),
    overlay: Overlay = None,
    nccl: NcclVariables = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="AXIS=VALUE",
            help="Strategy to apply, as in spec=mtp:3; 'pciesim compare --axes' lists them. Can be repeated.",
        ),
    ] = None,
    hypothetical: Annotated[
        bool, typer.Option("--hypothetical", help="Apply strategies that this box or engine refuses.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (see 'pciesim schema prediction').")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw where the step goes (.svg, .png, .pdf).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the step as a trace for Perfetto (.json).")
    ] = None,
    layers_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every op of the schedule (.json, .csv).")
    ] = None,
) -> None:
    """Predict the latency of a decode step or of a prompt, and say where the time goes."""
    from pciesim.api import predict as predict_step

    strategies = parse_assignments("--with", strategy or [])
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
        phase=phase.value,
        prompt=prompt,
        chunk=chunk,
        ep=ep,
        dp=dp,
        pp=pp,
        attention_dp=attention_dp,
        options=parse_options("--engine-option", engine_option or []),
        layers=layers_out is not None,
        kernels=kernels.value,
        skew=skew,
        strategies=strategies,
        hypothetical=hypothetical,
    )
    if trace is not None:
        from pciesim.api import load_scenario
        from pciesim.errors import InputError
        from pciesim.formats.files import write_text
        from pciesim.reports.trace_json import trace_json
        from pciesim.step import evaluate_step, timer_of
        from pciesim.strategies.choice import apply_choices
        from pciesim.workload import Workload

        if phase is not Phase.DECODE:
            raise InputError("--trace shows a decode step; leave --phase prefill out")
        scenario, _ = load_scenario(
            topo=topo, model=model, tp=tp, batch=batch, context=prediction.request.context,
            gpus=None if gpus is None else parse_gpus(gpus), engine=engine, allreduce=allreduce, profile=profile,
            overlay=overlay, nccl=parse_assignments("--nccl", nccl or []), ep=ep, dp=dp, pp=pp,
            attention_dp=attention_dp, options=parse_options("--engine-option", engine_option or []),
            kernels=kernels.value, work=Workload(batch=batch, context=prediction.request.context, skew=skew),
        )  # fmt: skip
        scenario = apply_choices(scenario, strategies.items(), hypothetical=hypothetical).scenario
        write_text(trace, trace_json(scenario, evaluate_step(scenario, timer_of(scenario, evaluator.value))))
    if layers_out is not None:
        from pciesim.reports.engine_layers import write_layers

        write_layers(prediction, layers_out)
    if plot is not None:
        from pciesim.reports.prediction_plot import plot_prediction

        plot_prediction(prediction, plot)
    if json:
        from pciesim.reports.prediction_json import to_json

        typer.echo(to_json(prediction))
    else:
        from pciesim.reports.prediction_text import print_prediction

        print_prediction(prediction)
