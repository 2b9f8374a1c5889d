"""How well kernel lookups predict rows that were held out.

    python calibration/kernels/check_tables.py           # prints the table
    python calibration/kernels/check_tables.py --write   # also puts it into docs/kernels.md

Every line holds out part of the measured rows, predicts them through the same functions that a prediction uses, and
reports the relative error (median, 90th percentile, bias) and how often the range held the row.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pciesim.formats.catalogue import gpu_type
from pciesim.formats.kernel_tables import load_kernel_tables
from pciesim.kernels import Backends, CurveTable, Donor, KernelLibrary, KernelTime
from pciesim.kernels.attention import attention_time
from pciesim.kernels.cold import as_cold
from pciesim.kernels.delta_rule import delta_rule_time
from pciesim.kernels.experts import experts_time
from pciesim.kernels.gemm import gemm_time
from pciesim.kernels.roofline import cold_time
from pciesim.kernels.work import work
from pciesim.model import Precision
from pciesim.schedule import DecodeAttention, DeltaRule, Gemm, RoutedExperts

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "kernels.md"
BEGIN, END = "<!-- held-out: begin -->", "<!-- held-out: end -->"
ALIKE_BEGIN, ALIKE_END = "<!-- alike: begin -->", "<!-- alike: end -->"
DECODE_ROWS = (1, 4, 16, 64, 256)
MOST_EXPERT_TOKENS = 128

Pair = tuple[KernelTime, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table. Errors are |log(predicted / row)|."""

    what: str
    count: int
    median: float
    p90: float
    bias: float
    covered: float


def line(what: str, pairs: Iterable[Pair]) -> Line:
    """The errors of predictions against held-out rows (seconds)."""
    pairs = list(pairs)
    errors = [math.log(time.value / row) for time, row in pairs]
    sizes = sorted(map(abs, errors))
    return Line(
        what=what,
        count=len(pairs),
        median=statistics.median(sizes),
        p90=sizes[int(0.9 * (len(sizes) - 1))],
        bias=statistics.median(errors),
        covered=sum(time.low <= row <= time.high for time, row in pairs) / len(pairs),
    )


def donor(gpu: str) -> Donor:
    """A measured GPU with its shipped tables."""
    return Donor(gpu=gpu_type(gpu), tables=load_kernel_tables(gpu, HERE))


def check() -> list[Line]:
    """All lines, in the order of the page."""
    rtx, h200 = donor("rtx_pro_6000"), donor("h200")
    lines = []
    for precision in ("bf16", "fp8", "nvfp4"):
        for axis, name in ((0, "n"), (1, "k")):
            lines.append(line(f"GEMM {precision}, one {name} held out", held_out_gemm(rtx, precision, axis)))
        lines.append(line(f"GEMM {precision}, one m held out", held_out_m(rtx, precision)))
    lines.append(line("GEMM bf16, weights of 28 MB and more by launch + bytes", gemm_from_memory(rtx)))
    lines.append(line("GEMM bf16 on H200, one shape held out", held_out_shape(h200)))
    vllm = Backends(engine="vllm", experts="flashinfer_cutlass")
    for name in ("vllm__flashinfer_cutlass__nvfp4", "vllm__flashinfer_cutlass__fp8", "sglang__triton__fp8_block"):
        lines.append(line(f"Experts {name}, one token count held out", held_out_tokens(rtx, name)))
    lines.append(line("Experts nvfp4, SGLang's rows from vLLM's", other_engine(rtx, "sglang", vllm)))
    lines.append(line("Experts nvfp4, TensorRT-LLM's rows from vLLM's", other_engine(rtx, "trtllm", vllm)))
    for name in ("vllm__flashinfer_cutlass__nvfp4", "sglang__triton__fp8_block"):
        lines.append(line(f"Experts {name}, one model's shape held out", held_out_experts(rtx, name)))
    for name in ("flashinfer__fp8__128__0", "flashinfer__bf16__256__0", "triton__fp8__64__0"):
        lines.append(line(f"Attention {name}, one context held out", held_out_context(rtx, name)))
        lines.append(line(f"Attention {name}, one batch held out", held_out_batch(rtx, name)))
        lines.append(line(f"Attention {name}, one head count held out", held_out_heads(rtx, name)))
    lines.append(line("Delta rule, one head configuration held out", held_out_delta(rtx)))
    lines.append(line("GEMM bf16 on H200 from RTX PRO 6000", borrowed_gemm(h200, rtx)))
    lines.append(line("GEMM bf16 on RTX PRO 6000 from H200", borrowed_gemm(rtx, h200)))
    lines.append(line("Attention bf16 on H200 from RTX PRO 6000", borrowed_attention(h200, rtx)))
    return lines


