"""``pciesim topo``: read, draw, check and convert the wiring of a box."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)

_USUAL_GPU: Final = "rtx_pro_6000"  # whose profile is shown for a box of unknown GPUs

Topology = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', an NCCL topology XML, or a shipped name."
    ),
]
Overlay = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML that states what the matrix cannot show.", show_default="the file beside"),
]


@app.command(epilog="Example:  pciesim topo show rtx6000x8 --plot box.svg")
def show(
    topology: Topology,
    overlay: Overlay = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="FILE|NAME", help="Profile whose latencies are shown.", show_default="by GPU"),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the box into this file as well.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a box: tree, matrix, what every pair costs, what was assumed."""
    from pciesim.api import load_profile
    from pciesim.formats.catalogue import gpu_type
    from pciesim.formats.shipped import find_input
    from pciesim.formats.topology import load_fabric
    from pciesim.physics import RouteCosts

    fabric = load_fabric(find_input("topologies", topology), overlay)
    gpu = gpu_type(fabric.gpu_model) if fabric.gpu_model else None
    found = load_profile(profile, gpu or gpu_type(_USUAL_GPU))
    costs = RouteCosts.of(found)
    if plot is not None:
        from pciesim.reports.topology_plot import write_svg

        write_svg(fabric, plot, gpu_name=gpu.name if gpu else "")
        typer.echo(f"drew {plot}", err=True)
    if json:
        from pciesim.reports.topology_json import to_json

        typer.echo(to_json(fabric, costs, profile=found.name))
        return
    from pciesim.reports.topology_text import print_fabric

    print_fabric(fabric, costs, profile=found.name, gpu_name=gpu.name if gpu else "")
