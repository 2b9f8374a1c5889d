"""A prediction as text: the answer first, then where the time goes, then how far it can be trusted.

Plain enough to be read without colour and in 80 columns; 100 columns when the output is not a terminal.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pciesim.schedule import Category
from pciesim.units import GB, MS, US, Seconds, format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pciesim.prediction import CollectiveLine, KernelLine, Lever, MemoryUse, Prediction, Request

__all__ = ["CATEGORY_NAMES", "print_prediction", "render", "to_text"]

PIPED_WIDTH: Final = 100
NARROW: Final = 96  # below this, columns stand one space apart
BAR: Final = 24
KERNELS_SHOWN: Final = 8
LEVERS_SHOWN: Final = 3
PARAMETERS_SHOWN: Final = 2

_TABLE: Final = re.compile(
    r"[,;:]| row\b| between "
)  # what follows the table's name in a kernel's detail; --json has all of it
CATEGORY_NAMES: Final[dict[str, str]] = {
    Category.GEMM_MIXER: "GEMM, attention projections",
    Category.GEMM_MLP: "GEMM, dense and shared experts",
    Category.GEMM_ROUTER: "GEMM, router",
    Category.GEMM_HEAD: "GEMM, LM head",
    Category.EXPERTS: "routed experts",
    Category.ATTENTION: "attention",
    Category.DELTA_RULE: "gated delta rule",
    Category.STATE_SPACE: "state space",
    Category.SPARSE_INDEX: "sparse attention index",
    Category.GEMM_OTHER: "GEMM, residual mixing, drafts",
    Category.SMALL: "small kernels and launch gaps",
    Category.ALL_REDUCE: "all-reduce",
    Category.TOKEN_EXCHANGE: "rows between ranks",
    Category.CONTEXT_EXCHANGE: "queries and partial attention",
    Category.PIPELINE: "pipeline transfers",
    Category.LOGITS_GATHER: "logits gather",
    Category.SAMPLING: "sampling broadcasts",
    Category.HOST: "host between steps",
}


def print_prediction(prediction: Prediction) -> None:
    """Print to stdout, in the terminal's width or in 100 plain columns when piped."""
    if not sys.stdout.isatty():
        ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
        sys.stdout.write(to_text(prediction, ascii_only=ascii_only))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as capture:  # not straight to stdout: rich would answer a closed pipe by leaving
        console.print(render(prediction, width=console.width, ascii_only=console.options.ascii_only))
    sys.stdout.write(capture.get())


