"""A fabric for the terminal: the tree of the box, the matrix, what every pair costs, what was assumed."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind
from pciesim.physics import RouteCosts
from pciesim.reports.topology_pairs import PairClass, pair_classes
from pciesim.reports.topology_tree import children_of
from pciesim.units import GB, US, format_rate

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["print_fabric", "render", "to_text"]

_NARROW: Final = 96
_PAIRS_SHOWN: Final = 4


def print_fabric(fabric: Fabric, costs: RouteCosts, *, profile: str, gpu_name: str = "") -> None:
    """Print to stdout in the terminal's width."""
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as capture:  # not straight to stdout: rich would answer a closed pipe by leaving
        console.print(render(fabric, costs, profile=profile, gpu_name=gpu_name, width=console.width))
    sys.stdout.write(capture.get())


def to_text(fabric: Fabric, costs: RouteCosts, *, profile: str, gpu_name: str = "", width: int = 100) -> str:
    """The same without colour, as a string without trailing blanks."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, no_color=True)
    with console.capture() as capture:
        console.print(render(fabric, costs, profile=profile, gpu_name=gpu_name, width=width))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def render(fabric: Fabric, costs: RouteCosts, *, profile: str, gpu_name: str = "", width: int = 100) -> RenderableType:
    """Everything ``topo show`` says."""
    return Group(
        *_headline(fabric, gpu_name),
        *_section("The box", *_trees(fabric)),
        *_section("Matrix", _matrix(fabric)),
        *_section(f"What a pair costs (profile {profile})", *_pairs(fabric, costs, 2 if width >= _NARROW else 1)),
        *_section("Assumed", *_assumptions(fabric)),
    )


def _section(title: str, *body: RenderableType) -> Iterable[RenderableType]:
    if body:
        yield Text("")
        yield Text(title, style="bold")
        yield from (Padding(each, (0, 0, 0, 2), expand=False) for each in body)


def _headline(fabric: Fabric, gpu_name: str) -> Iterable[RenderableType]:
    yield Text(fabric.name, style="bold")
    gpus, sockets = len(fabric.gpus), len(fabric.of_kind(DeviceKind.SOCKET))
    switches = fabric.of_kind(DeviceKind.SWITCH)
    chips = len({switch.chip or switch.name for switch in switches})
    parts = [
        f"{gpus} x {gpu_name or fabric.gpu_model}" if fabric.gpu_model else f"{gpus} GPU{'s' if gpus > 1 else ''}",
        f"{sockets} socket{'s' if sockets > 1 else ''} {fabric.host.cpu}".rstrip(),
    ]
    if switches:
        cut = f" in {len(switches)} partitions" if len(switches) > chips else ""
        parts.append(f"{chips} switch chip{'s' if chips > 1 else ''}{cut}")
    if fabric.nics:
        parts.append(f"{len(fabric.nics)} NIC{'s' if len(fabric.nics) > 1 else ''}")
    yield Text(", ".join(parts))
    level = fabric.nccl.p2p_level or "NCCL's default level"
    yield Text(f"peer-to-peer {'up to ' + level if fabric.nccl.p2p else 'off: NCCL goes through host memory'}")
    if fabric.acs_redirect:
        yield Text("ACS redirect is on: peers of one switch go through the root complex", style="yellow")
    if fabric.host.iommu:
        yield Text("the IOMMU is on: about 15 % less for a single flow, and known hangs of NCCL", style="yellow")
    if fabric.write_collapse:
        yield Text(
            f"posted writes collapse when {fabric.write_collapse} GPUs of one switch write to two root ports at once",
            style="yellow",
        )


# -- the tree -----------------------------------------------------------------------------------------------------


def _trees(fabric: Fabric) -> Iterable[RenderableType]:
    children = children_of(fabric)
    for socket in fabric.of_kind(DeviceKind.SOCKET):
        across = [
            f"{link.target} {format_rate(link.bandwidth)}"
            for link in fabric.links
            if link.source == socket.name and link.kind is LinkKind.SOCKET
        ]
        tree = Tree(Text.assemble((socket.name, "bold"), "".join(f"  ══ {each}" for each in across)))
        _grow(tree, children, socket.name)
        yield tree
    bridges = [
        f"{link.source} ═ {link.target} {link.width} x NVLink"
        for link in fabric.links
        if link.kind is LinkKind.NVLINK and link.source < link.target
    ]
    if bridges:
        more = f" and {len(bridges) - _PAIRS_SHOWN} more" if len(bridges) > _PAIRS_SHOWN else ""
        yield Text("; ".join(bridges[:_PAIRS_SHOWN]) + more)


def _grow(tree: Tree, children: dict[str, list[tuple[Device, Link]]], name: str) -> None:
    for device, link in children.get(name, []):
        branch = tree.add(_label(device, link)) if device.kind is not DeviceKind.ROOT_COMPLEX else tree
        _grow(branch, children, device.name)


def _label(device: Device, link: Link) -> Text:
    lanes = f"Gen{link.generation} x{link.width}" if link.kind is LinkKind.PCIE else ""
    style = {DeviceKind.GPU: "green", DeviceKind.SWITCH: "cyan", DeviceKind.NIC: "magenta"}.get(device.kind, "")
    extra = [
        device.label,
        device.model if device.kind is DeviceKind.SWITCH else "",
        f"chip {device.chip}" * bool(device.chip),
    ]
    if device.kind is DeviceKind.MEMORY:
        lanes = format_rate(link.bandwidth)
    return Text.assemble((device.name, style), "  ", lanes, "".join(f"  {each}" for each in extra if each))


# -- tables -------------------------------------------------------------------------------------------------------


def _matrix(fabric: Fabric) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("", *(gpu.name for gpu in fabric.gpus), "NUMA"):
        table.add_column(heading)
    for gpu, row in zip(fabric.gpus, fabric.matrix, strict=True):
        table.add_row(gpu.name, *row, "-" if gpu.numa is None else str(gpu.numa))
    return table


def _pairs(fabric: Fabric, costs: RouteCosts, gap: int) -> Iterable[RenderableType]:
    rows = pair_classes(fabric, costs)
    if not rows:
        return
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim")
    for heading in ("pairs", "type", "crosses"):
        table.add_column(heading)
    for heading in ("L us", "R us", "write", "read", "copy"):
        table.add_column(heading, justify="right")
    table.add_column("limit")
    for row in rows:
        table.add_row(
            _pair_names(row.pairs),
            row.path_type + ("" if row.peer else ", no P2P"),
            _crossing(row),
            f"{row.store / US:.2f}",
            f"{row.load / US:.2f}",
            *(f"{rate / GB:.1f}" for rate in (row.write, row.read, row.copy)),
            row.limit,
        )
    yield table
    if not fabric.nccl.p2p or not all(row.peer for row in rows):
        memory = fabric.memory_of(fabric.gpus[-1].name).name
        up, down = fabric.route(fabric.gpus[0].name, memory), fabric.route(memory, fabric.gpus[-1].name)
        yield Text(f"through host memory, as NCCL goes without P2P: L {costs.through_host(up, down) / US:.2f} us")
    yield Text("L: store until visible; R: dependent load; write, read, copy: GB/s of one flow alone", style="dim")


def _pair_names(pairs: Sequence[tuple[int, int]]) -> str:
    shown = " ".join(f"{one}-{other}" for one, other in pairs[:_PAIRS_SHOWN])
    return shown + (f" +{len(pairs) - _PAIRS_SHOWN}" if len(pairs) > _PAIRS_SHOWN else "")


def _crossing(row: PairClass) -> str:
    if row.path_type == "NVL":
        return "NVLink"
    parts = [
        f"{row.switches} switch{'es' if row.switches > 1 else ''}" if row.switches else "",
        "CPU" if row.root_complexes and not row.socket_hops else "",
        "2 CPUs" if row.socket_hops else "",
    ]
    return " + ".join(part for part in parts if part)


def _assumptions(fabric: Fabric) -> Iterable[RenderableType]:
    for each in fabric.assumptions:
        yield Text.assemble("- ", each.text)
        if each.settle:
            yield Padding(Text.assemble(("settle: ", "dim"), each.settle), (0, 0, 0, 4), expand=False)
        if each.matters:
            yield Padding(Text.assemble(("matters: ", "dim"), each.matters), (0, 0, 0, 4), expand=False)
