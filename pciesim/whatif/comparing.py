"""Every combination of choices against a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pciesim.compare.comparison import Comparison, compared
from pciesim.compare.configuration import Configuration, grid, label, with_choices
from pciesim.compare.memo import Memo
from pciesim.compare.outcome import outcome_of
from pciesim.errors import Infeasible
from pciesim.whatif.loading import Loader, check_axes, evaluate

__all__ = ["compare"]


def compare(
    *,
    topo: str,
    model: str,
    vary: Mapping[str, Sequence[str]],
    baseline: Mapping[str, str] | None = None,
    batches: Sequence[int] = (1,),
    evaluator: str = "simulate",
    hypothetical: bool = False,
) -> tuple[Comparison, ...]:
    """Every combination of ``vary`` against the baseline, one comparison a batch size.

    ``vary`` maps axes to values as typed (``{"tp": ["4", "8"]}``); ``baseline`` fixes axes, varied or not; a varied
    axis it leaves out starts from its first value. Raises Infeasible when the baseline itself cannot run.
    """
    fixed = {"topo": topo, "model": model, **(baseline or {})}
    check_axes({axis: [value] for axis, value in fixed.items()})
    check_axes(vary)
    loader, memo = Loader(hypothetical=hypothetical), Memo(evaluator=evaluator)
    axes = [axis for axis in vary if axis != "batch"]
    found: list[Comparison] = []
    for batch in [int(each) for each in vary["batch"]] if "batch" in vary else batches:
        start = with_choices(
            tuple((axis, values[0]) for axis, values in vary.items()), (*fixed.items(), ("batch", str(batch)))
        )
        others = grid(start, {axis: vary[axis] for axis in axes})
        try:
            applied = loader.applied(start)
            first = outcome_of(start, applied.scenario, memo, notes=applied.notes)
        except Infeasible as error:
            raise Infeasible(f"the baseline ({label(start, axes)}) cannot run: {error}") from None
        ordered = [_in_order(each, start) for each in others]
        outcomes, refused = evaluate([each for each in ordered if each != start], loader, memo)
        title = f"{applied.scenario.model.name} on {fixed['topo']}, batch {batch}"
        found.append(compared(title, axes, first, outcomes, refused))
    return tuple(found)


def _in_order(configuration: Configuration, like: Configuration) -> Configuration:
    chosen = dict(configuration)
    return tuple((axis, chosen[axis]) for axis, _ in like)