def to_text(prediction: Prediction, *, width: int = PIPED_WIDTH, ascii_only: bool = False) -> str:
    """The same without colour, as a string without trailing blanks."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, no_color=True)
    with console.capture() as capture:
        console.print(render(prediction, width=width, ascii_only=ascii_only))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def render(prediction: Prediction, *, width: int = PIPED_WIDTH, ascii_only: bool = False) -> RenderableType:
    """Everything the first screen says."""
    gap = 2 if width >= NARROW else 1
    return Group(
        *_headline(prediction),
        *_section(
            f"Where a {_unit(prediction)} goes", _breakdown(prediction, ascii_only=ascii_only), *_bound(prediction)
        ),
        *_section(
            "Collectives", _collectives(prediction.collectives, gap), *_links(prediction), *_own_kernel(prediction)
        ),
        *_section("What could be removed", *_levers(prediction.levers)),
        *_section("How sure", *_sureness(prediction)),
        *_section("Assumed", *_assumptions(prediction)),
        *_section("Kernels", *_kernels(prediction.kernels, gap)),
        *_section("Memory of the fullest GPU", _memory(prediction.memory)),
        *_section("Settings", _settings(prediction.request)),
    )


# -- the answer ---------------------------------------------------------------------------------------------------


def _headline(prediction: Prediction) -> Iterable[RenderableType]:
    request, step = prediction.request, prediction.step_latency
    user, total = prediction.tokens_per_second_user, prediction.tokens_per_second_total
    users = "one user" if request.batch == 1 else f"batch {request.batch}"
    yield Text(f"{request.model} on {request.topology}", style="bold")
    prompt = request.phase == "prefill"
    cached = f"after {request.context:,} cached" if request.context else ""
    work = f"prompt {request.prompt:,} {cached}".rstrip() if prompt else f"context {request.context:,}"
    changes = "".join(f", {each}" for each in request.strategies)
    gpus = f"{request.dp * len(request.gpus)} x {request.gpu_model}"
    yield Text(f"{gpus}, {_split(request)}, {request.engine}{changes}, {users}, {work}")
    if request.choice:
        yield Text(request.choice)
    yield Text("")
    what = "to the first token" if prompt else "a step"
    tokens = "prompt tok/s" if prompt else "tok/s"
    yields = prediction.tokens_per_step
    drafts = f" of {yields.value:.2f} tokens ({yields.low:.2f} to {yields.high:.2f})" if yields.value != 1 else ""
    yield _answer(f"{_ms(step.value)} ms", f" {what} ({_ms(step.low)} to {_ms(step.high)}){drafts}")
    yield _answer(f"{user.value:.1f} {tokens}", f" for each user ({user.low:.1f} to {user.high:.1f})")
    if total != user:
        yield _answer(f"{total.value:.1f} {tokens}", f" for the whole box ({total.low:.1f} to {total.high:.1f})")
    for note in prediction.warnings:
        yield Text(f"  Note: {note}", style="yellow")


def _unit(prediction: Prediction) -> str:
    """What the latency is that of."""
    return "prompt" if prediction.request.phase == "prefill" else "step"


def _split(request: Request) -> str:
    """``TP8``, ``TP4 x PP2``, ``TP8 EP8 (attention DP8)``, ``2 x TP4``."""
    text = f"TP{request.tp}"
    text += f" EP{request.ep}" if request.ep > 1 else ""
    text += f" (attention DP{request.attention_dp})" if request.attention_dp > 1 else ""
    text += f" x PP{request.pp}" if request.pp > 1 else ""
    return f"{request.dp} x {text}" if request.dp > 1 else text


def _answer(figure: str, rest: str) -> Text:
    return Text.assemble("  ", (figure, "bold green"), rest)


def _ms(value: Seconds) -> str:
    """Milliseconds with three significant digits: ``14.0``, ``7.25``, ``112``."""
    return f"{value / MS:.0f}" if value >= 1 else f"{value / MS:#.3g}".rstrip(".")


# -- where the time goes ------------------------------------------------------------------------------------------


def _breakdown(prediction: Prediction, *, ascii_only: bool) -> Table:
    table = _table(2, "", ">ms", ">share", "")
    values = [share.value for _, share in prediction.breakdown]
    total = prediction.step_latency.value
    longest = max(values, default=0.0) or 1.0
    for (name, share), shown in zip(prediction.breakdown, _adding_up(values, total), strict=True):
        bar = ("#" if ascii_only else "█") * round(BAR * share.value / longest)
        table.add_row(
            CATEGORY_NAMES.get(name, name.replace("_", " ")), shown, f"{share.value / total:.0%}", Text(bar, "cyan")
        )
    table.add_section()
    table.add_row(f"a {_unit(prediction)}", f"{total / MS:.2f}", "100%", "")
    return table


def _bound(prediction: Prediction) -> Iterable[Text]:
    """Of a prompt, whether its collectives or its kernels take longer: the former is what PCIe does to prompts."""
    if _unit(prediction) != "prompt" or not prediction.collectives:
        return
    largest = max(prediction.collectives, key=lambda line: line.count * line.latency.value)
    calls = sum(line.count * line.latency.value for line in prediction.collectives)
    kernels = sum(line.count * line.time.value for line in prediction.kernels)
    bound = "communication" if calls > kernels else "its kernels"
    yield Text("")
    yield Text(
        f"Bound by {bound}: {largest.count} {largest.kind.replace('_', '-')}s of {format_bytes(largest.nbytes)} at "
        f"{largest.latency.value / MS:.2f} ms each; "
        f"{calls / MS:.0f} ms of collectives, {kernels / MS:.0f} ms of kernels"
    )


def _adding_up(values: list[Seconds], total: Seconds) -> list[str]:
    """Milliseconds with two decimals that add up to the total as it is printed.

    Rounds running sums, so no entry is off by more than one in its last digit.
    """
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    scale = total / sums[-1] if sums[-1] else 1.0
    steps = [round(each * scale / MS, 2) for each in sums]
    return [f"{after - before:.2f}" for before, after in pairwise(steps)]


def _collectives(lines: tuple[CollectiveLine, ...], gap: int) -> Table:
    transport, traversals = ("transport", "traversals") if gap > 1 else ("via", "trav.")
    table = _table(gap, "", ">calls", ">bytes", "algorithm", "protocol", transport, ">us each", f">{traversals}")
    for line in lines:
        each = line.latency
        table.add_row(
            line.kind.replace("_", "-"),
            str(line.count),
            format_bytes(line.nbytes),
            line.algorithm,
            line.protocol,
            line.transport,
            f"{each.value / US:.1f} ({each.low / US:.0f} to {each.high / US:.0f})",
            str(line.traversals),
        )
    return table


def _links(prediction: Prediction) -> Iterable[Text]:
    lines, total = prediction.collectives, prediction.traversals
    terms = " + ".join(f"{line.count} x {line.traversals}" for line in lines)
    adds_up = lines and sum(line.count * line.traversals for line in lines) == total
    yield Text("")
    drafts = prediction.tokens_per_step.value != 1
    unit = "prompt" if _unit(prediction) == "prompt" else "step" if drafts else "token"
    yield Text.assemble(
        f"PCIe traversals per {unit} on the critical path: ",
        (f"{total:,}", "bold"),
        f" = {terms}" if adds_up else "",
        f"; {prediction.traversals_per_token:,.0f} a token" if drafts else "",
        " (those of your kernel are not known)" if prediction.own_kernel else "",
    )
    if (link := prediction.busiest_link) is not None:
        carried = f"{format_bytes(link.nbytes)} a {_unit(prediction)}"
        yield Text(f"Busiest link: {link.name}, {carried}, busy {_percent(link.busy)} of it")
    for more in dict.fromkeys(line.in_step for line in lines if line.in_step):
        yield Text(f"Of each call, {more / US:.1f} us is there only among other kernels: cold code, ranks apart")
    for kind, reason in dict.fromkeys((line.kind, line.reason) for line in lines if line.reason):
        yield Text(f"Why, for {kind.replace('_', '-')}: {reason}")


def _own_kernel(prediction: Prediction) -> Iterable[Text]:
    """What an all-reduce of the user's own buys, and the latency at which it would not."""
    gain = prediction.own_kernel
    if gain is None:
        return
    yield Text("")
    verb = "saves" if gain.saves >= 0 else "costs"
    yield Text.assemble(
        "Your kernel ", (f"{verb} {abs(gain.saves) / MS:.2f} ms", "bold"),
        f" a {_unit(prediction)} against what {prediction.request.engine} does by itself:",
    )  # fmt: skip
    for each in gain.against:
        yield Text(
            f"  {each.count} of {format_bytes(each.nbytes)}: {each.own / US:.1f} us, breaks even at "
            f"{each.latency / US:.1f} us ({each.algorithm})"
        )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _levers(levers: tuple[Lever, ...]) -> Iterable[RenderableType]:
    largest = sorted(levers, key=lambda lever: -lever.saves.value)[:LEVERS_SHOWN]
    if not largest:
        yield Text("nothing that pciesim knows of")
        return
    table = _table(2, ">saves", "", header=False)
    for lever in largest:
        saves = lever.saves
        what = Text.assemble((lever.what, "bold"), f": {lever.how}")
        if lever.caveat:
            what.append(f"; {lever.caveat}", style="dim")
        table.add_row(f"{saves.value / MS:.2f} ms ({saves.low / MS:.2f} to {saves.high / MS:.2f})", what)
    yield table


