"""Advice: candidates for a box and a model, estimated, the best simulated, with the switches of the engine at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pciesim.compare.advice import Advice, BreakEven, DraftRange, Floor, Proposal, doubts_of
from pciesim.compare.comparison import Gain, gain_of
from pciesim.compare.configuration import Configuration, with_choices
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import Outcome, outcome_of
from pciesim.compare.ranking import OBJECTIVES, Front, front, ranked
from pciesim.errors import Infeasible, UnknownName
from pciesim.model import Moe
from pciesim.model_size import legal_tp
from pciesim.physics import RouteCosts
from pciesim.scenario import Scenario
from pciesim.schedule import CollectiveKind, Compute
from pciesim.step import Step, evaluate_step
from pciesim.strategies.choice import switches
from pciesim.units import US, Seconds
from pciesim.whatif.loading import Loader, check_axes, evaluate
from pciesim.whatif.simplest import PLAIN, simplest
from pciesim.whatif.sweeping import sweep_grid

__all__ = ["candidates", "pareto", "recommend"]

_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_SUMS: Final = ("auto", "pcie-ipc", "oneshot-pull", "mscclpp")
_NCCL: Final = ("default", "p2p-level:SYS", "p2p-level:SYS+graph")
_DRAFTS: Final = ("none", "mtp:1", "mtp:2", "mtp:3", "mtp:4", "mtp:5")
_SHOWN: Final = 4
_MOST_DRAFTS: Final = 8
_TP_FLAG: Final[Mapping[str, str]] = MappingProxyType({"sglang": "--tp-size", "vllm": "--tensor-parallel-size"})


def candidates(
    base: Configuration, scenario: Scenario, *, concurrency: int, batches: Sequence[int] = ()
) -> tuple[Configuration, ...]:
    """What is worth trying: every split that fills the box, each all-reduce an engine has, NCCL mended, drafts.

    ``concurrency`` sequences are divided over the replicas; ``batches`` (per replica) instead, where given.
    """
    fixed = dict(base)
    gpus = len(scenario.fabric.gpus)
    has_experts = any(isinstance(layer.mlp, Moe) for layer in scenario.model.layers)
    widths = (
        [int(fixed["tp"])] if "tp" in fixed else [tp for tp in legal_tp(scenario.model, limit=gpus) if gpus % tp == 0]
    )
    drafts = [fixed["spec"]] if "spec" in fixed else _DRAFTS if scenario.model.mtp is not None else _DRAFTS[:1]
    found: list[Configuration] = []
    for tp in widths:
        replicas = [fixed["dp"]] if "dp" in fixed else [str(gpus // tp)]
        for dp in replicas:
            sizes = batches or (-(-concurrency // int(dp)),)
            for batch in sizes:
                split = {"tp": str(tp), "dp": dp, "batch": str(batch)}
                for ep in [fixed["ep"]] if "ep" in fixed else ["1", str(tp)] if has_experts and tp > 1 else ["1"]:
                    for sums in [fixed["allreduce"]] if "allreduce" in fixed else _SUMS:
                        mended = _NCCL if sums in ("auto", "nccl") and tp > 1 else _NCCL[:1]
                        for nccl in [fixed["nccl"]] if "nccl" in fixed else mended:
                            if tp == 1 and sums != "auto":
                                continue
                            choice = {**split, "ep": ep, "allreduce": sums, "nccl": nccl}
                            found += [with_choices(base, (*choice.items(), ("spec", each))) for each in drafts]
    return tuple(dict.fromkeys(found))


def pareto(
    *,
    topo: str,
    model: str,
    fixed: Mapping[str, str] | None = None,
    vary: Mapping[str, Sequence[str]] | None = None,
    hypothetical: bool = False,
) -> Front:
    """Per-user speed against total throughput.

    ``vary`` None tries :func:`candidates` at batches 1 to 128 and leaves changes of no certain gain out of the front.
    """
    base = _base(topo, model, fixed)
    loader, memo = Loader(hypothetical=hypothetical), Memo(evaluator="estimate")
    scenario = loader.applied(_alone(base)).scenario
    if vary:
        tried = sweep_grid(topo=topo, model=model, vary=vary, fixed=fixed or {})
    else:
        tried = candidates(base, scenario, concurrency=1, batches=_BATCHES)
    outcomes, refused = evaluate(tried, loader, memo, intervals=False)
    if not outcomes:
        raise Infeasible(f"none of {len(tried)} configurations can run: {refused[0].reason}")
    best = front(outcomes)
    if not vary:
        fewest = dict.fromkeys(simplest(each.configuration, loader, memo, kept=dict(base)) for each in best)
        best = front(each for each in outcomes if each.configuration in fewest)
    return Front(
        title=f"{scenario.model.name} on {scenario.fabric.name}",
        outcomes=best,
        others=tuple(each for each in outcomes if each not in best),
        refused=len(refused),
    )


def recommend(
    *,
    topo: str,
    model: str,
    fixed: Mapping[str, str] | None = None,
    objective: str = "latency",
    concurrency: int = 1,
    limit: Seconds = 0.0,
    hypothetical: bool = False,
) -> Advice:
    """The best few configurations by an objective at a number of concurrent sequences.

    ``limit`` is the longest acceptable time per token (0: none); candidates beyond it rank below all within it. What a
    proposal does is needed: changes of no certain gain are left out (:func:`simplest`). Raises Infeasible where nothing
    can run.
    """
    if objective not in OBJECTIVES:
        raise UnknownName("objective", objective, OBJECTIVES)
    base = _base(topo, model, fixed)
    loader, quick = Loader(hypothetical=hypothetical), Memo(evaluator="estimate")
    scenario = loader.applied(_alone(base)).scenario
    tried = candidates(base, scenario, concurrency=concurrency)
    outcomes, refused = evaluate(tried, loader, quick, intervals=False)
    if not outcomes:
        raise Infeasible(f"none of {len(tried)} configurations can run: {refused[0].reason}")
    ordered = ranked(outcomes, objective)
    if limit:
        ordered = (
            *(each for each in ordered if each.latency <= limit),
            *(each for each in ordered if each.latency > limit),
        )
    memo = Memo(evaluator="simulate")
    first = _plain(base, scenario, outcomes, concurrency)
    baseline = _timed(first, loader, memo)
    fewest = dict.fromkeys(
        simplest(each.configuration, loader, quick, kept=fixed or {}, limit=limit) for each in _spread(ordered)
    )
    timed = ranked((_timed(each, loader, memo) for each in fewest if each != first), objective)
    proposals = [_proposal(each, baseline, loader) for each in _spread(timed)]
    ready = tuple(each for each in proposals if not each.missing)[:_SHOWN]
    later = tuple(each for each in proposals if each.missing)[:_SHOWN]
    best = ready[0].gain if ready else gain_of(baseline, baseline)
    then = loader.applied(best.outcome.configuration).scenario
    step = evaluate_step(then, memo.timer(then))
    return Advice(
        title=f"{scenario.model.name} on {scenario.fabric.name}, {scenario.engine.title} {scenario.engine.version}, "
        f"{concurrency} concurrent " + ("sequence" if concurrency == 1 else "sequences"),
        objective=objective,
        baseline=baseline,
        ready=ready,
        later=later,
        doubts=doubts_of(best, baseline)
        if best.outcome != baseline
        else doubts_of(later[0].gain, baseline)
        if later
        else (),
        floor=_floor(then, step),
        break_even=_break_even(best.outcome),
        drafts=_draft_range(best.outcome.configuration, loader, quick),
        limit=limit,
        tried=len(tried),
        refused=len(refused),
    )


def _base(topo: str, model: str, fixed: Mapping[str, str] | None) -> Configuration:
    chosen = {"topo": topo, "model": model, **(fixed or {})}
    check_axes({axis: [value] for axis, value in chosen.items()})
    return tuple(chosen.items())


def _alone(base: Configuration) -> Configuration:
    """The base with what only loads: strategies might be refused before the split is known."""
    return tuple(pair for pair in base if pair[0] in ("topo", "overlay", "model", "engine", "profile"))


def _plain(base: Configuration, scenario: Scenario, outcomes: Iterable[Outcome], concurrency: int) -> Configuration:
    """The engine as it is: all GPUs in one group where that runs, its own all-reduce, NCCL's defaults."""
    able = {each.configuration for each in outcomes}
    widths = sorted({int(dict(each)["tp"]) for each in able}, reverse=True)
    for tp in widths:
        for each in able:
            chosen = dict(each)
            given = set(dict(base))
            plain = all(chosen[axis] == value or axis in given for axis, value in PLAIN.items())
            if int(chosen["tp"]) == tp and plain:
                return each
    return with_choices(base, (("tp", str(len(scenario.gpus))), ("batch", str(concurrency))))


