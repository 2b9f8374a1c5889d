"""``pciesim calibrate``: profiles from measurements, from recipes, and how right they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pciesim.formats.runs_context import ImportContext

__all__ = ["app"]

EXAMPLES = """\b
Examples:
  pciesim calibrate fit runs/mybox --topo mybox.txt -o mybox.yaml
  pciesim calibrate check runs/mybox --topo mybox.txt --plot mybox.svg
  pciesim calibrate prior --topo mybox.txt -o mybox.yaml
  pciesim calibrate compare nccl.log --topo mybox.txt
  pciesim calibrate convert runs/mybox --topo mybox.txt -o collectives.csv
  pciesim calibrate refit calibration/recipes/rtx_pro_6000.yaml
  pciesim calibrate refit calibration/recipes/rtx_pro_6000.yaml --check
  pciesim calibrate accuracy
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Calibration and accuracy.")


Runs = Annotated[
    list[Path], typer.Argument(metavar="RUNS", help="Folders of 'pciesim measure', or files of other tools.")
]
Topology = Annotated[str, typer.Option("--topo", metavar="FILE", help="The box: a file or a shipped name.")]
Gpus = Annotated[str, typer.Option("--gpus", metavar="INDEXES", help="GPUs of an imported file, like 0,1,2,3.")]
Nccl = Annotated[
    list[str] | None,
    typer.Option("--nccl", metavar="KEY=VALUE", help="NCCL variable of an imported file (repeatable)."),
]
Algorithm = Annotated[
    str, typer.Option("--algorithm", metavar="NAME", help="What an imported file measured, like oneshot-push.")
]
Base = Annotated[
    str | None, typer.Option("--base", metavar="PROFILE", show_default="that of the GPU, or of its nearest kin")
]


@app.command(epilog=EXAMPLES)
def fit(
    runs: Runs,
    topo: Topology,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The profile to write.")],
    gpus: Gpus = "",
    nccl: Nccl = None,
    algorithm: Algorithm = "nccl",
    base: Base = None,
) -> None:
    """Fit a profile to measurements. The same runs give the same file, byte for byte."""
    from pciesim.calibrate.ranges import settles
    from pciesim.formats.files import write_text
    from pciesim.refit import fit_runs

    made = fit_runs(runs, _context(topo, gpus, nccl, algorithm), name=output.stem, base=base)
    for note in made.notes:
        typer.echo(f"pciesim: note: {note}", err=True)
    for odd in made.oddities:
        what = "outlier, left out" if odd.outlier else "kept"
        typer.echo(f"pciesim: note: {odd.dataset} {odd.kind} {odd.nbytes:.0f} B: {odd.text} ({what})", err=True)
    write_text(output, made.text)
    typer.echo(f"wrote {output}: {len(made.free)} parameters fitted to {len(made.fit.residuals)} points")
    typer.echo(f"error on the points fitted: {_quantiles([abs(_relative(r)) for r in made.fit.residuals])}")
    for name in made.fit.unidentified:
        typer.echo(f"not told by these runs: {name} (would be by {settles(name)})")
    for one, other, how in made.fit.correlated:
        typer.echo(f"told only together: {one} and {other} ({how:+.2f}; apart by {settles(one)}, {settles(other)})")


@app.command(epilog=EXAMPLES)
def check(
    runs: Runs,
    topo: Topology,
    gpus: Gpus = "",
    nccl: Nccl = None,
    algorithm: Algorithm = "nccl",
    base: Base = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 3 when the error of left-out points is above 5 % or 15 %.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Measured against predicted (SVG or PNG).")] = None,
) -> None:
    """Show the error on points that a fit has not seen: one size, one number of GPUs, one host left out at a time."""
    from pciesim.calibrate.check import held_out
    from pciesim.errors import CalibrationError
    from pciesim.refit import fit_runs, point_timers

    made = fit_runs(runs, _context(topo, gpus, nccl, algorithm), name="check", base=base)
    found = held_out(made.profile, made.free, made.points, point_timers()) if made.free else ()
    if not found:
        raise CalibrationError("the runs hold one size of one collective: nothing can be left out")
    typer.echo(f"{'left out':12} {'points':>7}  error (median, 90th percentile)")
    worst: list[str] = []
    for grouping in dict.fromkeys(each.grouping for each in found):
        errors = [abs(each.relative) for each in found if each.grouping == grouping]
        typer.echo(f"one {grouping:8} {len(errors):7}  {_quantiles(errors)}")
        if _quantile(errors, 0.5) > HELD_OUT_MEDIAN or _quantile(errors, 0.9) > HELD_OUT_NINETIETH:
            worst.append(grouping)
    by_dataset: dict[str, list[float]] = {}
    for each in found:
        if each.grouping == "size":
            by_dataset.setdefault(f"{each.point.dataset} {each.point.kind}", []).append(abs(each.relative))
    for name, errors in sorted(by_dataset.items(), key=lambda pair: -_quantile(pair[1], 0.5))[:5]:
        typer.echo(f"  worst curves: {name}: {_quantiles(errors)}")
    if plot is not None:
        from pciesim.reports.calibration_plot import plot_held_out

        plot_held_out(found, plot)
        typer.echo(f"wrote {plot}")
    if strict and (worst or made.fit.unidentified):
        reasons = [f"one {grouping} left out is missed by more than 5 % (median) or 15 %" for grouping in worst]
        reasons += [f"{name} is not told" for name in made.fit.unidentified]
        raise CalibrationError("the runs do not support a profile: " + "; ".join(reasons))


