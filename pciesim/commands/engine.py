"""``pciesim engine``: what a serving engine decides on a box, and why; which engines there are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@app.command(epilog="Example:  pciesim engine explain --topo rtx6000x8 --model qwen35_397b")
def explain(
    topo: Annotated[str, typer.Option(metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m'.")],
    model: Annotated[str, typer.Option(metavar="FILE|NAME", help="Model description.")],
    engine: Annotated[str, typer.Option(metavar="FILE|NAME", help="Engine, or the path of an engine file.")] = "sglang",
    tp: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tensor-parallel degree.", show_default="all GPUs")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Sequences decoded together.")] = 1,
    ep: Annotated[int, typer.Option(min=1, metavar="N", help="Expert-parallel degree; divides --tp.")] = 1,
    pp: Annotated[int, typer.Option(min=1, metavar="N", help="Pipeline stages.")] = 1,
    attention_dp: Annotated[
        int, typer.Option(min=1, metavar="N", help="Groups of a replica that attend to different sequences.")
    ] = 1,
    engine_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY[=VALUE]", help="Flag or variable the engine is started with. Can be repeated."),
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML that states what the matrix cannot show.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which backend serves every collective of a decode step, by which rule, and why not an earlier one."""
    from pciesim.api import load_scenario
    from pciesim.commands.predict import parse_options
    from pciesim.reports.engine_explain import PIPED_WIDTH, explain_json, explain_text
    from pciesim.schedule import explain as explained
    from pciesim.step import decision_for, schedule_of

    scenario, _ = load_scenario(
        topo=topo, model=model, tp=tp, batch=batch, context=1, gpus=None, engine=engine, allreduce="auto",
        profile=None, overlay=overlay, nccl=None, ep=ep, pp=pp, attention_dp=attention_dp,
        options=parse_options("--engine-option", engine_option or []),
    )  # fmt: skip
    found = explained(schedule_of(scenario), lambda op: decision_for(scenario, op))
    width = shutil.get_terminal_size((PIPED_WIDTH, 0)).columns
    typer.echo((explain_json(scenario, found) if json else explain_text(scenario, found, width)).rstrip())


@app.command("list")
def list_engines() -> None:
    """List the engines and versions that ship with pciesim."""
    from pciesim.formats.engine_yaml import engine_names, load_engine
    from pciesim.reports.engine_explain import PIPED_WIDTH, engine_list_text

    width = shutil.get_terminal_size((PIPED_WIDTH, 0)).columns
    typer.echo(engine_list_text({name: load_engine(name) for name in engine_names()}, width).rstrip())
