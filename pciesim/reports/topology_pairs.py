"""The bottleneck table of a fabric: what every pair of GPUs crosses, its latencies and its bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind, Route
from pciesim.physics import Engine, RouteCosts
from pciesim.units import BytesPerSecond, Seconds

__all__ = ["PairClass", "link_latency", "pair_classes", "peer_level"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairClass:
    """Unordered GPU pairs that are alike in everything shown.

    ``store`` is L (a store until a poll of the target's memory sees it), ``load`` is R (round trip of a dependent
    load). ``write`` and ``read`` are what one flow of multiprocessor stores or loads reaches alone, ``copy`` what a
    copy engine does; ``limit`` names the link or constraint that stops it.
    """

    path_type: str
    pairs: tuple[tuple[int, int], ...]
    switches: int
    root_complexes: int
    socket_hops: int
    store: Seconds
    load: Seconds
    write: BytesPerSecond
    read: BytesPerSecond
    copy: BytesPerSecond
    limit: str
    peer: bool


def pair_classes(fabric: Fabric, costs: RouteCosts) -> tuple[PairClass, ...]:
    """Every unordered GPU pair, grouped, nearest first."""
    found: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    facts: dict[tuple[object, ...], PairClass] = {}
    for one in fabric.gpus:
        for other in fabric.gpus:
            if (one.index or 0) >= (other.index or 0):
                continue
            route = fabric.route(one.name, other.name)
            write, limit = _rate(fabric, route, costs, Engine.STORE)
            read, _ = _rate(fabric, fabric.route(other.name, one.name), costs, Engine.LOAD)
            copy, _ = _rate(fabric, route, costs, Engine.COPY)
            peer = fabric.can_peer(one.name, other.name)
            key = (route.path_type, route.switches, route.root_complexes, route.socket_hops, write, read, peer)
            found.setdefault(key, []).append((one.index or 0, other.index or 0))
            facts.setdefault(
                key,
                PairClass(
                    path_type=route.path_type,
                    pairs=(),
                    switches=route.switches,
                    root_complexes=route.root_complexes,
                    socket_hops=route.socket_hops,
                    store=costs.store(route),
                    load=costs.load(route),
                    write=write,
                    read=read,
                    copy=copy,
                    limit=limit,
                    peer=peer,
                ),
            )
    rows = [_with_pairs(facts[key], tuple(pairs)) for key, pairs in found.items()]
    return tuple(sorted(rows, key=lambda row: (row.store, row.pairs)))


def _with_pairs(row: PairClass, pairs: tuple[tuple[int, int], ...]) -> PairClass:
    return PairClass(**{name: getattr(row, name) for name in PairClass.__dataclass_fields__} | {"pairs": pairs})


def _rate(fabric: Fabric, route: Route, costs: RouteCosts, engine: Engine) -> tuple[BytesPerSecond, str]:
    """(rate of one flow alone, what stops it)."""
    capacities = [link.bandwidth for link in fabric.links] + [each.capacity for each in fabric.constraints]
    names = [f"{link.source} > {link.target}" for link in fabric.links] + [each.name for each in fabric.constraints]
    return min((capacities[position] / used, names[position]) for position, used in costs.uses(fabric, route, engine))


def link_latency(fabric: Fabric, costs: RouteCosts, link: Link) -> Seconds:
    """One way over a link. Along a PCIe route between two GPUs these add up to a store's latency without the poll:
    a switch and a root complex give half of their cost to the link on either side."""
    if link.kind is LinkKind.NVLINK:
        return max(0.0, costs.nvlink_store - costs.poll)
    if link.kind is LinkKind.SOCKET:
        return costs.socket
    ends = [fabric.device(link.source), fabric.device(link.target)]
    if link.kind is LinkKind.ON_CHIP and all(end.kind is DeviceKind.SWITCH for end in ends):
        return 0.0  # inside a chip; each partition gives half a switch to its other link, which makes one
    if link.kind is LinkKind.ON_CHIP and DeviceKind.SOCKET in {end.kind for end in ends}:
        return 0.0
    return sum(_half(end, costs) for end in ends)


def _half(device: Device, costs: RouteCosts) -> Seconds:
    """What one side of a device costs; an end device has one side only."""
    sides = {
        DeviceKind.GPU: costs.endpoint,
        DeviceKind.NIC: costs.endpoint,
        DeviceKind.SWITCH: costs.switch / 2,
        DeviceKind.ROOT_COMPLEX: costs.root_complex / 2,
    }
    return sides.get(device.kind, 0.0)


def peer_level(fabric: Fabric) -> str:
    """How far NCCL uses peer-to-peer: as set, else its default (paths.cc)."""
    if not fabric.nccl.p2p:
        return "NCCL: no peer-to-peer over PCIe, through host memory"
    if fabric.nccl.p2p_level is not None:
        return f"NCCL: peer-to-peer up to {fabric.nccl.p2p_level}"
    if fabric.host.vendor == "amd" and len(fabric.gpus) <= 2:
        return "NCCL: peer-to-peer up to SYS (its default for two GPUs on AMD)"
    return "NCCL: peer-to-peer up to PXB (its default), farther pairs through host memory"
