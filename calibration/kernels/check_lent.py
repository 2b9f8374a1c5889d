"""How well kernel times are carried over to another GPU, by rows that this project does not ship.

    pip install 'pciesim[aiconfigurator]'
    python calibration/kernels/check_lent.py           # prints the table
    python calibration/kernels/check_lent.py --write   # also puts it into docs/kernels.md

Rows of L40S and H200 from the library aiconfigurator-core, predicted from the shipped rows of RTX PRO 6000 alone. Left
out are rows whose weights, cache or state the benchmark may have held in L2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from check_tables import (
    PAGE,
    Line,
    Pair,
    attention_kernel,
    backends_of,
    donor,
    expert_kernel,
    line,
    table_of,
    table_text,
)  # fmt: skip

from pciesim.formats.aiconfigurator import library_tables
from pciesim.formats.catalogue import gpu_type
from pciesim.kernels import Donor, KernelLibrary
from pciesim.kernels.work import work
from pciesim.model import Precision
from pciesim.schedule import DeltaRule, Gemm
from pciesim.units import MB

BEGIN, END = "<!-- lent: begin -->", "<!-- lent: end -->"
ROWS = (1, 4, 16, 64, 256)
TOKENS = (1, 4, 16, 64)
EVERY = 3  # of the keys of a table: there are tens of thousands of rows
LEAST_WEIGHTS = 28 * MB


def check() -> list[Line]:
    """All lines, in the order of the page."""
    lines = []
    for key, name in (("l40s", "L40S"), ("h200", "H200")):
        target = Donor(gpu=gpu_type(key), tables=library_tables(key)[0])
        for precision in ("bf16", "fp8"):
            lines.append(line(f"GEMM {precision} on {name}", gemms(target, precision)))
        if target.tables.table("attention/flashinfer__bf16__128__0") is not None:
            lines.append(line(f"Attention bf16 on {name}", attentions(target, "flashinfer__bf16__128__0")))
        lines.append(line(f"Delta rule on {name}", delta_rules(target)))
        for table in ("vllm__triton__fp8_block", "sglang__triton__fp8_block"):
            if f"moe/{table}" in target.tables.names:
                lines.append(line(f"Experts {table} on {name}", experts(target, table)))
    return lines


def lent(target: Donor) -> KernelLibrary:
    """RTX PRO 6000 rows for another GPU."""
    return KernelLibrary(gpu=target.gpu, donors=(donor("rtx_pro_6000"),))


def gemms(target: Donor, precision: str) -> Iterator[Pair]:
    """Weights that no L2 holds while the benchmark repeats the kernel."""
    library, table = lent(target), table_of(target, f"gemm/{precision}")
    for key in sorted(table.lines)[::EVERY]:
        curve = table.curve(*key)
        for m in ROWS:
            kernel = Gemm(m=m, n=int(key[0]), k=int(key[1]), precision=Precision(precision))
            if curve is not None and curve.measured(m) and work(kernel).weights >= LEAST_WEIGHTS:
                yield library.time(kernel), curve.at(m)


def attentions(target: Donor, name: str) -> Iterator[Pair]:
    """Caches larger than L2."""
    library, table = lent(target), table_of(target, f"attention/{name}")
    for key in sorted(table.lines)[::EVERY]:
        curve = table.curve(*key)
        for context, seconds in zip(curve.points, curve.seconds, strict=True) if curve is not None else ():
            kernel = attention_kernel(name, key, context)
            if work(kernel).weights > target.gpu.l2:
                yield library.time(kernel), seconds


def delta_rules(target: Donor) -> Iterator[Pair]:
    """One sequence, or states of 2.5 times L2 and more."""
    library = lent(target)
    recurrent, conv = table_of(target, "delta_rule/recurrent_decode"), table_of(target, "delta_rule/conv_decode")
    for heads in sorted(recurrent.lines):
        curve, update = recurrent.curve(*heads), conv.curve(*heads)
        for batch in curve.points if curve is not None and update is not None else ():
            kernel = DeltaRule(
                batch=int(batch), new_tokens=1, key_heads=int(heads[0]), value_heads=int(heads[1]), key_dim=128,
                value_dim=128, conv_kernel=4, hidden=4096,
            )  # fmt: skip
            if batch == 1 or work(kernel).weights > 2.5 * target.gpu.l2:
                yield library.time(kernel), curve.at(batch) + update.at(batch)


def experts(target: Donor, name: str) -> Iterator[Pair]:
    """Balanced rows."""
    library, table = lent(target), table_of(target, f"moe/{name}")
    library = replace(library, backends=backends_of(name, "balanced"))
    for key in sorted(key for key in table.lines if key[6] == "balanced" and key[2] != "22")[::EVERY]:
        curve = table.curve(*key)
        for tokens in TOKENS:
            if curve is not None and curve.measured(tokens):
                yield library.time(expert_kernel(key, tokens, name.split("__")[2])), curve.at(tokens)


def main(arguments: Sequence[str]) -> None:
    """Print the table, and write it into the page when asked to."""
    text = table_text(check()).replace("held out", "carried from RTX PRO 6000 to")
    sys.stdout.write(text)
    if "--write" in arguments:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
