"""Gated delta rule: a convolution update and a recurrent (decode) or chunked (prompt) kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pciesim.kernels.roofline import achieved_bandwidth, datasheet_floor, roofline_time
from pciesim.kernels.tables import Curve, CurveTable, Donor, log_between
from pciesim.kernels.times import KernelSource, KernelTime, Spread
from pciesim.kernels.work import work
from pciesim.schedule import DeltaRule, Rule
from pciesim.units import Bytes, Seconds

__all__ = ["delta_rule_time"]

MEASURED: Final = Spread(below=0.08, above=0.08)
COLD: Final = Spread(below=0.15, above=0.12)
BETWEEN: Final = Spread(below=0.22, above=0.22)
VERIFY: Final = Spread(below=0.25, above=0.50)
BORROWED: Final = Spread(below=0.25, above=0.35)

_HEAD: Final = 128  # key and value dimension of every measured head
_VERIFY_TOKENS: Final = 16


def delta_rule_time(kernel: DeltaRule, donor: Donor) -> KernelTime:
    """Time of both kernels of one layer on the GPU the tables were measured on.

    Decode adds the rows of the convolution update and of the packed recurrent kernel. Verification of drafts keeps a
    state after every token, so its recurrent kernel moves (1 + tokens) / 2 times a decode step's bytes and is looked up
    as that many times the batch; copying the accepted state back is not in it.
    """
    if kernel.rule is not Rule.GATED_DELTA:
        other = delta_rule_time(replace(kernel, rule=Rule.GATED_DELTA), donor)
        if other.source is KernelSource.ROOFLINE:
            return other
        return KernelTime.around(
            other.value, BORROWED, source=KernelSource.BORROWED, floor=other.floor,
            detail=f"gated delta rule rows for {kernel.rule.value.replace('_', ' ')}: {other.detail}",
        )  # fmt: skip
    prompt = kernel.new_tokens > _VERIFY_TOKENS
    names = ("conv_prefill", "chunk_prefill") if prompt else ("conv_decode", "recurrent_decode")
    conv, recurrent = (donor.tables.table(f"delta_rule/{name}") for name in names)
    if conv is None or recurrent is None:
        return roofline_time(work(kernel), donor.gpu, donor.constants, what="no gated delta rule rows")
    return _prompt(kernel, conv, recurrent, donor) if prompt else _decode(kernel, conv, recurrent, donor)


def _decode(kernel: DeltaRule, conv: CurveTable, recurrent: CurveTable, donor: Donor) -> KernelTime:
    key_heads, value_heads, scale = _heads(recurrent, kernel)
    # The recurrent kernel's time depends on batch x heads only (8 heads at 16 = 64 at 2, within 1 %).
    load = kernel.batch * scale * (1 + kernel.new_tokens) / 2
    conv_load = kernel.batch * scale * kernel.new_tokens
    curve, conv_curve = recurrent.curve(key_heads, value_heads), conv.curve(key_heads, value_heads)
    if curve is None or conv_curve is None:
        raise KeyError(f"{recurrent.name} and {conv.name} differ in heads")
    one = work(replace(kernel, batch=1, new_tokens=1)).weights / scale
    row = _recurrent(curve, load, 0.0, donor)
    cold = _recurrent(curve, load, one, donor)
    conv_row = conv_curve.at(conv_load)
    value = cold + conv_row
    measured = load == kernel.batch and curve.measured(load) and conv_curve.measured(load)
    detail = f"{conv.name} + {recurrent.name}, {key_heads}/{value_heads} heads"
    if cold > row:
        detail += ", state from device memory"
    floor = datasheet_floor(work(kernel), donor.gpu)
    if (kernel.key_dim, kernel.value_dim) != (_HEAD, _HEAD):
        spread, source, detail = BORROWED, KernelSource.BORROWED, f"{detail}, by bytes of the state"
    elif kernel.new_tokens > 1:
        spread, source, detail = VERIFY, KernelSource.BORROWED, f"{detail}, as batch {load:g}"
    elif measured and scale == 1 and cold <= row * 1.2:
        # A state this small costs the same from L2 and from memory, within the range.
        spread, source = MEASURED, KernelSource.MEASURED
        value = row + conv_row
    else:
        spread, source = (COLD if cold > row else BETWEEN), KernelSource.INTERPOLATED
    return KernelTime.around(value, spread, source=source, detail=detail, floor=floor)


def _recurrent(curve: Curve, load: float, state: Bytes, donor: Donor) -> Seconds:
    """The recurrent kernel at a batch, rows whose states fitted L2 corrected to ``state`` bytes per sequence moved
    through device memory before they are interpolated; 0 leaves the rows as they are."""
    rate = achieved_bandwidth(donor.gpu, donor.constants)

    def corrected(batch: float, seconds: Seconds) -> Seconds:
        # Read and written: states up to 1.25 times L2 are in part still there.
        moved = batch * state if batch * state <= 2.5 * donor.gpu.l2 else 0.0
        return max(seconds, curve.seconds[0] + moved / rate) if moved else seconds

    (x0, y0), (x1, y1) = curve.around(load)
    if load > x1:
        return corrected(x1, y1) * load / x1
    return log_between(max(load, x0), x0, corrected(x0, y0), x1, corrected(x1, y1))


def _prompt(kernel: DeltaRule, conv: CurveTable, chunk: CurveTable, donor: Donor) -> KernelTime:
    key_heads, value_heads, scale = _heads(chunk, kernel)
    batches = sorted(int(key[2]) for key in chunk.lines if key[:2] == (str(key_heads), str(value_heads)))
    batch = max((each for each in batches if each <= kernel.batch), default=batches[0])
    tokens = kernel.new_tokens * kernel.batch / batch * scale
    total = sum(_extended(table, (key_heads, value_heads, batch), tokens) for table in (conv, chunk))
    detail = f"{conv.name} + {chunk.name}, {key_heads}/{value_heads} heads, batch {batch}, {tokens:.0f} tokens"
    return KernelTime.around(
        total, BETWEEN if scale == 1 else BORROWED,
        source=KernelSource.INTERPOLATED if scale == 1 else KernelSource.BORROWED,
        detail=detail, floor=datasheet_floor(work(kernel), donor.gpu),
    )  # fmt: skip


def _extended(table: CurveTable, key: tuple[int, int, int], tokens: float) -> Seconds:
    """Along the tokens, in proportion past the end."""
    curve = table.curve(*key)
    if curve is None:
        raise KeyError(f"{table.name} has no row {key}")
    return curve.at(tokens) * max(1.0, tokens / curve.points[-1])


def _heads(table: CurveTable, kernel: DeltaRule) -> tuple[int, int, float]:
    """The measured heads to use, and how many times their state the kernel has per sequence."""
    pairs = {(int(key[0]), int(key[1])) for key in table.lines}
    if (kernel.key_heads, kernel.value_heads) in pairs:
        key_heads, value_heads = kernel.key_heads, kernel.value_heads
    else:
        key_heads, value_heads = min(
            pairs, key=lambda pair: (abs(pair[1] - kernel.value_heads), abs(pair[0] - kernel.key_heads))
        )
    state = kernel.value_heads * kernel.key_dim * kernel.value_dim / (value_heads * _HEAD * _HEAD)
    return key_heads, value_heads, state