def with_table(base: Donor, table: CurveTable) -> Donor:
    """The same donor with one table exchanged."""
    return replace(base, tables=base.tables.replaced(table))


def stands(kernel: Gemm, seconds: float, base: Donor) -> bool:
    """Whether a row is used as it is: its weights came from device memory, or that would not have been slower."""
    resident = work(kernel).weights < base.constants.l2_resident * base.gpu.l2 and kernel.m <= 64
    return not resident or seconds >= cold_time(work(kernel), base.gpu, base.constants)


def table_of(base: Donor, name: str) -> CurveTable:
    """A table that must be there."""
    table = base.tables.table(name)
    if table is None:
        raise SystemExit(f"no table {name}")
    return table


def held_out_gemm(base: Donor, precision: str, axis: int) -> Iterator[Pair]:
    """Every inner value of n (axis 0) or k (axis 1) dropped from the grid in turn."""
    table = table_of(base, f"gemm/{precision}")
    for value in table.values(axis)[1:-1]:
        dropped = [key for key in table.lines if int(key[axis]) == value]
        reduced = with_table(base, table.without(dropped))
        for key in dropped:
            n, k = map(int, key)
            curve = table.curve(n, k)
            for m in DECODE_ROWS:
                kernel = Gemm(m=m, n=n, k=k, precision=Precision(precision))
                if curve is not None and min(n, k) >= 256 and stands(kernel, curve.at(m), base):
                    yield gemm_time(kernel, reduced), curve.at(m)


def held_out_m(base: Donor, precision: str) -> Iterator[Pair]:
    """Every inner m dropped from each curve in turn, shapes of n and k >= 256."""
    table = table_of(base, f"gemm/{precision}")
    points = [int(point) for point in table.points]
    for m in points[1:-1:4]:
        reduced = with_table(base, without_point(table, m))
        for n, k in ((int(key[0]), int(key[1])) for key in table.lines):
            curve = table.curve(n, k)
            if curve is not None and min(n, k) >= 256:
                kernel = Gemm(m=m, n=n, k=k, precision=Precision(precision))
                if stands(kernel, curve.at(m), base):
                    yield gemm_time(kernel, reduced), curve.at(m)


def without_point(table: CurveTable, point: float) -> CurveTable:
    """The table with one column emptied."""
    index = table.points.index(point)
    lines = {}
    for key, text in table.lines.items():
        cells = text.split(",")
        cells[index] = ""
        lines[key] = ",".join(cells)
    return replace(table, lines=lines, _curves={}, _values={})


def gemm_from_memory(base: Donor) -> Iterator[Pair]:
    """The line that stands for cold weights, on rows whose weights certainly came from device memory."""
    table = table_of(base, "gemm/bf16")
    for key in table.lines:
        n, k = map(int, key)
        curve = table.curve(n, k)
        for m in (m for m in DECODE_ROWS if m <= 64):
            kernel = Gemm(m=m, n=n, k=k, precision=Precision.BF16)
            weights = work(kernel).weights
            if curve is None or not 28e6 <= weights <= 600e6 or min(n, k) < 1024 or k > 16384:
                continue
            value = cold_time(work(kernel), base.gpu, base.constants)
            time = gemm_time(kernel, base)
            yield replace(time, value=value, low=value * 0.85, high=value * 1.12), curve.at(m)


