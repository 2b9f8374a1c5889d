"""Plain PyTorch in a CUDA graph on two H200: predicted against the project's own decode steps.

The steps of ``decode_step.json`` and ``decode.*.jsonl`` have layers only: no embedding, no logits, no host. ``compute``
leaves the collectives out, ``nccl`` has them. The launch gap of the H200 tables was itself taken from the dense
``compute`` steps, so a dense step is predicted with the gap of the *other* steps (``gap`` of :class:`TorchStep`); steps
with experts had no part in it. Kernels are those of the later run; the earlier one ran another version of the MoE
layer.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pciesim.api import box_profile, kernel_clock
from pciesim.formats.catalogue import gpu_type
from pciesim.formats.documents import read_text
from pciesim.formats.engine_yaml import load_engine
from pciesim.formats.model import load_model
from pciesim.formats.shipped import find_input
from pciesim.formats.topology import load_fabric
from pciesim.model import Attention, ModelSpec, QkNorm
from pciesim.scenario import Scenario
from pciesim.schedule import Compute
from pciesim.step import Step, evaluate_step, timer_of
from pciesim.units import MS, US, Seconds
from pciesim.workload import Parallelism, Workload

__all__ = ["TorchStep", "torch_step_lines", "torch_steps"]

RUNS = ("h200x2_2026-11-30", "h200x2_2026-11-30b", "h200x2_2026-11-30d")
UNIFORM = 0.0  # random weights route every token to random experts
_MODELS = {"llama8b": "llama31_8b", "qwen30b_a3b": "qwen3_30b"}
_TOPOLOGIES = {"nvl": "h200x2", "shm": "h200x2_shm"}
_TRANSPORTS = {"p2p": "nvl", "host": "shm"}  # as pciesim measure names them
_GPU = "h200"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchStep:
    """One measured step of a run and what pciesim says of it.

    ``collectives`` is how many there are, ``added`` what NCCL adds to the step without them, ``gap`` the launch gap
    per kernel that the prediction used, from other steps than this one.
    """

    run: str
    model: str
    transport: str
    tokens: int
    context: int
    compute: Seconds
    predicted_compute: Seconds
    added: Seconds
    predicted_added: Seconds
    collectives: int
    gap: Seconds

    @property
    def relative(self) -> float:
        """Predicted over measured compute, less one."""
        return self.predicted_compute / self.compute - 1

    @property
    def relative_added(self) -> float:
        """Predicted over measured cost of the collectives, less one."""
        return self.predicted_added / self.added - 1

    @property
    def added_per_call(self) -> Seconds:
        """Error of one collective, predicted less measured."""
        return (self.predicted_added - self.added) / self.collectives


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """A measured step with its prediction before launch gaps."""

    row: dict[str, object]
    nccl: Seconds
    kernels: Seconds
    count: int
    collective: Seconds
    calls: int

    @property
    def measured(self) -> Seconds:
        return float(str(self.row["step_s"]))

    @property
    def gap(self) -> Seconds:
        """What each kernel took beyond its stand-alone time."""
        return (self.measured - self.kernels) / self.count


def torch_steps(runs: Path, names: Sequence[str] = RUNS) -> tuple[TorchStep, ...]:
    """Every ``compute`` step of all runs, models and transports, with the ``nccl`` step of the same shape."""
    rows = [row for name in names for row in _rows(runs / name)]
    by_key = {_key(row): row for row in rows}
    scenarios: dict[tuple[str, str], Scenario] = {}
    timed: list[_Timed] = []
    for row in rows:
        if row["variant"] != "compute":
            continue
        place = (row["model"], row["tag"])
        if place not in scenarios:
            scenarios[place] = _scenario(*place)
        nccl = by_key[_key({**row, "variant": "nccl"})]
        step = _step(scenarios[place], row)
        ops = [op for op in step.schedule.ops if isinstance(op, Compute)]
        timed.append(
            _Timed(
                row=row,
                nccl=nccl["step_s"],
                kernels=sum(step.kernels[op.kernel].value for op in ops),
                count=len(ops),
                collective=step.timeline.length - sum(step.kernels[op.kernel].value + step.gap.value for op in ops),
                calls=step.counts.total(),
            )
        )
    return tuple(_compared(each, _gap_without(each, timed)) for each in timed)


def _rows(folder: Path) -> list[dict[str, Any]]:
    """The decode steps of a run, in either layout."""
    if (earlier := folder / "decode_step.json").is_file():
        return [{**row, "run": folder.name} for row in json.loads(read_text(earlier))]
    return [
        {**row, "run": folder.name, "tag": _TRANSPORTS[row["transport"]]}
        for transport in _TRANSPORTS
        for row in map(json.loads, read_text(folder / f"decode.{transport}.jsonl").splitlines())
    ]


def _gap_without(one: _Timed, timed: Sequence[_Timed]) -> Seconds:
    """The median gap of the dense steps of its run with other shapes than this one."""

    def shape(each: _Timed) -> tuple[object, ...]:
        return each.row["model"], each.row["tokens"], each.row["ctx"]

    others = [
        each.gap for each in timed
        if each.row["run"] == one.row["run"] and each.row["model"] == "llama8b" and shape(each) != shape(one)
    ]  # fmt: skip
    return statistics.median(others)


def _compared(each: _Timed, gap: Seconds) -> TorchStep:
    row = each.row
    return TorchStep(
        run=str(row["run"]),
        model=str(row["model"]),
        transport=str(row["tag"]),
        tokens=int(str(row["tokens"])),
        context=int(str(row["ctx"])),
        compute=each.measured,
        predicted_compute=each.kernels + each.count * gap,
        added=each.nccl - each.measured,
        predicted_added=each.collective,
        collectives=each.calls,
        gap=gap,
    )


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("run", "tag", "model", "tokens", "ctx", "variant"))


def _scenario(model: str, transport: str) -> Scenario:
    fabric = load_fabric(find_input("topologies", _TOPOLOGIES[transport]), None)
    gpu, engine = gpu_type(_GPU), load_engine("torch-graph")
    spec = _as_run(load_model(find_input("models", _MODELS[model])))
    return Scenario(
        fabric=fabric,
        gpus=tuple(each.name for each in fabric.gpus),
        gpu=gpu,
        model=spec,
        workload=Workload(),
        parallelism=Parallelism(tp=2),
        engine=engine,
        profile=box_profile(fabric),
        clock=kernel_clock(gpu, engine, spec, skew=UNIFORM),
    )


def _as_run(model: ModelSpec) -> ModelSpec:
    """The model as the benchmark ran it: no norms of queries and keys."""
    runs = tuple(
        replace(run, pattern=tuple(
            replace(layer, mixer=replace(layer.mixer, qk_norm=QkNorm.NONE))
            if isinstance(layer.mixer, Attention) else layer
            for layer in run.pattern
        ))
        for run in model.runs
    )  # fmt: skip
    return replace(model, runs=runs)


def _step(scenario: Scenario, row: dict[str, object]) -> Step:
    workload = Workload(batch=int(str(row["tokens"])), context=int(str(row["ctx"])), skew=UNIFORM)
    scenario = replace(scenario, workload=workload)
    return evaluate_step(scenario, timer_of(scenario, "simulate"))


def torch_step_lines(steps: Sequence[TorchStep]) -> list[str]:
    """Lines for the accuracy page: medians by model and transport, then every step."""
    lines = [
        "| run | model | transport | steps | compute, median | 90th percentile | collectives, median | us a call |"
    ]
    lines.append("|---|---|---|---:|---:|---:|---:|---:|")
    for run, model, transport in dict.fromkeys((step.run, step.model, step.transport) for step in steps):
        group = [step for step in steps if (step.run, step.model, step.transport) == (run, model, transport)]
        lines.append(
            f"| {run} | {model} | {transport} | {len(group)} | {_median(group, lambda s: abs(s.relative)):.1%} "
            f"| {_ninetieth([abs(step.relative) for step in group]):.1%} "
            f"| {_median(group, lambda s: abs(s.relative_added)):.1%} "
            f"| {_median(group, lambda s: abs(s.added_per_call)) / US:.2f} |"
        )
    lines += ["", "| run | model | transport | tokens | context | compute ms | predicted | | sums ms | predicted | |",
              "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    lines += [
        f"| {step.run} | {step.model} | {step.transport} | {step.tokens} | {step.context} | {step.compute / MS:.2f} "
        f"| {step.predicted_compute / MS:.2f} | {step.relative:+.1%} | {step.added / MS:.2f} "
        f"| {step.predicted_added / MS:.2f} | {step.relative_added:+.1%} |"
        for step in steps
    ]
    return lines


def _median(steps: Sequence[TorchStep], of: Callable[[TorchStep], float]) -> float:
    return statistics.median(of(step) for step in steps)


def _ninetieth(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
