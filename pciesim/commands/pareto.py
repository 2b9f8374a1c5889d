"""``pciesim pareto``: speed of one user against throughput of the whole box."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pciesim.commands.predict import parse_assignments

__all__ = ["app"]

EXAMPLES = """\b
Examples:
  pciesim pareto --topo rtx6000x8 --model qwen35_397b --plot front.svg
  pciesim pareto --topo rtx6000x8 --model qwen35_397b --vary tp=4,8 --vary batch=1,4,16,64
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=EXAMPLES)
def pareto(
    topo: Annotated[str, typer.Option(metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', or a shipped name.")],
    model: Annotated[str, typer.Option(metavar="FILE|NAME", help="Model description, or a shipped name.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=V,V", help="Axes to try.", show_default="splits, all-reduces, batches"),
    ] = None,
    baseline: Annotated[str, typer.Option(metavar="AXIS=V,...", help="Choices that hold for all.")] = "",
    hypothetical: Annotated[
        bool, typer.Option("--hypothetical", help="Apply strategies that this box or engine refuses.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the front (.svg, .png, .pdf).")] = None,
) -> None:
    """Find the configurations that no other beats in both speeds."""
    from pciesim.reports.pareto_text import front_json, front_text
    from pciesim.whatif.advising import pareto as find_front
    from pciesim.whatif.loading import parse_vary

    front = find_front(
        topo=topo,
        model=model,
        fixed=parse_assignments("--baseline", baseline.split(",") if baseline else []),
        vary=parse_vary(vary or []),
        hypothetical=hypothetical,
    )
    if plot is not None:
        from pciesim.reports.pareto_plot import plot_front

        plot_front(front.title, front.outcomes, front.others, plot)
    typer.echo(front_json(front) if json else front_text(front), nl=json)
