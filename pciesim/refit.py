"""Makes a profile again from its recipe: reads the runs, fits, and returns the file's text, byte for byte the same."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pciesim.api import as_prior, load_scenario, nccl_environment, nearest_profile
from pciesim.calibrate.curves import Oddity, curves, without_outliers
from pciesim.calibrate.direct import direct_parameters, with_parameters
from pciesim.calibrate.fit import Fit, Free, fit_profile
from pciesim.calibrate.points import Point
from pciesim.calibrate.ranges import free_of
from pciesim.calibrate.readings import Run
from pciesim.calibrate.residuals import Residuals
from pciesim.calibrate.steps import IterationPoint, StepPoint
from pciesim.collectives.select import ALGORITHMS
from pciesim.errors import CalibrationError
from pciesim.evaluate.collective import CollectiveTimer
from pciesim.fabric import Fabric
from pciesim.formats.catalogue import gpu_type
from pciesim.formats.points_csv import points_text, read_iterations, read_steps
from pciesim.formats.profile_yaml import profile_text, read_profile
from pciesim.formats.recipe_yaml import read_recipe
from pciesim.formats.runs_context import ImportContext
from pciesim.formats.runs_hash import file_hash
from pciesim.formats.runs_measure import read_measure_folder
from pciesim.formats.runs_table import import_runs
from pciesim.formats.shipped import find_input
from pciesim.formats.topology import load_fabric
from pciesim.profile import Evidence, Interval, Parameter, Profile
from pciesim.scenario import Scenario
from pciesim.schedule import Speculation
from pciesim.step import evaluate_step, host_parameter, timer_of
from pciesim.strategies.speculation import ALIKE
from pciesim.units import Seconds

__all__ = [
    "Calibration", "Refit", "draft_residual", "fit_runs", "iteration_scenario", "point_timers", "points_of_runs",
    "prior_text", "refit", "step_scenario",
]  # fmt: skip


def point_timers() -> Callable[[Point, Profile], CollectiveTimer]:
    """A function from a point and a profile to the timer that predicts it by the closed form.

    Timers of the last profile are kept: a fit asks for all its points under one profile before it moves on.
    """
    fabrics: dict[tuple[str, tuple[tuple[str, str], ...]], Fabric] = {}
    timers: dict[tuple[str, tuple[tuple[str, str], ...], tuple[int, ...]], CollectiveTimer] = {}
    last: list[Profile] = []

    def timer_for(point: Point, profile: Profile) -> CollectiveTimer:
        if not last or last[0] is not profile:
            timers.clear()
            last[:] = [profile]
        machine = (point.topology, point.nccl)
        if machine not in fabrics:
            loaded = load_fabric(find_input("topologies", point.topology))
            fabrics[machine] = replace(loaded, nccl=nccl_environment(loaded.nccl, dict(point.nccl)))
        key = (*machine, point.gpus)
        if key not in timers:
            box = fabrics[machine]
            timers[key] = CollectiveTimer(
                fabric=box,
                gpus=tuple(box.gpus[index].name for index in point.gpus),
                compute_capability=gpu_type(box.gpu_model).compute_capability,
                profile=profile,
                evaluator="estimate",
            )
        return timers[key]

    return timer_for


class Refit:
    """What a refit gives: the text of the profile, the fit, and the host residuals per row."""

    __slots__ = ("fit", "profile", "text")

    def __init__(self, fit: Fit, profile: Profile, text: str) -> None:
        self.fit, self.profile, self.text = fit, profile, text


def refit(recipe_path: Path, runs: Path) -> Refit:
    """Runs a recipe against the measurements under ``runs``. Raises InputError on any fault of a file."""
    recipe = read_recipe(recipe_path)
    points, where = recipe.points(runs), str(recipe_path)
    base = read_profile(find_input("profiles", recipe.base)) if recipe.base else None
    start, hashes = recipe.start_profile(where, base), [(name, file_hash(runs / name)) for name in recipe.runs]
    if recipe.readings is not None:
        measured = read_measure_folder(runs / recipe.readings.run, recipe.readings.topology)
        fabric = load_fabric(find_input("topologies", recipe.readings.topology))
        start = with_parameters(start, direct_parameters(measured.readings, fabric, start))
        hashes += [(each.source, file_hash(runs / each.source)) for each in measured.readings]
    fit = fit_profile(start, recipe.free(where, base), points, point_timers(), source=recipe.fit_source)
    steps = [step for name in recipe.steps for step in read_steps(runs / name)]
    profile = _with_host_times(fit.profile, steps)
    profile = _with_draft_costs(profile, [each for name in recipe.iterations for each in read_iterations(runs / name)])
    header = (
        f"Made by `pciesim calibrate refit {recipe_path.name}`; do not edit, change the recipe or the runs instead.\n"
        f"Figures of {recipe.collected}; each has its source."
    )
    return Refit(fit, profile, profile_text(profile, header, set(hashes)))


def _with_host_times(profile: Profile, steps: Sequence[StepPoint]) -> Profile:
    """The one end-to-end figure per engine: what the published steps take beyond kernels and collectives."""
    for name in sorted({step.engine for step in steps}):
        rows = [step for step in steps if step.engine == name and step.fitted]
        left = [_host_residual(row, profile) for row in rows]
        source = f"mean residual of {len(rows)} published four-GPU rows ({'; '.join(row.source for row in rows)})"
        profile = with_parameters(profile, {f"host.{name}": _mean_residual(left, source)})
    return profile


def _with_draft_costs(profile: Profile, points: Sequence[IterationPoint]) -> Profile:
    """The other end-to-end figure per engine: what each pass of the draft head costs beyond kernels and collectives."""
    for name in sorted({_family(point.step.engine) for point in points}):
        rows = [point for point in points if _family(point.step.engine) == name and point.step.fitted]
        left = [draft_residual(row, profile) for row in rows]
        source = f"mean of {len(rows)} four-GPU rows with drafts, 2 to 8 users (ab_published/iterations.csv)"
        profile = with_parameters(profile, {f"draft.{name}": _mean_residual(left, source)})
    return profile


def _mean_residual(left: Sequence[Seconds], source: str) -> Parameter:
    """What rows leave over: their mean, with a range that holds every row and is never narrower than the tables are."""
    value = max(0.0, statistics.fmean(left))
    spread = max(max(left) - value, value - min(left), _HOST_SPREAD * value)
    return Parameter(
        value=value,
        low=max(0.0, value - spread),
        high=value + spread,
        evidence=Evidence.FITTED,
        source=source,
    )


def _family(engine: str) -> str:
    """``vllm-0.17`` -> ``vllm``: versions share their parameters."""
    return engine.partition("-")[0]


_HOST_SPREAD = 0.35  # at least: the residual also holds every error of the kernel tables


def _host_residual(step: StepPoint, profile: Profile) -> Seconds:
    scenario = step_scenario(step, profile)
    scenario = replace(scenario, profile=_without_host(profile, scenario.engine.host_parameter))
    return 1 / step.tokens_per_second - evaluate_step(scenario, timer_of(scenario, "simulate")).timeline.length


def draft_residual(point: IterationPoint, profile: Profile | None) -> Seconds:
    """What each draft of one row costs beyond what is predicted without any draft cost."""
    scenario = iteration_scenario(point, profile)
    scenario = replace(scenario, profile=_without_host(scenario.profile, host_parameter(scenario, "draft")))
    bare = evaluate_step(scenario, timer_of(scenario, "simulate")).timeline.length
    return (point.tokens / point.step.tokens_per_second - bare) / point.drafts


def iteration_scenario(point: IterationPoint, profile: Profile | None) -> Scenario:
    """The scenario that a published iteration measured; ``profile`` None is the shipped one."""
    return replace(
        step_scenario(point.step, profile),
        speculation=Speculation(drafts=point.drafts, alike=ALIKE),
        yields=Interval.exact(point.tokens),
    )


def step_scenario(step: StepPoint, profile: Profile | None) -> Scenario:
    """The scenario that a published step measured; ``profile`` None is the shipped one."""
    scenario, _ = load_scenario(
        topo=step.topology, model=step.model, tp=None, batch=step.batch, context=step.context, gpus=step.gpus,
        engine=step.engine, allreduce=step.allreduce, profile=None, overlay=None, nccl=dict(step.nccl),
        parameters=profile,
    )  # fmt: skip
    return scenario


def _without_host(profile: Profile, name: str) -> Profile:
    nothing = Parameter(value=0.0, low=0.0, high=0.0, evidence=Evidence.ASSUMED, source="left out while fitting it")
    return replace(profile, parameters=(*((n, p) for n, p in profile.parameters if n != name), (name, nothing)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What fitting a profile to runs gives: the file's text, what was found on the way, and how to check it."""

    profile: Profile
    text: str
    fit: Fit
    free: Mapping[str, Free]
    points: tuple[Point, ...]
    oddities: tuple[Oddity, ...]
    notes: tuple[str, ...]


