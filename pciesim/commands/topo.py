"""``pciesim topo``: read, draw, check, convert and detect the wiring of a box."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pciesim.errors import ExitCode, InputError

if TYPE_CHECKING:
    from pciesim.formats.topology import LoadedTopology

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)

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
Also = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Another description of the same box: topo -p2p, nvidia-smi -q, lspci -vvv or -tv, NCCL XML. Repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(epilog="Example:  pciesim topo show rtx6000x8 --plot box.svg")
def show(
    topology: Topology,
    overlay: Overlay = None,
    also: Also = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="FILE|NAME", help="Profile whose latencies are shown.", show_default="by GPU"),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the box into this file as well.")] = None,
    json: Json = False,
) -> None:
    """Show a box: tree, matrix, what every pair costs, what was assumed."""
    from pciesim.api import box_profile
    from pciesim.formats.catalogue import gpu_type, host_type
    from pciesim.physics import RouteCosts

    loaded = _load(topology, overlay, also)
    fabric = loaded.fabric
    gpu = gpu_type(fabric.gpu_model) if fabric.gpu_model else None
    found = box_profile(fabric, profile)
    costs = RouteCosts.of(found)
    for each in loaded.disagreements:
        typer.echo(f"pciesim: warning: {each}", err=True)
    if plot is not None:
        from pciesim.reports.topology_plot import write_svg

        write_svg(fabric, plot, gpu_name=gpu.name if gpu else "")
    if json:
        from pciesim.reports.topology_json import to_json

        typer.echo(to_json(fabric, costs, profile=found.name))
    else:
        from pciesim.reports.topology_text import print_fabric

        cpu = host_type(fabric.host.cpu).name if fabric.host.cpu else ""
        print_fabric(fabric, costs, profile=found.name, gpu_name=gpu.name if gpu else "", cpu_name=cpu)


@app.command(epilog="Example:  pciesim topo check my_box.txt --also p2p.txt --also lspci.txt")
def check(topology: Topology, overlay: Overlay = None, also: Also = None) -> None:
    """Check a box: do its descriptions agree, and what is worth a look? Exit code 1 where they disagree."""
    from pciesim.formats.topology_check import findings

    loaded = _load(topology, overlay, also)
    fabric = loaded.fabric
    counts = f"{len(fabric.gpus)} GPUs, {len(fabric.links) // 2} links, {len(fabric.assumptions)} assumed"
    typer.echo(f"{fabric.name}: {counts}")
    for each in findings(fabric):
        typer.echo(f"  look: {each}")
    for assumption in fabric.assumptions:
        typer.echo(f"  assumed: {assumption.text}")
        typer.echo(f"    settle: {assumption.settle}")
    for disagreement in loaded.disagreements:
        typer.echo(f"  disagree: {disagreement}")
    if loaded.disagreements:
        raise typer.Exit(ExitCode.NO)


@app.command(epilog="Example:  pciesim topo convert my_box.txt my_box.xml")
def convert(
    topology: Topology,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.txt|FILE.xml", help="A matrix with an overlay beside it, or NCCL topology XML, by its name."
        ),
    ],
    overlay: Overlay = None,
    also: Also = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Turn a topology into NCCL's XML (for NCCL_TOPO_FILE), or into a matrix and an overlay."""
    from pciesim.formats.nccl_xml import write_nccl_xml
    from pciesim.formats.topology_render import render_overlay
    from pciesim.formats.topology_smi import render_matrix

    loaded = _load(topology, overlay, also)
    for each in loaded.disagreements:
        typer.echo(f"pciesim: warning: {each}", err=True)
    if target.suffix == ".xml":
        _write({target: write_nccl_xml(loaded.fabric)}, force)
    elif target.suffix == ".txt":  # what is known, not what was assumed: the assumptions stay assumptions
        beside = target.with_suffix(".yaml")
        _write({target: render_matrix(loaded.matrix), beside: render_overlay(loaded.overlay)}, force)
    else:
        raise InputError(f"'{target.name}' says no format; name it .txt (matrix and overlay) or .xml (NCCL)")


@app.command(epilog="Example:  sudo pciesim topo detect my_box.txt")
def detect(
    target: Annotated[Path, typer.Argument(metavar="FILE.txt", help="Where the matrix goes; the overlay goes beside.")],
    load: Annotated[
        bool, typer.Option(help="Keep the links busy while their speed is read: idle GPUs train down.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Describe the box at hand with nvidia-smi, lspci and lscpu (lspci needs root to show links)."""
    from contextlib import nullcontext

    from pciesim.formats.smi_load import busy_links
    from pciesim.formats.topology import assemble
    from pciesim.formats.topology_check import findings
    from pciesim.formats.topology_detect import detect as run_detection
    from pciesim.formats.topology_detect import run_tool
    from pciesim.formats.topology_render import render_overlay
    from pciesim.formats.topology_smi import parse_matrix

    if target.suffix != ".txt":
        raise InputError(f"'{target.name}' is the matrix; name it .txt")
    found = run_detection(run_tool, busy_links if load else nullcontext, name=target.stem)
    _write({target: found.text, target.with_suffix(".yaml"): render_overlay(found.overlay)}, force)
    fabric = assemble(parse_matrix(found.text, source=str(target)), found.overlay, name=target.stem)
    for line in (*found.notes, *findings(fabric), *map(str, found.disagreements)):
        typer.echo(f"  look: {line}")


def _load(topology: str, overlay: Path | None, also: list[Path] | None) -> LoadedTopology:
    from pciesim.formats.shipped import find_input
    from pciesim.formats.topology import load_topology

    return load_topology(find_input("topologies", topology), overlay, also or [])


def _write(texts: dict[Path, str], force: bool) -> None:
    """Writes all or none, and says so. Raises InputError where a file exists or cannot be written."""
    for path in texts:
        if path.exists() and not force:
            raise InputError("exists; --force overwrites it", where=str(path))
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
        typer.echo(f"wrote {path}")
