"""``pciesim calibrate``: make a profile again from its recipe, and check that the shipped one is what its runs give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

EXAMPLES = """\b
Examples:
  pciesim calibrate refit calibration/recipes/rtx_pro_6000.yaml
  pciesim calibrate refit calibration/recipes/rtx_pro_6000.yaml --check
  pciesim calibrate accuracy
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Calibration and accuracy.")


@app.command(epilog=EXAMPLES)
def refit(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A file of calibration/recipes.")],
    runs: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the measurements are.")] = Path(
        "calibration/runs"
    ),
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", show_default="the shipped profile of the recipe's name"),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when the file would change.")] = False,
) -> None:
    """Fit a profile again from its runs. The same runs give the same file, byte for byte."""
    from pciesim.errors import CalibrationError
    from pciesim.formats.documents import read_text
    from pciesim.formats.files import write_text
    from pciesim.refit import refit as make

    result = make(recipe, runs)
    target = output or runs.parent / "profiles" / f"{result.profile.name}.yaml"
    for name in result.fit.unidentified:
        typer.echo(f"pciesim: warning: the data do not identify {name}", err=True)
    if check:
        if not target.is_file() or read_text(target) != result.text:
            raise CalibrationError(f"{target} is not what {recipe} gives; run it without --check")
        typer.echo(f"{target} is what its runs give")
        return
    write_text(target, result.text)
    typer.echo(f"wrote {target}")


@app.command(epilog=EXAMPLES)
def accuracy(
    runs: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the measurements are.")] = Path(
        "calibration/runs"
    ),
    page: Annotated[Path, typer.Option(metavar="FILE")] = Path("docs/accuracy.md"),
    readme: Annotated[Path, typer.Option(metavar="FILE")] = Path("README.md"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a table would change.")] = False,
) -> None:
    """Hold every prediction against its measurement and write the tables into the docs."""
    from pciesim.accuracy.document import accuracy_page, readme_table, replace_block
    from pciesim.errors import CalibrationError
    from pciesim.formats.documents import read_text
    from pciesim.formats.files import write_text

    for path, block in ((page, accuracy_page(runs)), (readme, readme_table(runs))):
        old = read_text(path)
        new = replace_block(old, block)
        if check and new != old:
            raise CalibrationError(f"{path} does not show the present accuracy; run 'pciesim calibrate accuracy'")
        if not check:
            write_text(path, new)
            typer.echo(f"wrote {path}")
