"""``pciesim sweep``: a grid of configurations into a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pciesim.commands.predict import Evaluator, parse_assignments

__all__ = ["app"]

EXAMPLES = """\b
Examples:
  pciesim sweep --topo rtx6000x8 --model qwen35_397b --vary tp=4,8 --vary batch=1,8,64 -o grid.csv
  pciesim sweep --topo rtx6000x8 --model qwen35_397b --vary tp=4,8 --vary batch=1,8,64,128 -o grid.csv --resume
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=EXAMPLES)
def sweep(
    topo: Annotated[str, typer.Option(metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', or a shipped name.")],
    model: Annotated[str, typer.Option(metavar="FILE|NAME", help="Model description, or a shipped name.")],
    vary: Annotated[
        list[str], typer.Option(metavar="AXIS=V,V", help="An axis and its values; every combination is tried.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Table to write: .csv or .parquet.")],
    baseline: Annotated[str, typer.Option(metavar="AXIS=V,...", help="Choices that hold for all.")] = "",
    evaluator: Annotated[Evaluator, typer.Option(help="The closed form, or simulate every collective.")] = (
        Evaluator.ESTIMATE
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Keep the rows that the file has, add the others.")] = False,
    jobs: Annotated[int, typer.Option(min=0, metavar="N", help="Processes.", show_default="one a core")] = 0,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Dask scheduler to run on (needs the extra pciesim[dask]).")
    ] = "",
    confirm: Annotated[
        int, typer.Option(min=0, metavar="N", help="Simulate the N fastest again, and print them.")
    ] = 10,
    hypothetical: Annotated[
        bool, typer.Option("--hypothetical", help="Apply strategies that this box or engine refuses.")
    ] = False,
) -> None:
    """Estimate every combination of choices, as a table; the fastest are simulated again."""
    from pciesim.errors import InputError
    from pciesim.reports.sweep_csv import SweepWriter, done_already, write_parquet
    from pciesim.reports.sweep_text import confirmed_text, progress_bar
    from pciesim.whatif.loading import parse_vary
    from pciesim.whatif.sweeping import COLUMNS, SweepRow, sweep_grid
    from pciesim.whatif.sweeping import confirm as confirm_rows
    from pciesim.whatif.sweeping import sweep as sweep_rows

    if output.suffix not in (".csv", ".parquet"):
        raise InputError("the table is written as .csv or .parquet", where=str(output))
    fixed = parse_assignments("--baseline", baseline.split(",") if baseline else [])
    configurations = sweep_grid(topo=topo, model=model, vary=parse_vary(vary), fixed=fixed)
    axes = tuple(axis for axis, _ in configurations[0])
    if output.exists() and not resume:
        raise InputError("is there already: give --resume to add what it lacks, or another name", where=str(output))
    if output.suffix == ".parquet":
        write_parquet(output, axes, COLUMNS, [])  # says so at once where it cannot be written
    done = done_already(output, axes) if output.suffix == ".csv" else set()
    waiting = [each for each in configurations if tuple(value for _, value in each) not in done]
    rows: list[SweepRow] = []
    writer = SweepWriter(output, axes, COLUMNS) if output.suffix == ".csv" else None
    try:
        with progress_bar(len(waiting)) as advance:
            found = sweep_rows(
                waiting, evaluator=evaluator.value, hypothetical=hypothetical, jobs=jobs, scheduler=scheduler,
                progress=advance,
            )  # fmt: skip
            for row in found:
                rows.append(row)
                if writer is not None:
                    writer.add(row.configuration, row.values)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        write_parquet(output, axes, COLUMNS, [(row.configuration, row.values) for row in rows])
    able = [row for row in rows if not row.refused]
    typer.echo(f"{len(rows)} configurations in {output}, {len(rows) - len(able)} of them cannot run" + (
        f"; {len(done)} were there already" if done else ""))  # fmt: skip
    if able and confirm and evaluator is Evaluator.ESTIMATE:
        varied = [axis for axis in axes if axis not in ("topo", "model", *fixed)]
        typer.echo(confirmed_text(able, confirm_rows(able, count=confirm, hypothetical=hypothetical), varied))
