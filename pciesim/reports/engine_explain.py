"""What an engine decides for every collective of a step, and its kernel backends: text and JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pciesim.scenario import Scenario
from pciesim.schedule import EngineSpec, ExplainedCollective
from pciesim.units import format_bytes

__all__ = ["SCHEMA", "engine_list_text", "explain_json", "explain_text"]

SCHEMA: Final = "pciesim/engine-explain/1"
PIPED_WIDTH: Final = 100


def explain_text(scenario: Scenario, explained: Sequence[ExplainedCollective], width: int = PIPED_WIDTH) -> str:
    """Every collective with the backend that serves it, and why each earlier one does not, in ``width`` columns."""
    parts = (_head(scenario), _collectives(scenario, explained), _kernels(scenario), _options(scenario))
    return "\n".join(wrapped for part in parts for line in part for wrapped in _wrapped(line, width)) + "\n"


def _wrapped(line: str, width: int, hang: int = 0) -> list[str]:
    """A line in several, the others indented two columns more than the first (or ``hang``)."""
    indent = " " * (hang or len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]


def _head(scenario: Scenario) -> Iterable[str]:
    engine, split = scenario.engine, scenario.parallelism
    yield f"{engine.title} {engine.version} on {scenario.fabric.name}: {len(scenario.gpus)} x {scenario.gpu.name}"
    degrees = [f"TP{split.tp}", *(f"{name}{value}" for name, value in
               (("EP", split.ep), ("PP", split.pp), ("attention DP", split.attention_dp)) if value > 1)]  # fmt: skip
    yield f"{scenario.model.name}, {', '.join(degrees)}, batch {scenario.workload.batch}"
    if engine.options:
        yield "started with " + " ".join(f"{key}={value}" for key, value in engine.options.items())
    yield f"read from {engine.source}"


def _collectives(scenario: Scenario, explained: Sequence[ExplainedCollective]) -> Iterable[str]:
    if not explained:
        yield ""
        yield "One GPU: no collectives."
    for each in explained:
        decision = each.decision
        yield ""
        yield (
            f"{each.count} x {each.kind.replace('_', '-')} of {format_bytes(each.nbytes)} {each.precision} over "
            f"{each.ranks} ranks (group {each.group}), after {_listed(each.after)}"
        )
        yield f"  -> {decision.backend.name}: {decision.backend.why} (pciesim: {decision.backend.algorithm})"
        for backend, reason in decision.refused:
            if each.kind in backend.kinds:
                yield f"     not {backend.name}: {reason}"
    if scenario.allreduce != "auto":
        yield ""
        yield f"--allreduce {scenario.allreduce} overrides this for bf16 all-reduces."


def _kernels(scenario: Scenario) -> Iterable[str]:
    engine, moe = scenario.engine, next((layer.moe for layer in scenario.model.layers if layer.moe), None)
    capability = scenario.gpu.compute_capability
    if moe is not None:
        yield ""
        yield f"Routed experts ({moe.precision}): {engine.expert_backends.get(moe.precision.value, 'not known')}"
        for each in engine.known_backends:
            if each.precision == moe.precision.value:
                built = "" if each.serves(capability) else f"not built for SM{capability}; "
                yield f"  {each.name}: {built}{each.runs}"


def _options(scenario: Scenario) -> Iterable[str]:
    yield ""
    yield "Flags and variables that change this (--engine-option): " + ", ".join(scenario.engine.switches or ("none",))


def explain_json(scenario: Scenario, explained: Sequence[ExplainedCollective]) -> str:
    """The same as JSON, schema ``pciesim/engine-explain/1``."""
    engine = scenario.engine
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "engine": engine.name,
        "version": engine.version,
        "source": engine.source,
        "topology": scenario.fabric.name,
        "model": scenario.model.name,
        "gpu": scenario.gpu.key,
        "tp": scenario.parallelism.tp,
        "options": dict(engine.options),
        "switches": list(engine.switches),
        "collectives": [_collective(each) for each in explained],
        "expert_backends": [
            {"name": each.name, "precision": each.precision, "runs": each.runs,
             "built_for_this_gpu": each.serves(scenario.gpu.compute_capability)}
            for each in engine.known_backends
        ],
    }  # fmt: skip
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False)


def _collective(each: ExplainedCollective) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "after": list(each.after),
        "count": each.count,
        "bytes": each.nbytes,
        "ranks": each.ranks,
        "group": each.group,
        "precision": each.precision,
        "backend": each.decision.backend.name,
        "algorithm": each.decision.backend.algorithm,
        "why": each.decision.backend.why,
        "refused": [
            {"backend": backend.name, "reason": reason}
            for backend, reason in each.decision.refused
            if each.kind in backend.kinds
        ],
    }


def engine_list_text(engines: Mapping[str, EngineSpec], width: int = PIPED_WIDTH) -> str:
    """One paragraph an engine; names of the same engine (``sglang`` is the newest ``sglang-...``) share it."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, engine in engines.items():
        named.setdefault((f"{engine.title} {engine.version}", engine.source), []).append(name)
    titles = {key: ", ".join(names) for key, names in named.items()}
    margin = max(map(len, titles.values()))
    lines = [
        line
        for (title, source), names in titles.items()
        for line in _wrapped(f"{names:{margin}}  {title}: {source}", width, hang=margin + 2)
    ]
    return "\n".join(lines) + "\n"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
