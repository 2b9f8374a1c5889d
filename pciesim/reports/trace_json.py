"""A step and its collectives as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

One track a GPU stream; of each distinct collective, where it first runs, one track a directed link it crosses, and a
counter of how full the link is. What a link carries is shown as slices between the instants at which its set of flows
changes, so slices of a track never overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pciesim.collectives.program import Program, Transfer
from pciesim.evaluate.simulate import ProgramRun, simulate
from pciesim.schedule import Collective, Compute
from pciesim.units import NS, US, Seconds

if TYPE_CHECKING:
    from pciesim.scenario import Scenario
    from pciesim.step import Step

__all__ = ["trace_events", "trace_json"]

_STEP, _LINKS = 1, 2  # process numbers
_DIGITS: Final = 4  # of a microsecond: a tenth of a nanosecond
_SHORTEST: Final = NS / 2  # shorter slices would vanish in rounding
_STREAMS: Final = {0: "main stream", 1: "side stream", 7: "overlapped collectives", 8: "delayed sums", 9: "host"}


def trace_json(scenario: Scenario, step: Step) -> str:
    """The trace as JSON text (Trace Event Format, ``displayTimeUnit`` ns)."""
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": list(trace_events(scenario, step))}, allow_nan=False)


def trace_events(scenario: Scenario, step: Step) -> Iterable[dict[str, Any]]:
    """Names of the tracks, then slices and counters; times in microseconds."""
    yield _name("process_name", _STEP, 0, f"a rank: {scenario.model.name} on {scenario.fabric.name}")
    for stream in sorted({span.stream for span in step.timeline.spans}):
        yield _name("thread_name", _STEP, stream, _STREAMS.get(stream, f"stream {stream}"))
    yield from _ops(step)
    first: dict[Collective, Seconds] = {}
    for span in step.timeline.spans:
        op = step.schedule.ops[span.op]
        if isinstance(op, Collective):
            first.setdefault(op, span.start)
    if not first:
        return
    yield _name("process_name", _LINKS, 0, "links, while each distinct collective runs for the first time")
    names = [f"{link.source} -> {link.target}" for link in scenario.fabric.links]
    names += [limit.name for limit in scenario.fabric.constraints]
    shown: set[int] = set()
    for op, begin in first.items():
        program = step.timed[op].lowered.program
        for event in _links(op.name, program, simulate(program), begin, names):
            if event["ph"] == "X" and event["tid"] not in shown:
                shown.add(event["tid"])
                yield _name("thread_name", _LINKS, event["tid"], names[event["tid"]])
            yield event


def _ops(step: Step) -> Iterable[dict[str, Any]]:
    """Slices of the streams. The launch gap after a kernel is a pause on its track."""
    for span in step.timeline.spans:
        op = step.schedule.ops[span.op]
        end = span.end
        details: dict[str, Any] = {"category": str(op.category), "op": span.op}
        if isinstance(op, Collective):
            timed = step.timed[op]
            details |= {
                "bytes": op.nbytes,
                "algorithm": timed.lowered.algorithm,
                "protocol": timed.lowered.protocol,
                "traversals": timed.lowered.program.traversals,
            }
            name = f"{str(op.kind).replace('_', '-')} {op.name}"
        else:
            name = op.name
            if isinstance(op, Compute) and op.kernel in step.kernels:
                time = step.kernels[op.kernel]
                end -= step.gap.value
                details |= {"source": str(time.source), "from": time.detail, "kernel": type(op.kernel).__name__}
        if end > span.start:
            yield _slice(name, (_STEP, span.stream), span.start, end, details)


def _links(
    name: str, program: Program, run: ProgramRun, begin: Seconds, names: Sequence[str]
) -> Iterable[dict[str, Any]]:
    flows: dict[int, list[tuple[Seconds, Seconds, float, Transfer]]] = {}
    for position, step in enumerate(program.steps):
        if not isinstance(step, Transfer) or not step.nbytes:
            continue
        start, end = run.started[position] + step.latency, run.ended[position]
        if step.behind is not None:
            start = max(start, run.ended[step.behind])
        if end <= start:
            continue
        for link, used in step.uses:
            flows.setdefault(link, []).append((start, end, used * step.nbytes / (end - start), step))
    for link, users in sorted(flows.items()):
        edges = sorted({time for start, end, _, _ in users for time in (start, end)})
        for left, right in pairwise(edges):
            present = [each for each in users if each[0] <= left and each[1] >= right]
            full = sum(rate for _, _, rate, _ in present) / program.capacity[link]
            yield _counter(f"load of {names[link]}", begin + left, min(1.0, full))
            if present and right - left >= _SHORTEST:
                pairs = ", ".join(f"{t.source}>{t.target}" for *_, t in present)
                told = f"{name}: {len(present)} flow" + ("s" if len(present) > 1 else "")
                yield _slice(
                    told, (_LINKS, link), begin + left, begin + right, {"ranks": pairs, "share_of_link": round(full, 4)}
                )
        yield _counter(f"load of {names[link]}", begin + edges[-1], 0.0)


def _slice(name: str, track: tuple[int, int], start: Seconds, end: Seconds, details: dict[str, Any]) -> dict[str, Any]:
    left, right = round(start / US, _DIGITS), round(end / US, _DIGITS)
    return {"name": name, "ph": "X", "pid": track[0], "tid": track[1], "ts": left, "dur": round(right - left, _DIGITS),
            "args": details}  # fmt: skip


def _counter(name: str, time: Seconds, value: float) -> dict[str, Any]:
    return {"name": name, "ph": "C", "pid": _LINKS, "ts": round(time / US, _DIGITS), "args": {"share": round(value, 4)}}


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