def held_out_shape(base: Donor) -> Iterator[Pair]:
    """Every (n, k) of scattered shapes dropped in turn, the smallest and the largest kept."""
    table = table_of(base, "gemm/bf16")
    for key in sorted(table.lines, key=lambda key: int(key[0]) * int(key[1]))[1:-1]:
        reduced = with_table(base, table.without([key]))
        curve = table.curve(*key)
        for m in DECODE_ROWS:
            kernel = Gemm(m=m, n=int(key[0]), k=int(key[1]), precision=Precision.BF16)
            if curve is not None:
                yield gemm_time(kernel, reduced), curve.at(m)


def expert_kernel(key: Sequence[str], tokens: float, precision: str) -> RoutedExperts:
    """The kernel of a row."""
    hidden, intermediate, top_k, experts, tp, ep = map(int, key[:6])
    return RoutedExperts(
        tokens=int(tokens), hidden=hidden, intermediate=intermediate, experts=experts, top_k=top_k, tp=tp, ep=ep,
        precision=Precision(precision),
    )  # fmt: skip


def backends_of(name: str, routing: str) -> Backends:
    """The engine and backend that a table of experts belongs to."""
    engine, experts, _ = name.split("__")
    return Backends(engine=engine, experts=experts, routing=routing)


def expert_rows(base: Donor, table: CurveTable, tokens: Sequence[int]) -> Iterator[tuple[Sequence[str], int, float]]:
    """(key, tokens, seconds) of gated experts, with their weights in device memory."""
    precision = table.name.split("__")[2]
    for key in table.lines:
        curve = table.curve(*key)
        if curve is None or key[2] == "22":
            continue
        curve = as_cold(curve, expert_kernel(key, 1, precision), table.name, base, key[6])
        yield from ((key, point, curve.at(point)) for point in tokens if curve.measured(point))


def held_out_tokens(base: Donor, name: str) -> Iterator[Pair]:
    """Every inner token count up to 128 dropped in turn; the grid is doubled where a row is missing."""
    table = table_of(base, f"moe/{name}")
    precision = name.split("__")[2]
    for tokens in (int(point) for point in table.points[1:-1] if point <= MOST_EXPERT_TOKENS):
        reduced = with_table(base, without_point(table, tokens))
        for key, _, seconds in expert_rows(base, table, (tokens,)):
            yield experts_time(expert_kernel(key, tokens, precision), reduced, backends_of(name, key[6])), seconds


LENT_ROWS = {"sglang": "sglang__flashinfer_cutlass__nvfp4", "trtllm": "trtllm__cutlass__nvfp4"}


def other_engine(base: Donor, engine: str, wanted: Backends) -> Iterator[Pair]:
    """Rows of one engine predicted by the rows of another with the same kernel family and shape."""
    yield from ((time, seconds) for _, _, time, seconds in lent_rows(base, engine, wanted))


def lent_rows(base: Donor, engine: str, wanted: Backends) -> Iterator[tuple[Sequence[str], int, KernelTime, float]]:
    """(key, tokens, prediction, row) of all rows of an engine that vLLM has too."""
    table, lender = table_of(base, f"moe/{LENT_ROWS[engine]}"), table_of(base, "moe/vllm__flashinfer_cutlass__nvfp4")
    stripped = with_table(base, table.without(list(table.lines)))
    for key, tokens, seconds in expert_rows(base, table, (1, 2, 4, 8, 16, 32, 64, 128)):
        if lender.curve(*key) is not None:
            asked = replace(wanted, engine=engine, routing=key[6])
            yield key, tokens, experts_time(expert_kernel(key, tokens, "nvfp4"), stripped, asked), seconds


def held_out_experts(base: Donor, name: str) -> Iterator[Pair]:
    """Every model's shape dropped from all tables of the precision in turn, predicted from the nearest other."""
    precision = name.split("__")[2]
    table = table_of(base, f"moe/{name}")
    for shape in sorted({key[:4] for key in table.lines}):
        reduced = base
        for other in (each for each in base.tables.names if each.startswith("moe/") and each.endswith(precision)):
            rows = table_of(base, other)
            reduced = with_table(reduced, rows.without([key for key in rows.lines if key[:4] == shape]))
        for key, tokens, seconds in expert_rows(base, table, (1, 4, 16, 64)):
            if key[:4] == shape and key[6] == "power_law_1.01":
                yield experts_time(expert_kernel(key, tokens, precision), reduced, backends_of(name, key[6])), seconds


