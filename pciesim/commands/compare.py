"""``pciesim compare``: what would change, and how sure is that."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pciesim.commands.predict import Evaluator, parse_assignments

__all__ = ["app", "parse_batches"]

EXAMPLES = """\b
Examples:
  pciesim compare --topo rtx6000x8 --model qwen35_397b --vary allreduce=nccl,oneshot-pull --vary tp=4,8
  pciesim compare --topo rtx6000x8 --model qwen35_397b --vary p2p=on,off --batch 1,64 --json
  pciesim compare --topo rtx6000x8 --model qwen35_397b --vary topo=rtx6000x8,rtx6000x8_2switch --plot step.svg

Axes: topo, overlay, model, engine, profile, gpus, tp, batch, context, and the strategies (pciesim compare --axes).
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


def parse_batches(text: str) -> tuple[int, ...]:
    """``'1,8,64'`` -> (1, 8, 64). Raises InputError."""
    from pciesim.errors import InputError

    found = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in found):
        raise InputError(f"--batch '{text}' is not a list of batch sizes; write it like '1,8,64'")
    return tuple(int(part) for part in found)


def _print_axes(wanted: bool) -> None:
    if wanted:
        from pciesim.reports.strategies_text import strategies_text

        typer.echo(strategies_text())
        raise typer.Exit


@app.command(epilog=EXAMPLES)
def compare(
    topo: Annotated[str, typer.Option(metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', or a shipped name.")],
    model: Annotated[str, typer.Option(metavar="FILE|NAME", help="Model description, or a shipped name.")],
    vary: Annotated[
        list[str], typer.Option(metavar="AXIS=V,V", help="An axis and its values; every combination is tried.")
    ],
    baseline: Annotated[
        str, typer.Option(metavar="AXIS=V,...", help="What to compare with.", show_default="first value of each axis")
    ] = "",
    batch: Annotated[str, typer.Option(metavar="LIST", help="Sequences decoded together, as in 1,8,64.")] = "1",
    evaluator: Annotated[Evaluator, typer.Option(help="Simulate every step, or use the closed form.")] = (
        Evaluator.SIMULATE
    ),
    hypothetical: Annotated[
        bool, typer.Option("--hypothetical", help="Apply strategies that this box or engine refuses, and say so.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the way from the baseline to the best (.svg, .png, .pdf)."),
    ] = None,
    _axes: Annotated[
        bool, typer.Option("--axes", help="List axes and strategies, and exit.", callback=_print_axes, is_eager=True)
    ] = False,
) -> None:
    """Compare configurations: step, rates, traversals, gain with interval, and why."""
    from pciesim.whatif.comparing import compare as compare_configurations
    from pciesim.whatif.loading import parse_vary

    comparisons = compare_configurations(
        topo=topo,
        model=model,
        vary=parse_vary(vary),
        baseline=parse_assignments("--baseline", baseline.split(",") if baseline else []),
        batches=parse_batches(batch),
        evaluator=evaluator.value,
        hypothetical=hypothetical,
    )
    if plot is not None:
        from pciesim.reports.compare_plot import plot_waterfall

        plot_waterfall(comparisons[0], plot)
    if json:
        from pciesim.reports.compare_json import comparisons_json

        typer.echo(comparisons_json(comparisons))
    else:
        from pciesim.reports.compare_text import print_comparisons

        print_comparisons(comparisons)