# -- how far to trust it ------------------------------------------------------------------------------------------


def _sureness(prediction: Prediction) -> Iterable[Text]:
    widest = sorted(prediction.sensitivities, key=lambda each: -each.effect)[:PARAMETERS_SHOWN]
    yield Text("The ranges hold the truth with about 90 % confidence. What widens them most:")
    if not widest:
        yield Text("  nothing: every parameter is taken as exact")
    for each in widest:
        yield Text(f"  {each.effect / MS:.2f} ms either way: {each.parameter} ({each.evidence})")


def _assumptions(prediction: Prediction) -> Iterable[RenderableType]:
    if not prediction.assumptions:
        yield Text("nothing: the input says it all")
        return
    table = _table(1, "", "", header=False)
    for each in prediction.assumptions:
        text = Text(each.text)
        if each.matters:
            text.append(f" (matters for: {each.matters})", style="dim")
        if each.settle:
            text.append(f"\nto settle: {each.settle}", style="dim")
        table.add_row("-", text)
    yield table


def _kernels(lines: tuple[KernelLine, ...], gap: int) -> Iterable[RenderableType]:
    total = sum(line.count * line.time.value for line in lines)
    by_source: dict[str, float] = {}
    for line in lines:
        by_source[str(line.source)] = by_source.get(str(line.source), 0.0) + line.count * line.time.value
    ranked = sorted(by_source.items(), key=lambda entry: -entry[1])
    if total:
        yield Text("Time by source: " + ", ".join(f"{source} {spent / total:.0%}" for source, spent in ranked))
    table = _table(gap, "", ">calls", ">us each", ">floor us", "source", "from")
    longest = sorted(lines, key=lambda line: -line.count * line.time.value)
    for line in longest[:KERNELS_SHOWN]:
        table.add_row(
            line.name,
            str(line.count),
            f"{line.time.value / US:.1f}",
            f"{line.floor / US:.1f}",
            str(line.source),
            Text(_TABLE.split(line.detail)[0], "dim"),
        )
    yield table
    if rest := longest[KERNELS_SHOWN:]:
        spent = sum(line.count * line.time.value for line in rest)
        yield Text(
            f"and {len(rest)} more kinds, {format_seconds(spent)} together (--json has all, and how each was found)"
        )


