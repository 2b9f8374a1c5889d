"""``pciesim nccl``: what NCCL chooses on a box, why, and the graph file and environment that mend a bad choice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pciesim.commands._group import group_timer
from pciesim.commands._options import NcclVariables, Overlay
from pciesim.commands.collective import parse_sizes
from pciesim.commands.predict import Evaluator
from pciesim.errors import InputError, UnknownName

__all__ = ["app"]

EXPLAIN_EXAMPLES = """\b
Examples:
  pciesim nccl explain --topo rtx6000x8
  pciesim nccl explain --topo rtx6000x8 --nccl NCCL_GRAPH_FILE=0 --bytes 8KiB,64KiB,1MiB
"""
GRAPH_EXAMPLES = """\b
Examples:
  pciesim nccl graph --topo rtx6000x8 -o graph.xml
  pciesim nccl graph --topo rtx6000x8 --check graph.xml
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="What NCCL chooses, and why.")

Topo: TypeAlias = Annotated[
    str,
    typer.Option(metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', as a file or the name of a shipped one."),
]
Gpus: TypeAlias = Annotated[
    str | None, typer.Option(metavar="LIST", help="GPUs in rank order, as in 0-3.", show_default="all")
]
Sizes: TypeAlias = Annotated[
    str, typer.Option("--bytes", metavar="SIZES", help="What each rank passes in: 8KiB,64KiB or 1KiB:64MiB:x4.")
]
ProfileName: TypeAlias = Annotated[
    str | None, typer.Option(metavar="FILE|NAME", help="Calibrated profile.", show_default="by GPU")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(epilog=EXPLAIN_EXAMPLES)
def explain(
    topo: Topo,
    gpus: Gpus = None,
    kind: Annotated[str, typer.Option("--collective", metavar="NAME", help="The collective.")] = "all_reduce",
    sizes: Sizes = "1KiB:16MiB:x4",
    profile: ProfileName = None,
    evaluator: Annotated[Evaluator, typer.Option(help="Simulate, or use the closed form.")] = Evaluator.SIMULATE,
    overlay: Overlay = None,
    nccl: NcclVariables = None,
    json: Json = False,
) -> None:
    """Say which transport, ring, channels, algorithm and protocol NCCL takes at each size, and why."""
    from pciesim.nccl_explain import explain as explain_choice
    from pciesim.schedule import CollectiveKind

    if kind not in list(CollectiveKind):
        raise UnknownName("collective", kind, list(CollectiveKind))
    timer = group_timer(topo=topo, gpus=gpus, profile=profile, evaluator=evaluator.value, overlay=overlay, nccl=nccl)
    told = explain_choice(timer, CollectiveKind(kind), parse_sizes(sizes))
    if json:
        from pciesim.reports.nccl_json import explanation_json

        typer.echo(explanation_json(told))
    else:
        from pciesim.reports.nccl_text import explanation_text

        typer.echo(explanation_text(told), nl=False)


@app.command(epilog=GRAPH_EXAMPLES)
def graph(
    topo: Topo,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to write the file.", show_default=False)
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check this file instead of writing one.", show_default=False),
    ] = None,
    gpus: Gpus = None,
    sizes: Sizes = "8KiB:1MiB:x2",
    profile: ProfileName = None,
    overlay: Overlay = None,
    nccl: NcclVariables = None,
    json: Json = False,
) -> None:
    """Write and check an NCCL_GRAPH_FILE, and say which environment mends NCCL's choice and by how much."""
    from pciesim.formats.nccl_graph_xml import graph_text, read_graph
    from pciesim.nccl_explain import check_graph, graph_file, mend

    if (out is None) == (check is None):
        raise InputError("give one of --out FILE (write a graph file) and --check FILE (check one)")
    timer = group_timer(topo=topo, gpus=gpus, profile=profile, evaluator="simulate", overlay=overlay, nccl=nccl)
    if len(timer.gpus) < 2:
        raise InputError("a ring needs at least two GPUs")
    path = out or check
    assert path is not None
    if out is not None:
        found = graph_file(timer)
        try:
            out.write_text(graph_text(found), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", where=str(out)) from None
    found = read_graph(path)
    faults = check_graph(found, timer)
    remedy = None if check is not None else mend(timer, parse_sizes(sizes), path=str(path))
    if json:
        from pciesim.reports.nccl_json import graph_json

        typer.echo(graph_json(found, str(path), faults, remedy))
    else:
        from pciesim.reports.nccl_text import graph_report

        typer.echo(graph_report(found, str(path), faults, remedy, timer.fabric.name), nl=False)
    if faults:
        raise typer.Exit(1)