def fit_runs(paths: Sequence[Path], context: ImportContext, *, name: str, base: str | None = None) -> Calibration:
    """A profile from measurements: direct readings as they stand, the rest by a joint fit, what is left borrowed.

    ``base`` is the profile whose figures hold where the runs say nothing (default: that of the GPU, else the nearest
    kin). Raises InputError on any fault of a file, CalibrationError where there is nothing to fit to.
    """
    runs = [import_runs(path, context) for path in paths]
    fabric = load_fabric(find_input("topologies", context.topology))
    gpu = gpu_type(fabric.gpu_model or "rtx_pro_6000")
    known = nearest_profile(fabric, base).borrowed()
    direct = direct_parameters([reading for run in runs for reading in run.readings], fabric, known)
    start = with_parameters(replace(known, name=name, gpu=gpu.key), direct)
    points, oddities = without_outliers(_served(runs, fabric))
    timers = point_timers()
    free = _told(start, [each for each in start.parameters if each[0] not in direct], points, timers)
    if not free and not direct:
        raise CalibrationError("the runs hold nothing that a parameter depends on")
    days = ", ".join(run.name for run in runs)
    fit = fit_profile(start, free, points, timers, source=f"joint fit of {days}", explore=False) if free else Fit(
        profile=start, residuals=(), unidentified=(), correlated=()
    )  # fmt: skip
    kept = {each: start.parameter(each) for each in fit.unidentified}
    profile = replace(
        with_parameters(fit.profile, kept), description=f"{gpu.name} on '{fabric.name}', fitted to {days}"
    )
    header = f"Made by `pciesim calibrate fit` for '{fabric.name}'; what the runs do not tell is from '{known.name}'."
    hashes = [(f"{run.name}/{file}", digest) for run in runs for file, digest in run.hashes]
    return Calibration(
        profile=profile,
        text=profile_text(profile, header, hashes),
        fit=fit,
        free=free,
        points=points,
        oddities=oddities,
        notes=tuple(note for run in runs for note in run.notes),
    )


