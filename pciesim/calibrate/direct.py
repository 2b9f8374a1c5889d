"""Parameters that a run measures as they stand: load chains, flags, fences, copies of one flow.

Equations (see ``physics``): a load of host memory is ``host_load``; a flag round trip through host memory is twice a
store plus a load; over NVLink a round trip is twice a store. Over PCIe ``load = 2 wire`` and ``store = poll + wire``,
where ``wire`` is a sum of the parts of the route; several routes together give the parts, by least squares that starts
from what is known of other boxes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pciesim.calibrate.readings import Reading, What
from pciesim.fabric import Fabric, LinkKind, Route
from pciesim.profile import Evidence, Parameter, Profile
from pciesim.units import NS

__all__ = ["direct_parameters", "with_parameters"]

PARTS: Final = ("latency.endpoint", "latency.switch", "latency.root_complex", "latency.socket")
NOISE: Final = 10 * NS  # of one latency reading: the clock and the repeats
LEAST_SPREAD: Final = 0.02  # of a figure, either way: another day, another clock


def direct_parameters(readings: Sequence[Reading], fabric: Fabric, known: Profile) -> dict[str, Parameter]:
    """What the readings say, by parameter name; ``known`` is what is believed of the rest."""
    by_what: dict[What, list[Reading]] = {}
    for reading in readings:
        by_what.setdefault(reading.what, []).append(reading)
    found: dict[str, Parameter] = {}
    if host := by_what.get(What.HOST_LOAD):
        found["latency.host_load"] = _parameter([each.value for each in host], "host load chains", host)
        if flags := by_what.get(What.HOST_FLAG):
            load = found["latency.host_load"].value
            found["latency.host_store"] = _parameter(
                [max(NOISE, each.value / 2 - load) for each in flags],
                "flag round trips through host memory, halved, less one host load", flags,
            )  # fmt: skip
    found |= _nvlink(by_what, fabric)
    found |= _pcie(by_what, fabric, known)
    found |= _fence(by_what, {**dict(known.parameters), **found}, fabric)
    found |= _shares(by_what, fabric)
    return found


def _routes(readings: Sequence[Reading], fabric: Fabric, *, nvlink: bool) -> list[tuple[Reading, Route]]:
    """The readings between GPUs whose way is, or is not, NVLink."""
    names = {gpu.index: gpu.name for gpu in fabric.gpus}
    pairs = [(each, fabric.route(names[each.gpus[0]], names[each.gpus[1]])) for each in readings]
    return [(each, route) for each, route in pairs if route.nvlink == nvlink]


def _nvlink(by_what: Mapping[What, list[Reading]], fabric: Fabric) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    loads = [each for each, _ in _routes(by_what.get(What.PEER_LOAD, []), fabric, nvlink=True)]
    flags = [each for each, _ in _routes(by_what.get(What.PEER_FLAG, []), fabric, nvlink=True)]
    if loads:
        found["latency.nvlink_load"] = _parameter([each.value for each in loads], "peer load chains", loads)
    if flags:
        found["latency.nvlink_store"] = _parameter(
            [each.value / 2 for each in flags], "flag round trips over NVLink, halved", flags
        )
    return found


def _pcie(by_what: Mapping[What, list[Reading]], fabric: Fabric, known: Profile) -> dict[str, Parameter]:
    """Least squares with what is known as a prior: parts that no route tells apart stay near it, together."""
    loads = _routes(by_what.get(What.PEER_LOAD, []), fabric, nvlink=False)
    flags = _routes(by_what.get(What.PEER_FLAG, []), fabric, nvlink=False)
    if not loads and not flags:
        return {}
    names = ("latency.poll", *PARTS)
    rows = [([0.0, *(2 * part for part in _parts(route))], each.value) for each, route in loads]
    rows += [([1.0, *_parts(route)], each.value / 2) for each, route in flags]
    weights = [1 / NOISE] * len(rows)
    for position, name in enumerate(names):
        prior = known.parameter(name)
        rows.append(([float(position == other) for other in range(len(names))], prior.value))
        weights.append(1 / max(NOISE, (prior.high - prior.low) / 2))
    matrix = np.array([row for row, _ in rows]) * np.array(weights)[:, None]
    target = np.array([value for _, value in rows]) * np.array(weights)
    information = matrix.T @ matrix
    best = np.linalg.solve(information, matrix.T @ target)
    spread = np.sqrt(np.diag(np.linalg.inv(information)))
    source = _source("load chains and flag round trips between GPUs", [each for each, _ in (*loads, *flags)])
    return {
        name: Parameter(
            value=max(0.0, float(value)),
            low=max(0.0, float(value - 2 * sigma)),
            high=max(0.0, float(value + 2 * sigma)),
            evidence=Evidence.FITTED,
            source=source,
        )
        for name, value, sigma in zip(names, best, spread, strict=True)
    }


def _parts(route: Route) -> list[float]:
    """How often each of ``PARTS`` stands in the wire's sum."""
    crossing = 1.0 if route.root_complexes or route.socket_hops else 0.0
    return [2.0, float(route.switches), crossing, float(route.socket_hops)]