def _timed(configuration: Configuration, loader: Loader, memo: Memo) -> Outcome:
    applied = loader.applied(configuration)
    return outcome_of(configuration, applied.scenario, memo, notes=applied.notes)


def _spread(ordered: Sequence[Outcome]) -> list[Outcome]:
    """The best of every all-reduce and split, best first: the same idea is not shown four times."""
    seen: set[tuple[str, str, str]] = set()
    same: set[tuple[float, int]] = set()  # a setting that changes nothing is no proposal
    kept: list[Outcome] = []
    for each in ordered:
        chosen = dict(each.configuration)
        key = (chosen["tp"], chosen["allreduce"], chosen["nccl"])
        if key not in seen and (each.latency, each.sequences) not in same:
            seen.add(key)
            same.add((each.latency, each.sequences))
            kept.append(each)
    return kept[: 4 * _SHOWN]


def _proposal(outcome: Outcome, baseline: Outcome, loader: Loader) -> Proposal:
    applied = loader.applied(outcome.configuration)
    engine = applied.scenario.engine
    family = engine.name.partition("-")[0]  # sglang-0.5.9 is a version of sglang
    typed: list[str] = [f"{_TP_FLAG[family]} {applied.scenario.parallelism.tp}"] if family in _TP_FLAG else []
    missing: list[str] = []
    for strategy, here, elsewhere in switches(applied.used, family, engine.version):
        if here:
            typed += [each.text for each in here]
        elif elsewhere:
            missing.append(
                f"{strategy.name}: " + "; or ".join(_where(each.engine, each.since, each.text) for each in elsewhere)
            )
        else:
            missing.append(f"{strategy.name}: no released engine has it")
    risks = tuple(dict.fromkeys(s.risk for s, _ in applied.used if s.risk != "none"))
    gain: Gain = gain_of(baseline, outcome)
    return Proposal(gain=gain, switches=tuple(typed), missing=tuple(missing), risks=risks)