def attention_kernel(name: str, key: Sequence[str], context: float) -> DecodeAttention:
    """The kernel of a row."""
    _, precision, head_dim, window = name.split("__")
    heads, kv_heads, batch = map(int, key)
    return DecodeAttention(
        batch=batch, new_tokens=1, context=int(context), heads=heads, kv_heads=kv_heads, head_dim=int(head_dim),
        window=int(window), kv_precision=Precision(precision),
    )  # fmt: skip


def attention_pairs(
    base: Donor, name: str, reduced: Donor, keep: Callable[[Sequence[str], float], bool]
) -> Iterator[Pair]:
    """Rows whose cache came from device memory or is too small to matter: more than L2, or below a fifth of it."""
    table = table_of(base, f"attention/{name}")
    backends = Backends(attention=name.split("__", maxsplit=1)[0])
    for key in table.lines:
        curve = table.curve(*key)
        if curve is None:
            continue
        for context, seconds in zip(curve.points, curve.seconds, strict=True):
            kernel = attention_kernel(name, key, context)
            cache = work(kernel).weights
            if keep(key, context) and (cache > 1.2 * base.gpu.l2 or cache < 0.02 * base.gpu.l2):
                yield attention_time(kernel, reduced, backends), seconds


def held_out_context(base: Donor, name: str) -> Iterator[Pair]:
    """Every inner context dropped in turn."""
    table = table_of(base, f"attention/{name}")
    for point in table.points[4:-1]:
        reduced = with_table(base, without_point(table, point))
        yield from attention_pairs(base, name, reduced, lambda _, context, point=point: context == point)


def held_out_batch(base: Donor, name: str) -> Iterator[Pair]:
    """Every inner batch dropped in turn."""
    table = table_of(base, f"attention/{name}")
    for batch in sorted({int(key[2]) for key in table.lines})[1:-3]:
        reduced = with_table(base, table.without([key for key in table.lines if int(key[2]) == batch]))
        yield from attention_pairs(
            base, name, reduced, lambda key, context, batch=batch: int(key[2]) == batch and context >= 128
        )


def held_out_heads(base: Donor, name: str) -> Iterator[Pair]:
    """Every (heads, KV heads) dropped in turn, batches 1, 8 and 32."""
    table = table_of(base, f"attention/{name}")
    for heads in sorted({key[:2] for key in table.lines}):
        reduced = with_table(base, table.without([key for key in table.lines if key[:2] == heads]))
        yield from attention_pairs(
            base,
            name,
            reduced,
            lambda key, context, heads=heads: key[:2] == heads and key[2] in ("1", "8", "32") and context >= 128,
        )


def held_out_delta(base: Donor) -> Iterator[Pair]:
    """Every head configuration dropped in turn; states that the benchmark did not hold in L2, or negligible ones."""
    recurrent, conv = table_of(base, "delta_rule/recurrent_decode"), table_of(base, "delta_rule/conv_decode")
    for heads in sorted(recurrent.lines):
        reduced = with_table(with_table(base, recurrent.without([heads])), conv.without([heads]))
        curve, update = recurrent.curve(*heads), conv.curve(*heads)
        if curve is None or update is None:
            continue
        for batch in (point for point in curve.points if update.measured(point)):
            kernel = DeltaRule(
                batch=int(batch), new_tokens=1, key_heads=int(heads[0]), value_heads=int(heads[1]), key_dim=128,
                value_dim=128, conv_kernel=4, hidden=4096,
            )  # fmt: skip
            state = work(kernel).weights
            if state > 2.5 * base.gpu.l2 or state < 0.02 * base.gpu.l2:
                yield delta_rule_time(kernel, reduced), curve.at(batch) + update.at(batch)


