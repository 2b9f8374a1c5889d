"""``pciesim recommend``: what to do with this box and this model."""

from __future__ import annotations

from typing import Annotated

import typer

from pciesim.commands.predict import parse_assignments

__all__ = ["app"]

EXAMPLES = """\b
Examples:
  pciesim recommend --topo rtx6000x8 --model qwen35_397b
  pciesim recommend --topo rtx6000x8 --model qwen35_397b --objective throughput --concurrency 64 --max-itl 40ms
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=EXAMPLES)
def recommend(
    topo: Annotated[str, typer.Option(metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', or a shipped name.")],
    model: Annotated[str, typer.Option(metavar="FILE|NAME", help="Model description, or a shipped name.")],
    objective: Annotated[str, typer.Option(metavar="NAME", help="latency or throughput.")] = "latency",
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Sequences served at the same time.")] = 1,
    max_itl: Annotated[
        str, typer.Option(metavar="TIME", help="Longest time between two tokens of a user, as in 20ms.")
    ] = "",
    fix: Annotated[str, typer.Option(metavar="AXIS=V,...", help="Choices that are not up for discussion.")] = "",
    engine: Annotated[str, typer.Option(metavar="NAME", help="Serving engine.")] = "sglang",
    context: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens in the KV cache of each sequence.")] = 1024,
    hypothetical: Annotated[
        bool, typer.Option("--hypothetical", help="Try strategies that this box or engine refuses, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recommend a few configurations, with their switches, their gains, and what is left."""
    from pciesim.errors import Infeasible
    from pciesim.units import MS, parse_seconds
    from pciesim.whatif.advising import recommend as find_advice

    limit = parse_seconds(max_itl, where="--max-itl") if max_itl else 0.0
    fixed = parse_assignments("--fix", fix.split(",") if fix else [])
    advice = find_advice(
        topo=topo,
        model=model,
        fixed={"engine": engine, "context": str(context), **fixed},
        objective=objective,
        concurrency=concurrency,
        limit=limit,
        hypothetical=hypothetical,
    )
    if json:
        from pciesim.reports.recommend_json import advice_json

        typer.echo(advice_json(advice))
    else:
        from pciesim.reports.recommend_text import advice_text

        typer.echo(advice_text(advice), nl=False)
    if not advice.met:
        raise Infeasible(
            f"no configuration of this engine serves a token in {limit / MS:.3g} ms; the best takes "
            f"{advice.best.latency / MS:.2f} ms"
        )