def _where(engine: str, since: str, text: str) -> str:
    return f"{engine} {since} has {text}" if since else f"{engine}: {text}"


def _floor(scenario: Scenario, step: Step) -> Floor:
    costs, fabric, gpus = RouteCosts.of(scenario.profile), scenario.fabric, scenario.gpus
    calls = sum(count for op, count in step.counts.items() if op.kind is CollectiveKind.ALL_REDUCE)
    gathers = sum(step.counts.values()) - calls
    farthest = max((costs.store(fabric.route(a, b)) for a in gpus for b in gpus if a != b), default=0.0)
    memory = sum(
        step.kernels[op.kernel].floor
        for op in step.schedule.ops
        if isinstance(op, Compute) and op.kernel in step.kernels
    )
    return Floor(
        calls=calls,
        traversals=calls + gathers,
        wire=(calls + gathers) * farthest,
        nbytes=memory * scenario.gpu.memory_bandwidth,
        memory=memory,
    )


def _draft_range(configuration: Configuration, loader: Loader, memo: Memo) -> DraftRange | None:
    """The best number of drafts for a configuration, and those whose difference from it has no certain sign."""
    if "spec" not in dict(configuration):
        return None
    counts = range(_MOST_DRAFTS + 1)
    cells = [with_choices(configuration, (("spec", f"mtp:{n}" if n else "none"),)) for n in counts]
    outcomes, _ = evaluate(cells, loader, memo)
    if len(outcomes) < len(cells):
        return None
    best = min(counts, key=lambda n: outcomes[n].latency)
    alike = [n for n in counts if n == best or not gain_of(outcomes[best], outcomes[n]).certain]
    return DraftRange(best=best, least=min(alike), most=max(alike))


def _break_even(outcome: Outcome) -> BreakEven | None:
    sums = [line for line in outcome.calls if line.kind == "all_reduce"]
    if not sums:
        return None
    most = max(sums, key=lambda line: line.count)
    less = outcome.step - most.count * US
    none = outcome.step - sum(line.count * line.latency for line in sums)
    return BreakEven(
        nbytes=most.nbytes,
        calls=most.count,
        latency=most.latency,
        algorithm=most.algorithm,
        rate_per_microsecond=outcome.tokens / less - outcome.tokens / outcome.step,
        zero=outcome.tokens / none,
    )
