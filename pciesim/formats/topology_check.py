"""What is worth a look on a box: slots below what card and CPU can do, refused peers, known traps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pciesim.fabric import DeviceKind, Fabric, LinkKind
from pciesim.formats.catalogue import gpu_type, host_type
from pciesim.formats.topology_smi import is_nvlink

__all__ = ["findings"]


def findings(fabric: Fabric) -> tuple[str, ...]:
    """Remarks about a fabric, slots first. None of them is an error."""
    return (*_slots(fabric), *_uplinks(fabric), *_host_bridges(fabric), *_peers(fabric), *_traps(fabric))


def _slots(fabric: Fabric) -> Iterator[str]:
    host = host_type(fabric.host.cpu) if fabric.host.cpu else None
    for gpu in fabric.gpus:
        link = next(link for link in fabric.links if link.source == gpu.name and link.kind is LinkKind.PCIE)
        if link.width is None or link.generation is None:
            continue
        kind = gpu_type(gpu.model) if gpu.model else None
        if link.width <= 4:
            yield f"{gpu.name} has x{link.width}: a chipset slot or a riser, shared with other devices"
        elif kind is not None and link.width < kind.pcie_width:
            yield f"{gpu.name} has x{link.width} of x{kind.pcie_width}: large messages take twice as long"
        limit = min(kind.pcie_generation, host.pcie_generation) if kind is not None and host is not None else None
        if limit is not None and link.generation < limit:
            yield f"{gpu.name} runs at Gen{link.generation}, card and CPU can do Gen{limit}"


def _uplinks(fabric: Fabric) -> Iterator[str]:
    for switch in fabric.of_kind(DeviceKind.SWITCH):
        below = [
            link
            for link in fabric.links
            if link.target == switch.name and fabric.device(link.source).kind is DeviceKind.GPU
        ]
        up = [
            link
            for link in fabric.links
            if link.source == switch.name and fabric.device(link.target).kind is DeviceKind.ROOT_PORT
        ]
        if below and up and max(link.bandwidth for link in below) > up[0].bandwidth:
            yield f"the uplink of {switch.name} is slower than a single slot behind it"


def _host_bridges(fabric: Fabric) -> Iterator[str]:
    """PHB against root complexes, where a socket has several."""
    complexes = {device.name for device in fabric.of_kind(DeviceKind.ROOT_COMPLEX)}
    pairs: dict[tuple[str, ...], list[str]] = {}
    for one, other in combinations(fabric.gpus, 2):
        route = fabric.route(one.name, other.name, nvlink=False)
        passed = tuple(link.target for position in route.links if (link := fabric.links[position]).target in complexes)
        if route.path_type == "PHB" and len(passed) > 1:
            pairs.setdefault(passed, []).append(f"{one.name}-{other.name}")
    for (first, *_, last), names in pairs.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{more}: printed PHB, so one host bridge, but on {first} and {last} by what is stated"


def _peers(fabric: Fabric) -> Iterator[str]:
    gpus = range(len(fabric.gpus))
    pairs = [(one, other) for one in gpus for other in gpus if one < other]
    refused = [pair for pair in pairs if fabric.peer_access and not fabric.peer_access[pair[0]][pair[1]]]
    if refused and len(refused) == sum(1 for one, other in pairs if not is_nvlink(fabric.matrix[one][other])):
        yield "the driver refuses peer-to-peer over PCIe: NCCL goes through host memory"
    elif refused:
        named = ", ".join(f"{one}-{other}" for one, other in refused[:4])
        yield f"the driver refuses peer-to-peer for {len(refused)} pairs ({named}): NCCL goes through host memory there"


def _traps(fabric: Fabric) -> Iterator[str]:
    if not fabric.registry_override:
        yield "the driver lacks its ForceP2P option: kernels that load from peers across a root complex are very slow"
    if fabric.acs_redirect:
        yield "ACS redirect is on: peers of one switch go up to the root complex and back (half the bandwidth)"
    if fabric.host.iommu:
        yield "the IOMMU is on: about 15 % less for one flow, and NCCL has been seen to hang"
    if fabric.write_collapse:
        yield (
            f"{fabric.write_collapse} GPUs of one switch that write to two root ports at once collapse to a few GB/s: "
            "prefer algorithms with one flow per switch across"
        )
    across = any(link.kind is LinkKind.SOCKET for link in fabric.links) and fabric.host.vendor == "amd"
    capability = gpu_type(fabric.gpu_model).compute_capability if fabric.gpu_model else 0
    if across and capability >= 100 and not fabric.nccl.graph_file:
        yield "NCCL finds no ring across AMD sockets on this GPU and falls back: give it an NCCL_GRAPH_FILE"