@app.command(epilog=EXAMPLES)
def convert(
    runs: Runs,
    topo: Topology,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The CSV to write.")],
    gpus: Gpus = "",
    nccl: Nccl = None,
    algorithm: Algorithm = "nccl",
    fit_every: Annotated[
        int, typer.Option("--fit-every", metavar="N", help="Of each curve, every N-th size is for fits; 0: none.")
    ] = 4,
) -> None:
    """Turn measurements into the CSV of points that recipes name, most of them kept out of fits."""
    from pciesim.formats.files import write_text
    from pciesim.refit import points_of_runs

    text, count = points_of_runs(runs, _context(topo, gpus, nccl, algorithm), fit_every)
    write_text(output, text)
    typer.echo(f"wrote {output}: {count} points")


@app.command(epilog=EXAMPLES)
def prior(
    topo: Topology,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The profile to write.")],
    base: Base = None,
) -> None:
    """Write a profile for a box that nobody has measured: the nearest host's figures, as uncertain as hosts differ."""
    from pciesim.formats.files import write_text
    from pciesim.refit import prior_text

    write_text(output, prior_text(topo, name=output.stem, base=base))
    typer.echo(f"wrote {output}")


@app.command(epilog=EXAMPLES)
def coverage(
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where runs and recipes are.")] = Path("calibration"),
    page: Annotated[Path, typer.Option(metavar="FILE")] = Path("docs/calibration.md"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when the table would change.")] = False,
) -> None:
    """Show how often intervals hold what was measured, host by host, and write the table into the docs."""
    from pciesim.accuracy.coverage import coverage_table
    from pciesim.accuracy.document import replace_block
    from pciesim.errors import CalibrationError
    from pciesim.formats.documents import read_text
    from pciesim.formats.files import write_text

    old = read_text(page)
    new = replace_block(old, coverage_table(folder))
    if check and new != old:
        raise CalibrationError(f"{page} does not show the present coverage; run 'pciesim calibrate coverage'")
    if not check:
        write_text(page, new)
        typer.echo(f"wrote {page}")


@app.command(epilog=EXAMPLES)
def kernel(
    curve: Annotated[Path, typer.Argument(metavar="CSV", help="Sizes and latencies of your all-reduce, with units.")],
    topo: Topology,
    model: Annotated[str, typer.Option(metavar="FILE", help="The model to serve.")],
    engine: Annotated[str, typer.Option(metavar="NAME")] = "sglang",
    allreduce: Annotated[str, typer.Option(metavar="NAME", help="What it would replace.")] = "auto",
    batch: Annotated[int, typer.Option(metavar="N")] = 1,
    context: Annotated[int, typer.Option(metavar="TOKENS")] = 1024,
    gpus: Gpus = "",
    nccl: Nccl = None,
    profile: Annotated[str | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Show what an all-reduce kernel of your own would buy, and the latency from which it does."""
    from pciesim.accuracy.own_runs import kernel_gain
    from pciesim.api import predict
    from pciesim.formats.runs_csv import read_curve
    from pciesim.units import format_bytes, format_seconds

    mine = read_curve(curve)
    group = _context(topo, gpus, nccl, "nccl")
    said = predict(topo=topo, model=model, batch=batch, context=context, gpus=group.gpus, engine=engine,
                   allreduce=allreduce, profile=profile, nccl=dict(group.nccl))  # fmt: skip
    found = kernel_gain(said, mine)
    for nbytes, count, now, own in found.rows:
        typer.echo(f"{count} all-reduces of {format_bytes(nbytes)}: {format_seconds(own)} each with '{mine.name}', "
                   f"{format_seconds(now)} now (the break-even)")  # fmt: skip
    typer.echo(f"step {format_seconds(found.step)} -> {format_seconds(found.with_kernel)}: {found.gain:+.1%} tokens/s")


@app.command(epilog=EXAMPLES)
def compare(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An NCCL log, a serving benchmark's output, or a profile.")
    ],
    topo: Topology,
    model: Annotated[str, typer.Option(metavar="FILE", help="The model that ran (not for an NCCL log).")] = "",
    engine: Annotated[str, typer.Option(metavar="NAME")] = "sglang",
    allreduce: Annotated[str, typer.Option(metavar="NAME")] = "auto",
    batch: Annotated[int, typer.Option(metavar="N", help="Users at a time, where the file does not say.")] = 1,
    context: Annotated[int, typer.Option(metavar="TOKENS")] = 1024,
    steps: Annotated[int, typer.Option(metavar="N", help="Decode steps that a profile holds.")] = 1,
    gpus: Gpus = "",
    nccl: Nccl = None,
    profile: Annotated[str | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Hold what happened on a box against what pciesim says of it: NCCL's choices, a step's time, kernel by kernel."""
    from pciesim.accuracy.own_runs import choice_rows, trace_rows
    from pciesim.api import predict
    from pciesim.errors import InputError
    from pciesim.formats.documents import read_text
    from pciesim.formats.runs_nccl_log import read_nccl_log
    from pciesim.formats.runs_serving import read_serving
    from pciesim.formats.runs_trace import read_kernels
    from pciesim.units import format_bytes, format_seconds

    group = _context(topo, gpus, nccl, "nccl")
    text = "" if file.suffix == ".gz" else read_text(file)
    if "NCCL INFO" in text:
        rows = choice_rows(read_nccl_log(file), group)
        if not rows:
            raise InputError("the log names no choice; NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING does", where=str(file))
        for row in rows:
            mark = "" if row.same else "  <- differs"
            typer.echo(
                f"{row.kind:15} {format_bytes(row.nbytes):>9}  NCCL {row.chosen:12} pciesim {row.predicted}{mark}"
            )
        typer.echo(f"{sum(row.same for row in rows)} of {len(rows)} choices agree")
        return
    if not model:
        raise InputError("--model says what ran; without it only an NCCL log can be compared")
    is_profile = file.suffix == ".gz" or "traceEvents" in text or "Total Time (ns)" in text
    serving = None if is_profile else read_serving(file)
    said = predict(
        topo=topo, model=model, batch=(serving.users if serving and serving.users else batch), context=context,
        gpus=group.gpus, engine=engine, allreduce=allreduce, profile=profile, nccl=dict(group.nccl),
    )  # fmt: skip
    if serving is not None:
        step = serving.token_interval * (serving.accepted or 1.0)
        value, low, high = (format_seconds(getattr(said.step_latency, each)) for each in ("value", "low", "high"))
        typer.echo(f"measured  {format_seconds(step)} a step" + (" (drafts and check)" if serving.accepted else ""))
        typer.echo(f"predicted {value} ({low} to {high}), {said.step_latency.value / step - 1:+.1%}")
        return
    typer.echo(f"{'a step':34} {'measured':>10} {'predicted':>10}")
    for each in trace_rows(read_kernels(file), steps, said):
        typer.echo(f"{each.category:34} {format_seconds(each.measured):>10} {format_seconds(each.predicted):>10}")


HELD_OUT_MEDIAN = 0.05
HELD_OUT_NINETIETH = 0.15


def _context(topo: str, gpus: str, nccl: list[str] | None, algorithm: str) -> ImportContext:
    from pciesim.collectives.select import ALGORITHMS
    from pciesim.errors import InputError, UnknownName
    from pciesim.formats.runs_context import ImportContext

    if algorithm not in ALGORITHMS:
        raise UnknownName("all-reduce algorithm", algorithm, ALGORITHMS)
    pairs = [each.partition("=") for each in nccl or []]
    if any(not equals for _, equals, _ in pairs):
        raise InputError("--nccl takes KEY=VALUE, like NCCL_P2P_DISABLE=1")
    try:
        group = tuple(int(each) for each in gpus.split(",")) if gpus else None
    except ValueError:
        raise InputError(f"--gpus {gpus}: write it like 0,1,2,3") from None
    return ImportContext(topology=topo, gpus=group, nccl=tuple((k, v) for k, _, v in pairs), algorithm=algorithm)


def _relative(residual: float) -> float:
    return math.expm1(residual)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def _quantiles(values: Sequence[float]) -> str:
    return f"{_quantile(values, 0.5):.1%}, {_quantile(values, 0.9):.1%}" if values else "no points"


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
    from pciesim.accuracy import ab, contention
    from pciesim.accuracy.document import accuracy_page, readme_table, replace_block
    from pciesim.errors import CalibrationError
    from pciesim.formats.documents import read_text
    from pciesim.formats.files import write_text

    pages: tuple[tuple[Path, Callable[[str], str]], ...] = (
        (page, lambda text: replace_block(text, accuracy_page(runs))),
        (readme, lambda text: replace_block(text, readme_table(runs))),
        (page.with_name("what-if.md"), lambda text: ab.filled_page(text, runs)),
        (
            page.with_name("contention.md"),
            lambda text: replace_block(text, contention.contention_table(runs / contention.FLOWS)),
        ),
    )
    for path, filled in pages:
        old = read_text(path)
        new = filled(old)
        if check and new != old:
            raise CalibrationError(f"{path} does not show the present accuracy; run 'pciesim calibrate accuracy'")
        if not check:
            write_text(path, new)
            typer.echo(f"wrote {path}")
