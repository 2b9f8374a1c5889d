"""A folder that ``pciesim measure`` wrote, as points and readings."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from pciesim.calibrate.points import Point
from pciesim.calibrate.readings import Reading, Run, What
from pciesim.errors import InputError
from pciesim.formats.documents import read_text
from pciesim.formats.runs_hash import file_hash
from pciesim.schedule import CollectiveKind

__all__ = ["is_measure_folder", "read_measure_folder"]

MANIFEST: Final = "manifest.yaml"
FORCED: Final[Mapping[str, str]] = {
    f"{algorithm}_{protocol}": f"nccl-{algorithm.lower()}-{protocol.lower()}"
    for algorithm in ("Ring", "Tree")
    for protocol in ("LL", "LL128", "Simple")
}
OWN_KERNELS: Final[Mapping[str, str]] = {
    "push_peer": "oneshot-push",
    "pull_peer": "oneshot-pull",
    "push_host": "oneshot-host",
}
HOST_ONLY: Final = ("NCCL_P2P_DISABLE", "1")
FENCE_WORDS: Final = 256  # of the rows of a fence: more stores than one write buffer, fewer than fill the link

Row: TypeAlias = Mapping[str, Any]


def is_measure_folder(path: Path) -> bool:
    """Whether a folder has rows of ``pciesim measure``."""
    return (path / MANIFEST).is_file() and (path / "status.jsonl").is_file()


def read_measure_folder(path: Path, topology: str) -> Run:
    """Points (timed in a graph) and readings. Raises InputError with file and line on any fault."""
    rows = {file.name.removesuffix(".jsonl"): list(_rows(file)) for file in sorted(path.glob("*.jsonl"))}
    points: list[Point] = []
    for name in sorted(rows):
        family = name.partition(".")[0]
        if family in {"nccl_sizes", "nccl_forced", "nccl_channels"}:
            points += _latest(_nccl_points(rows[name], topology, path.name, name))
        elif family in {"oneshot_peer", "oneshot_host"}:
            points += _latest(_own_points(rows[name], topology, path.name, name))
    notes = [str(row["text"]) for row in rows.get("status", []) if row.get("state") == "finding"]
    return Run(
        name=path.name,
        points=tuple(points),
        readings=tuple(_readings(rows, path.name)),
        hashes=tuple((file.name, file_hash(file)) for file in sorted(path.iterdir()) if file.is_file()),
        notes=tuple(dict.fromkeys(notes)),
    )


def _rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"not a JSON row: {error.msg}", where=f"{path}:{number}:{error.colno}") from None
        if not isinstance(row, dict):
            raise InputError("expected a JSON object", where=f"{path}:{number}")
        yield row


def _nccl_points(rows: Iterable[Row], topology: str, run: str, experiment: str) -> Iterator[Point]:
    for row in rows:
        if row["mode"] != "graph":
            continue
        setting, transport = row["setting"], row["transport"]
        variables: list[tuple[str, str]] = [HOST_ONLY] if transport == "host" else []
        algorithm = FORCED.get(setting, "nccl")
        if setting.startswith("ch"):
            channels, _, forced = setting.removeprefix("ch").partition("_")
            variables += [("NCCL_MIN_NCHANNELS", channels), ("NCCL_MAX_NCHANNELS", channels)]
            algorithm = FORCED.get(forced, "nccl")
        yield _point(row, f"{run}/{transport}/{setting}", topology, variables=variables, algorithm=algorithm,
                     source=f"{run}/{experiment}.jsonl")  # fmt: skip


def _own_points(rows: Iterable[Row], topology: str, run: str, experiment: str) -> Iterator[Point]:
    for row in rows:
        algorithm = OWN_KERNELS.get(row["variant"])
        if algorithm is not None and row.get("right", True):
            yield _point({**row, "kind": "all_reduce"}, f"{run}/{row['variant']}", topology, variables=[],
                         algorithm=algorithm, source=f"{run}/{experiment}.jsonl")  # fmt: skip


def _point(
    row: Row, dataset: str, topology: str, *, variables: list[tuple[str, str]], algorithm: str, source: str
) -> Point:  # fmt: skip
    return Point(
        dataset=dataset,
        topology=topology,
        nccl=tuple(variables),
        gpus=tuple(row["gpus"]),
        algorithm=algorithm,
        kind=CollectiveKind(row["kind"]),
        nbytes=int(row["bytes"]),
        latency=float(row["s"]),
        fitted=True,
        source=source,
    )


def _latest(points: Iterable[Point]) -> list[Point]:
    """Of points that stand twice (an experiment that was begun again) the last."""
    return list({(p.dataset, p.gpus, p.algorithm, p.kind, p.nbytes): p for p in points}.values())


def _readings(rows: Mapping[str, list[Row]], run: str) -> Iterator[Reading]:
    for name in ("latency_host", "latency_peer"):
        yield from _latencies(rows.get(name, []), f"{run}/{name}.jsonl")
    yield from _copies(rows, run)


def _latencies(rows: Iterable[Row], source: str) -> Iterator[Reading]:
    plain: dict[tuple[str, int, int, int], float] = {}
    for row in rows:
        peer, values = row["where"] == "peer", row["s"]
        if row["where"].startswith("local") or not values:
            continue
        gpus = tuple(row["gpus"]) if "gpus" in row else (row["gpu"], row["peer"]) if peer else (row["gpu"],)
        match row["what"]:
            case "load_chain":
                yield _reading(What.PEER_LOAD if peer else What.HOST_LOAD, gpus, values, source)
            case "ping_pong":
                yield _reading(What.PEER_FLAG if peer else What.HOST_FLAG, gpus, values, source)
            case "fence" if row["words"] == FENCE_WORDS:
                key = (row["where"], row["gpu"], row.get("peer", -1), row["words"])
                if not row["fence"]:
                    plain[key] = statistics.median(values)
                elif key in plain:
                    over = [value - plain[key] for value in values]
                    yield _reading(What.PEER_FENCE if peer else What.HOST_FENCE, gpus, over, source)


def _copies(rows: Mapping[str, list[Row]], run: str) -> Iterator[Reading]:
    """Rates of flows that ran alone."""
    for row in rows.get("host_copies", []):
        if len(row["flows"]) == 1:
            yield _rate(row, What.HOST_COPY, (row["flows"][0]["gpu"],), f"{run}/host_copies.jsonl")
    for row in rows.get("peer_copies", []):
        if len(row["flows"]) == 1:
            flow = row["flows"][0]
            yield _rate(row, What.PEER_COPY, (flow["source"], flow["target"]), f"{run}/peer_copies.jsonl")
    kernels = [row for row in rows.get("sm_copies", []) if len(row["flows"]) == 1]
    most = max((row["blocks"] for row in kernels), default=0)
    kinds: Mapping[tuple[str, str], What] = {
        ("sm_store", "host"): What.HOST_STORE, ("sm_store", "peer"): What.PEER_STORE,
        ("sm_load", "host"): What.HOST_LOADING, ("sm_load", "peer"): What.PEER_LOADING,
    }  # fmt: skip
    for row in kernels:
        if row["blocks"] == most:
            flow = row["flows"][0]
            gpus = (flow["issuer"],) if row["where"] == "host" else (flow["issuer"], flow["owner"])
            yield _rate(row, kinds[row["engine"], row["where"]], gpus, f"{run}/sm_copies.jsonl")


def _rate(row: Row, what: What, gpus: tuple[int, ...], source: str) -> Reading:
    seconds = [*row["seconds"], *row["again"]]
    return _reading(what, gpus, [row["bytes"] / each for each in seconds], source)


def _reading(what: What, gpus: tuple[int, ...], values: list[float], source: str) -> Reading:
    centre: Callable[[list[float]], float] = statistics.median
    return Reading(what=what, gpus=gpus, value=centre(values), low=min(values), high=max(values), source=source)