def _memory(memory: MemoryUse) -> Text:
    parts = {
        "weights": memory.weights, "KV cache": memory.kv_cache, "recurrent state": memory.state,
        "activations": memory.activations, "communication buffers": memory.buffers,
        "graphs and context": memory.graphs,
    }  # fmt: skip
    named = ", ".join(f"{name} {nbytes / GB:.2f}" for name, nbytes in parts.items() if nbytes)
    text = f"{memory.used / GB:.1f} of {memory.capacity / GB:.1f} GB ({named})"
    room = [f"{memory.most_sequences:,} sequences of this context"] if memory.most_sequences else []
    room += [f"a context of {memory.most_context:,} for each sequence of this batch"] if memory.most_context else []
    return Text(f"{text}\nroom for {' or '.join(room)}" if room else text)


def _settings(request: Request) -> Text:
    """Every option with the value that was used, whether asked for or a default."""
    return Text(
        f"phase {request.phase}, tp {request.tp}, ep {request.ep}, pp {request.pp}, dp {request.dp}, "
        f"attention-dp {request.attention_dp}, batch {request.batch}, context {request.context}, {_prompt(request)}"
        f"gpus {_ranges(request.gpus)}, engine {request.engine}, allreduce {request.allreduce}, "
        f"profile {request.profile}, evaluator {request.evaluator}"
        + (f", with {', '.join(request.strategies)}" if request.strategies else "")
    )


def _prompt(request: Request) -> str:
    return f"prompt {request.prompt}, chunk {request.chunk}, " if request.phase == "prefill" else ""


def _ranges(numbers: tuple[int, ...]) -> str:
    """``(0, 1, 2, 5)`` -> ``'0-2,5'``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


# -- layout -------------------------------------------------------------------------------------------------------


def _section(title: str, *parts: RenderableType) -> Iterable[RenderableType]:
    yield Text("")
    yield Text(title, style="bold")
    for part in parts:
        yield Padding(part, (0, 0, 0, 2))


def _table(gap: int, *columns: str, header: bool = True) -> Table:
    """A table without frames. A column whose title begins with ``>`` is set to the right; the last one may wrap."""
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=header, header_style="dim")
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold", no_wrap=right)
    return table
