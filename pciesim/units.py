"""Quantities: the aliases used in signatures, the only powers of ten, parsing and printing.

Inside pciesim every quantity is a plain number in one unit per dimension: seconds, bytes, bytes per second, FLOP and
FLOP per second. Units exist at the door only: what a person writes always carries one ("1.07 us", "54 GB/s"), and what
pciesim prints has it in the value or in the key. ``k M G T`` are powers of 1000, ``Ki Mi Gi Ti`` of 1024; ``B`` is a
byte and ``b`` a bit.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from pciesim.errors import InputError

__all__ = [
    "GB",
    "GIB",
    "KIB",
    "MIB",
    "MS",
    "NS",
    "TERA",
    "US",
    "Bytes",
    "BytesPerSecond",
    "Flop",
    "FlopPerSecond",
    "Seconds",
    "format_bytes",
    "format_rate",
    "format_seconds",
    "parse_bytes",
    "parse_flops",
    "parse_rate",
    "parse_seconds",
]

Seconds: TypeAlias = float
Bytes: TypeAlias = float
BytesPerSecond: TypeAlias = float
Flop: TypeAlias = float
FlopPerSecond: TypeAlias = float

NS: Final = 1e-9
US: Final = 1e-6
MS: Final = 1e-3
KB: Final = 1e3
MB: Final = 1e6
GB: Final = 1e9
TERA: Final = 1e12
KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

_PREFIX: Final = {
    "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3, "Ti": 1024.0**4,
}  # fmt: skip
_TIME: Final = {"ns": NS, "us": US, "µs": US, "μs": US, "ms": MS, "s": 1.0}
_QUANTITY: Final = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ/]*)\s*")


def _split(text: str, example: str, where: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InputError(f"'{text}' is not a quantity; write it like '{example}'", where=where)
    if not match[2]:
        raise InputError(f"'{text}' has no unit; write it like '{example}'", where=where)
    return float(match[1]), match[2]


def _scaled(text: str, suffixes: dict[str, float], example: str, where: str) -> float:
    number, unit = _split(text, example, where)
    for suffix, factor in suffixes.items():
        prefix = unit.removesuffix(suffix)
        if unit.endswith(suffix) and prefix in _PREFIX:
            return number * factor * _PREFIX[prefix]
    raise InputError(f"'{text}' has the unit '{unit}'; write it like '{example}'", where=where)


def parse_seconds(text: str, *, where: str = "") -> Seconds:
    """``'1.07 us'`` -> 1.07e-06. Raises InputError when the unit is missing or not a time."""
    number, unit = _split(text, "1.07 us", where)
    if unit not in _TIME:
        raise InputError(f"'{text}' has the unit '{unit}'; valid: {', '.join(_TIME)}", where=where)
    return number * _TIME[unit]


def parse_bytes(text: str, *, where: str = "") -> Bytes:
    """``'8KiB'`` -> 8192.0; ``'256 MB'`` -> 2.56e8. Raises InputError when the unit is missing or not a size."""
    return _scaled(text, {"B": 1.0, "b": 0.125}, "8 KiB", where)


def parse_rate(text: str, *, where: str = "") -> BytesPerSecond:
    """``'54 GB/s'`` -> 5.4e10; ``'32 Gb/s'`` -> 4e9. Raises InputError when the unit is missing or not a rate."""
    return _scaled(text, {"B/s": 1.0, "b/s": 0.125}, "54 GB/s", where)


def parse_flops(text: str, *, where: str = "") -> FlopPerSecond:
    """``'468 TFLOP/s'`` -> 4.68e14. Raises InputError when the unit is missing or not FLOP/s."""
    return _scaled(text, {"FLOP/s": 1.0}, "468 TFLOP/s", where)


def format_seconds(value: Seconds) -> str:
    """Three significant digits in the unit a reader expects: ns, us, ms or s."""
    for factor, unit in ((1.0, "s"), (MS, "ms"), (US, "us")):
        if abs(value) >= factor:
            return f"{_significant(value / factor)} {unit}"
    return "0 s" if value == 0 else f"{_significant(value / NS)} ns"


def format_bytes(value: Bytes) -> str:
    """Binary units when they are exact (``8 KiB``), decimal ones otherwise (``62.1 kB``)."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if factor <= value < KIB * factor and value % (factor / 4) == 0:
            return f"{value / factor:g} {unit}"
    for decimal, unit in ((TERA, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB")):
        if abs(value) >= decimal:
            return f"{_significant(value / decimal)} {unit}"
    return f"{value:g} B"


def format_rate(value: BytesPerSecond) -> str:
    """Three significant digits in GB/s."""
    return f"{_significant(value / GB)} GB/s"


def _significant(value: float) -> str:
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e" in text else text
