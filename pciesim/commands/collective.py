"""``pciesim collective``: how long a collective takes on a box, by size and algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from pciesim.commands._group import group_timer
from pciesim.commands._options import NcclVariables, Overlay
from pciesim.commands.predict import Evaluator
from pciesim.errors import InputError, UnknownName

__all__ = ["app", "parse_sizes"]

EXAMPLES = """\b
Examples:
  pciesim collective all_reduce --topo rtx6000x8
  pciesim collective all_reduce --topo rtx6000x8 --gpus 0-3 --bytes 1KiB:64MiB:x2 --algorithm nccl,oneshot-pull
  pciesim collective all_to_all --topo rtx6000x8_2switch --bytes 64KiB,1MiB --skew 2 --json
  pciesim collective all_reduce --topo h200x2_shm --algorithm all --plot all_reduce.svg
"""
_MOST_SIZES: Final = 200

app = typer.Typer(rich_markup_mode=None, add_completion=False)


def parse_sizes(text: str) -> list[int]:
    """``'1KiB:64MiB:x2'`` or ``'8KiB,64KiB'`` -> bytes, each size once. Raises InputError when it is neither."""
    from pciesim.units import parse_bytes

    def whole(part: str) -> int:
        value = parse_bytes(part, where="--bytes")
        if value != int(value):
            raise InputError(f"--bytes '{part}' is not a whole number of bytes")
        return int(value)

    sizes: list[int] = []
    for item in text.split(","):
        parts = [part.strip() for part in item.split(":")]
        if len(parts) == 1:
            sizes.append(whole(parts[0]))
            continue
        factor = parts[2] if len(parts) == 3 else "x2"
        if len(parts) > 3 or not factor.startswith("x"):
            raise InputError(f"--bytes '{item}' is no range; write it like '1KiB:64MiB:x2'")
        try:
            step = float(factor[1:])
        except ValueError:
            step = 0.0
        if step <= 1:
            raise InputError(f"--bytes '{item}': the factor '{factor}' must be a number above 1, as in x2")
        first, last = whole(parts[0]), whole(parts[1])
        if not 0 < first <= last:
            raise InputError(f"--bytes '{item}': the range must begin above 0 and end no lower than it begins")
        size = float(first)
        while size <= last * (1 + 1e-12) and len(sizes) <= _MOST_SIZES:
            sizes.append(round(size))
            size *= step
    if len(sizes) > _MOST_SIZES:
        raise InputError(f"--bytes '{text}' has more than {_MOST_SIZES} sizes")
    return sorted(set(sizes))


@app.command(epilog=EXAMPLES)
def collective(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="COLLECTIVE", help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_recv."
        ),
    ],
    topo: Annotated[
        str,
        typer.Option(
            metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', as a file or the name of a shipped one."
        ),
    ],
    gpus: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="GPUs in rank order, as in 0,1,2,3 or 0-3.", show_default="all"),
    ] = None,
    sizes: Annotated[
        str,
        typer.Option("--bytes", metavar="SIZES", help="What each rank passes in: 8KiB,64KiB or 1KiB:64MiB:x2."),
    ] = "1KiB:16MiB:x4",
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Names of algorithms, or all.", show_default="the usual ones"),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME", help="Calibrated profile, as a file or a shipped name.", show_default="by GPU"
        ),
    ] = None,
    evaluator: Annotated[Evaluator, typer.Option(help="Simulate, or use the closed form.")] = Evaluator.SIMULATE,
    skew: Annotated[
        float, typer.Option(min=0.0, metavar="X", help="all_to_all: rank 0 is sent X times the mean.")
    ] = 1.0,
    overlay: Overlay = None,
    nccl: NcclVariables = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (see 'pciesim schema collective').")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw latency by size (.svg, .png, .pdf).", show_default=False)
    ] = None,
) -> None:
    """Predict a collective's latency and bandwidth by size and algorithm, and say which is fastest where."""
    from pciesim.collective_sweep import DEFAULT_ALGORITHMS, known, sweep
    from pciesim.schedule import CollectiveKind

    if kind not in list(CollectiveKind):
        raise UnknownName("collective", kind, list(CollectiveKind))
    wanted = CollectiveKind(kind)
    if skew != 1.0 and wanted is not CollectiveKind.ALL_TO_ALL:
        raise InputError(f"--skew is for all_to_all; the ranks of {kind} have equal loads")
    timer = group_timer(topo=topo, gpus=gpus, profile=profile, evaluator=evaluator.value, overlay=overlay, nccl=nccl)
    names = [name.strip() for name in algorithm.split(",")] if algorithm else DEFAULT_ALGORITHMS[wanted]
    result = sweep(timer, wanted, parse_sizes(sizes), known(names, wanted), skew=skew)
    if plot is not None:
        from pciesim.reports.collective_plot import plot_sweep

        plot_sweep(result, plot)
    if json:
        from pciesim.reports.collective_json import to_json

        typer.echo(to_json(result))
    else:
        from pciesim.reports.collective_text import to_text

        typer.echo(to_text(result), nl=False)