def borrowed_gemm(target: Donor, lender: Donor) -> Iterator[Pair]:
    """Rows of one GPU predicted by another's, scaled by the rooflines; weights that came from device memory."""
    library = KernelLibrary(gpu=target.gpu, donors=(lender,))
    table = table_of(target, "gemm/bf16")
    for key in table.lines:
        n, k = map(int, key)
        curve = table.curve(n, k)
        for m in DECODE_ROWS:
            kernel = Gemm(m=m, n=n, k=k, precision=Precision.BF16)
            cold = work(kernel).weights >= target.constants.l2_resident * target.gpu.l2
            if curve is not None and min(n, k) >= 512 and cold:
                yield library.time(kernel), curve.at(m)


def borrowed_attention(target: Donor, lender: Donor) -> Iterator[Pair]:
    """SDPA rows of one GPU predicted by the other's FlashInfer rows."""
    library = KernelLibrary(gpu=target.gpu, donors=(lender,))
    for name in (each for each in target.tables.names if each.startswith("attention/")):
        table = table_of(target, name)
        for key in table.lines:
            curve = table.curve(*key)
            for context, seconds in zip(curve.points, curve.seconds, strict=True) if curve is not None else ():
                yield library.time(attention_kernel(name.removeprefix("attention/"), key, context)), seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Alikeness:
    """How errors of two rows that differ in one thing go together: rms of one error, and of their difference."""

    what: str
    pairs: int
    correlation: float
    one: float
    difference: float


def alike() -> list[Alikeness]:
    """Whether rows of one engine, predicted from another's, err alike where the split or the tokens differ."""
    base = donor("rtx_pro_6000")
    found = []
    for engine, name in LENT_ROWS.items():
        lent = lent_rows(base, engine, Backends(engine="vllm", experts="flashinfer_cutlass"))
        errors = {(tuple(key), tokens): math.log(time.value / seconds) for key, tokens, time, seconds in lent}
        for what, same in (
            ("another split", lambda key, tokens: (key[:4], key[6], tokens)),
            ("other tokens", lambda key, _: key),
        ):
            found.append(alikeness(f"{name}, {what}", errors, same))
    return found


def alikeness(
    what: str, errors: dict[tuple[tuple[str, ...], int], float], same: Callable[[tuple[str, ...], int], object]
) -> Alikeness:
    """Over all pairs of rows that ``same`` maps to one value."""
    groups = defaultdict(list)
    for (key, tokens), error in errors.items():
        groups[same(key, tokens)].append(error)
    pairs = [pair for group in groups.values() for pair in itertools.permutations(group, 2)]
    first, second = zip(*pairs, strict=True)
    return Alikeness(
        what=what,
        pairs=len(pairs) // 2,
        correlation=statistics.correlation(first, second),
        one=rms(errors.values()),
        difference=rms(a - b for a, b in pairs),
    )


def rms(values: Iterable[float]) -> float:
    """The root of the mean square."""
    return math.sqrt(statistics.fmean(value**2 for value in values))


def alike_text(found: Sequence[Alikeness]) -> str:
    """As a Markdown table."""
    rows = [
        "| rows lent by vLLM, that differ in | pairs | correlation | error, rms | of the ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    for each in found:
        errors = f"{each.correlation:.2f} | {each.one:.1%} | {each.difference:.1%}"
        rows.append(f"| {each.what} | {each.pairs} | {errors} |")
    return "\n".join(rows) + "\n"


def table_text(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [
        "| held out | rows | median error | 90th percentile | bias | in range |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {each.what} | {each.count} | {each.median:.1%} | {each.p90:.1%} | {each.bias:+.1%} | {each.covered:.0%} |"
        for each in lines
    ]
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print the tables, and write them into the page when asked to."""
    text, pairs = table_text(check()), alike_text(alike())
    sys.stdout.write(f"{text}\n{pairs}")
    if "--write" in arguments:
        page = PAGE.read_text(encoding="utf-8")
        page = between(between(page, BEGIN, END, text), ALIKE_BEGIN, ALIKE_END, pairs)
        PAGE.write_text(page, encoding="utf-8")


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with what stands between two marks replaced."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}{end}{after}"


if __name__ == "__main__":
    main(sys.argv[1:])
