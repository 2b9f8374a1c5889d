"""Advice as text: what to do, how it is turned on, how sure that is, and what is left to gain."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pciesim.compare.configuration import label
from pciesim.units import MS, US, format_bytes

if TYPE_CHECKING:
    from pciesim.compare.advice import Advice, Proposal

__all__ = ["advice_text"]

_AXES: Final = ("tp", "dp", "ep", "pp", "attention-dp", "batch", "allreduce", "nccl", "spec", "host", "fused")
_PERCENT: Final = 100
_WIDTH: Final = 104


def advice_text(advice: Advice) -> str:
    """Plain text in about a hundred columns."""
    return "\n".join(_lines(advice)) + "\n"


def _lines(advice: Advice) -> Iterable[str]:
    base = advice.baseline
    yield advice.title
    yield (
        f"objective: {advice.objective}; {advice.tried} configurations tried, {advice.refused} of them cannot run; "
        "the best ones simulated, without changes that have no certain gain of their own"
    )
    yield (
        f"the engine as it is ({label(base.configuration, _AXES)}): {base.latency / MS:.2f} ms a token, "
        f"{base.user.value:.1f} tok/s a user, {base.total.value:.0f} in total, "
        f"{base.traversals_per_token:,.0f} traversals a token"
    )
    if advice.limit:
        best = advice.best
        verdict = "yes" if advice.met_surely else "yes, but not for the whole interval" if advice.met else "no"
        yield (
            f"at most {advice.limit / MS:.3g} ms a token: {verdict} "
            f"(best: {best.latency / MS:.2f}, {best.latency_interval.low / MS:.2f} to "
            f"{best.latency_interval.high / MS:.2f})"
        )
    yield ""
    yield "Can be done with this engine"
    if not advice.ready:
        yield "  nothing beats the engine as it is"
    for number, each in enumerate(advice.ready, 1):
        yield from _proposal(number, each)
    if advice.later:
        yield ""
        yield "Needs more than this engine has"
        for number, each in enumerate(advice.later, 1):
            yield from _proposal(number, each)
    notes = dict.fromkeys(note for each in (*advice.ready, *advice.later) for note in each.gain.outcome.notes)
    if notes:
        yield ""
        yield "To know"
        for note in notes:
            yield from textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    yield ""
    yield "To be surer of the first gain, measure"
    for doubt in advice.doubts:
        yield from textwrap.wrap(
            f"{doubt.effect / MS:.3f} ms: {doubt.figure} ({doubt.evidence}): {doubt.settle}", _WIDTH,
            initial_indent="  ", subsequent_indent="      ",
        )  # fmt: skip
    if not advice.doubts:
        yield "  nothing: the difference does not depend on an uncertain figure"
    if advice.drafts is not None:
        drafts = advice.drafts
        span = f"; {drafts.least} to {drafts.most} cannot be told apart" if drafts.least < drafts.most else ""
        yield ""
        yield f"Drafts: {drafts.best} an iteration serve a user fastest with the first configuration{span}"
    yield ""
    yield "What is left"
    floor = advice.floor
    yield (
        f"  floor: {floor.calls} all-reduces a step cannot need fewer than {floor.traversals} traversals "
        f"({floor.wire / MS:.2f} ms at the farthest pair's latency);"
    )
    yield (
        f"  {format_bytes(floor.nbytes)} read by each GPU a step are {floor.memory / MS:.2f} ms of memory bandwidth; "
        f"together {floor.step / MS:.2f} ms, the best above takes {advice.best.step / MS:.2f}"
    )
    if (even := advice.break_even) is not None:
        yield (
            f"  for kernel writers: {even.calls} all-reduces of {format_bytes(even.nbytes)} take "
            f"{even.latency / US:.1f} us each ({even.algorithm}): a kernel under that wins;"
        )
        yield (
            f"  every microsecond less a call is worth {even.rate_per_microsecond:.2f} tok/s a user; "
            f"free all-reduces would give {even.zero:.1f}"
        )


def _proposal(number: int, proposal: Proposal) -> Iterable[str]:
    gain, outcome = proposal.gain, proposal.gain.outcome
    speed = gain.speed_up
    yield (
        f"  {number}. {label(outcome.configuration, _AXES)}: {outcome.latency / MS:.2f} ms a token, "
        f"{outcome.user.value:.1f} tok/s a user, {outcome.total.value:.0f} in total"
    )
    yield (
        f"     {_percent(speed.value)} a user ({_percent(speed.low)} to {_percent(speed.high)}), {gain.sign}; "
        f"total {_percent(gain.total.value)}; {outcome.traversals_per_token:,.0f} traversals a token"
    )
    if proposal.switches:
        yield f"     turn on: {'  '.join(proposal.switches)}"
    for each in proposal.missing:
        yield from textwrap.wrap(f"needs {each}", _WIDTH, initial_indent="     ", subsequent_indent="       ")
    for each in proposal.risks:
        yield from textwrap.wrap(f"risk: {each}", _WIDTH, initial_indent="     ", subsequent_indent="       ")


def _percent(speed_up: float) -> str:
    return f"{(speed_up - 1) * _PERCENT:+.0f}%"