def prior_text(topo: str, *, name: str, base: str | None = None) -> str:
    """The file of a profile for a box without measurements. ``base`` is the nearest host, if one is known."""
    fabric = load_fabric(find_input("topologies", topo))
    header = f"Made by `pciesim calibrate prior` for '{fabric.name}', of which nothing is measured."
    return profile_text(as_prior(fabric, nearest_profile(fabric, base), name=name), header)


def points_of_runs(paths: Sequence[Path], context: ImportContext, fit_every: int) -> tuple[str, int]:
    """The CSV of what is measured, and how many points; of each curve every ``fit_every``-th size is for fits."""
    fabric = load_fabric(find_input("topologies", context.topology))
    points, _ = without_outliers(_served([import_runs(path, context) for path in paths], fabric))
    use: dict[Point, str] = {}
    for curve in curves(points):
        for position, point in enumerate(curve):
            chosen = point.fitted and fit_every > 0 and position % fit_every == fit_every // 2
            use[point] = "fit" if chosen else "check" if point.fitted else "excluded"
    return points_text(points, use.__getitem__), len(points)


def _served(runs: Sequence[Run], fabric: Fabric) -> tuple[Point, ...]:
    """The points of GPUs and algorithms that are there."""
    indexes = {gpu.index for gpu in fabric.gpus}
    return tuple(
        point
        for run in runs
        for point in run.points
        if set(point.gpus) <= indexes
        and point.algorithm in ALGORITHMS
        and point.kind in ALGORITHMS[point.algorithm].kinds
    )


def _told(
    profile: Profile,
    parameters: Sequence[tuple[str, Parameter]],
    points: Sequence[Point],
    timers: Callable[[Point, Profile], CollectiveTimer],
) -> dict[str, Free]:
    """The parameters that some point depends on."""
    free = free_of(profile, tuple(name for name, _ in parameters))
    fitted = [point for point in points if point.fitted]
    if not free or not fitted:
        return {}
    model = Residuals(profile, sorted(free), fitted, timers)
    effects = model.jacobian(np.log([free[name].start for name in model.names]))
    return {name: free[name] for column, name in enumerate(model.names) if effects[:, column].any()}