def _fence(
    by_what: Mapping[What, list[Reading]], parameters: Mapping[str, Parameter], fabric: Fabric
) -> dict[str, Parameter]:
    """Drains over the load round trip of the same way."""
    shares = [each.value / parameters["latency.host_load"].value for each in by_what.get(What.HOST_FENCE, [])]
    used = list(by_what.get(What.HOST_FENCE, []))
    for each, _ in _routes(by_what.get(What.PEER_FENCE, []), fabric, nvlink=True):
        shares.append(each.value / parameters["latency.nvlink_load"].value)
        used.append(each)
    if not shares:
        return {}
    found = _parameter(shares, "fence after stores, less the stores, over a load of the same way", used)
    return {"latency.fence_per_load": found}


def _shares(by_what: Mapping[What, list[Reading]], fabric: Fabric) -> dict[str, Parameter]:
    """Rates of one flow over the line rate of the narrowest link of its kind."""
    found: dict[str, Parameter] = {}
    kinds = (
        ("share.copy", LinkKind.PCIE, (What.HOST_COPY,)),
        ("share.store", LinkKind.PCIE, (What.PEER_STORE, What.HOST_STORE)),
        ("share.load", LinkKind.PCIE, (What.PEER_LOADING, What.HOST_LOADING)),
        ("share.nvlink", LinkKind.NVLINK, (What.PEER_STORE,)),
    )
    for name, kind, whats in kinds:
        for what in whats:
            used = [(each, line) for each in by_what.get(what, []) if (line := _line(each, fabric, kind))]
            if used:
                shares = [min(1.0, each.value / line) for each, line in used]
                found[name] = _parameter(shares, "one flow over the line rate", [each for each, _ in used], most=1.0)
                break
    return found


def _line(reading: Reading, fabric: Fabric, kind: LinkKind) -> float | None:
    """Rate of the narrowest link of a kind on the way of a reading; None where the way is of another kind."""
    names = {gpu.index: gpu.name for gpu in fabric.gpus}
    source = names[reading.gpus[0]]
    target = names[reading.gpus[1]] if len(reading.gpus) > 1 else fabric.memory_of(source).name
    route = fabric.route(source, target)
    if route.nvlink != (kind is LinkKind.NVLINK):
        return None
    return min((fabric.links[at].bandwidth for at in route.links if fabric.links[at].kind is kind), default=None)


def _parameter(values: Sequence[float], what: str, used: Sequence[Reading], most: float = float("inf")) -> Parameter:
    """The median, and a range that holds all of them."""
    value = statistics.median(values)
    spread = LEAST_SPREAD * value
    return Parameter(
        value=value,
        low=max(0.0, min(*values, value - spread)),
        high=min(most, max(*values, value + spread)),
        evidence=Evidence.MEASURED,
        source=_source(what, used),
    )


def _source(what: str, used: Sequence[Reading]) -> str:
    files = sorted({each.source for each in used})
    return f"{what}: {len(used)} readings ({'; '.join(files)})"


def with_parameters(profile: Profile, found: Mapping[str, Parameter]) -> Profile:
    """A profile with some parameters replaced or added."""
    return replace(profile, parameters=tuple({**dict(profile.parameters), **found}.items()))
