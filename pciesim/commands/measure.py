"""``pciesim measure``: measures the GPUs of this machine into rows that ``calibrate fit`` reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

EXAMPLES = """\b
Examples:
  pciesim measure --out runs/mybox
  pciesim measure --out runs/mybox --full
  pciesim measure --out runs/mybox --only nccl_sizes,oneshot_host --gpus 0,1
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=EXAMPLES)
def measure(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the rows and the manifest go.")],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="About fifteen minutes, or about two.", show_default="--quick")
    ] = False,
    only: Annotated[str, typer.Option(metavar="NAMES", help="Experiments, comma-separated (default: all).")] = "",
    gpus: Annotated[str, typer.Option(metavar="INDEXES", help="GPUs, like 0,1 (default: all).")] = "",
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="SECONDS", help="Start nothing after this long.")
    ] = None,
) -> None:
    """Measure latencies, copies, collectives, kernels and decode steps of this machine.

    Checks first that peer-to-peer copies are right. Changes no setting of a GPU. Needs PyTorch
    (pip install 'pciesim[measure]'). Run the same command again to go on where it stopped.
    """
    from pciesim.measure.__main__ import main

    arguments = ["--out", str(out)]
    arguments += ["--full"] if full else []
    arguments += ["--only", only] if only else []
    arguments += ["--gpus", gpus] if gpus else []
    arguments += ["--time-limit", str(time_limit)] if time_limit is not None else []
    code = main(arguments)
    if code:
        sys.stdout.flush()
        raise typer.Exit(code)
