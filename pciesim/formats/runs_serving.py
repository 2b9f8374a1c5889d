"""What serving benchmarks print: SGLang and vLLM, one-batch and under load, as text or as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.units import MS, Seconds

__all__ = ["ServingFigures", "read_serving"]

_NUMBER: Final = r"([\d.]+)"
# The first that fits wins: the text of `bench_serving` and `vllm bench serve`, then of `bench_one_batch`.
_TPOT: Final = (
    (re.compile(rf"Median TPOT \(ms\):\s*{_NUMBER}"), MS),
    (re.compile(rf"Mean TPOT \(ms\):\s*{_NUMBER}"), MS),
    (re.compile(rf"Median ITL \(ms\):\s*{_NUMBER}"), MS),
    (re.compile(rf"Decode\.\s+median latency:\s*{_NUMBER} s"), 1.0),
)
_TTFT: Final = (
    (re.compile(rf"Median TTFT \(ms\):\s*{_NUMBER}"), MS),
    (re.compile(rf"Mean TTFT \(ms\):\s*{_NUMBER}"), MS),
    (re.compile(rf"Prefill\. latency:\s*{_NUMBER} s"), 1.0),
)
_USERS: Final = (
    re.compile(rf"Max(?:imum)? request concurrency:\s*{_NUMBER}"),
    re.compile(rf"^Concurrency:\s*{_NUMBER}", re.MULTILINE),
    re.compile(rf"batch[_ ]size[=:]\s*{_NUMBER}"),
)
_ACCEPT: Final = re.compile(rf"Accept(?:ance)? length:\s*{_NUMBER}", re.IGNORECASE)
_JSON_TPOT: Final = ("median_tpot_ms", "mean_tpot_ms", "median_itl_ms")
_JSON_TTFT: Final = ("median_ttft_ms", "mean_ttft_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFigures:
    """Seconds between two tokens of a user, time to the first, users at a time; None where the output does not say.

    ``accepted`` is the tokens an iteration with drafts yields.
    """

    token_interval: Seconds
    first_token: Seconds | None
    users: int | None
    accepted: float | None


def read_serving(path: Path) -> ServingFigures:
    """The figures of a benchmark's output. Raises InputError where it has no time per token."""
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return _from_json(path, text)
    interval = _first(text, _TPOT)
    if interval is None:
        raise InputError(
            "has no time per token ('Median TPOT (ms):' of bench_serving, 'Decode.  median latency:' of "
            "bench_one_batch)", where=str(path),
        )  # fmt: skip
    users = next((match[1] for pattern in _USERS if (match := pattern.search(text))), None)
    accepted = _ACCEPT.search(text)
    return ServingFigures(
        token_interval=interval,
        first_token=_first(text, _TTFT),
        users=round(float(users)) if users else None,
        accepted=float(accepted[1]) if accepted else None,
    )


def _from_json(path: Path, text: str) -> ServingFigures:
    try:  # one object, or one a line of which the last counts
        try:
            row = json.loads(text)
        except json.JSONDecodeError:
            row = json.loads(text.strip().splitlines()[-1])
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}") from None
    interval = next((float(row[key]) * MS for key in _JSON_TPOT if row.get(key)), None)
    if interval is None:
        raise InputError(f"has none of {', '.join(_JSON_TPOT)}", where=str(path))
    users = row.get("max_concurrency") or row.get("concurrency")
    return ServingFigures(
        token_interval=interval,
        first_token=next((float(row[key]) * MS for key in _JSON_TTFT if row.get(key)), None),
        users=round(float(users)) if users else None,
        accepted=float(row["accept_length"]) if row.get("accept_length") else None,
    )


def _first(text: str, patterns: tuple[tuple[re.Pattern[str], float], ...]) -> Seconds | None:
    return next((float(match[1]) * unit for pattern, unit in patterns if (match := pattern.search(text))), None)
