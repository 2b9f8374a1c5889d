"""A fabric for the terminal: the tree of the box, the matrix, what every pair costs, what was assumed."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind
from pciesim.formats.topology_smi import runs
from pciesim.physics import RouteCosts
from pciesim.reports.topology_pairs import PairClass, pair_classes, peer_level
from pciesim.reports.topology_tree import children_of, is_usual, limit_of
from pciesim.units import GB, US, format_rate

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["print_fabric", "render", "to_text"]

_NARROW: Final = 96
_PAIRS_SHOWN: Final = 4
_NICS_SHOWN: Final = 4  # of one parent; more of a kind stand in one line
_INDENT: Final = 2


def print_fabric(fabric: Fabric, costs: RouteCosts, *, profile: str, gpu_name: str = "", cpu_name: str = "") -> None:
    """Print to stdout in the terminal's width."""
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as capture:  # not straight to stdout: rich would answer a closed pipe by leaving
        console.print(render(fabric, costs, profile=profile, gpu_name=gpu_name, cpu_name=cpu_name, width=console.width))
    sys.stdout.write(_without_trailing_blanks(capture.get()))


def to_text(
    fabric: Fabric, costs: RouteCosts, *, profile: str, gpu_name: str = "", cpu_name: str = "", width: int = 100
) -> str:
    """The same without colour, as a string."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, no_color=True)
    with console.capture() as capture:
        console.print(render(fabric, costs, profile=profile, gpu_name=gpu_name, cpu_name=cpu_name, width=width))
    return _without_trailing_blanks(capture.get())


def _without_trailing_blanks(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def render(
    fabric: Fabric, costs: RouteCosts, *, profile: str, gpu_name: str = "", cpu_name: str = "", width: int = 100
) -> RenderableType:
    """Everything ``topo show`` says, for a terminal of that width."""
    whose = f"profile {profile}" + ("" if fabric.gpu_model else ", because the GPU is not stated")
    return Group(
        *_headline(fabric, gpu_name, cpu_name),
        *_section("The box", *_trees(fabric)),
        *_section("Matrix", *_matrix(fabric, width - _INDENT)),
        *_section(f"What a pair costs ({whose})", *_pairs(fabric, costs, narrow=width < _NARROW)),
        *_section("Assumed", *_assumptions(fabric)),
    )


def _section(title: str, *body: RenderableType) -> Iterable[RenderableType]:
    if body:
        yield Text("")
        yield Text(title, style="bold")
        yield from (Padding(each, (0, 0, 0, _INDENT), expand=False) for each in body)


# -- the headline -------------------------------------------------------------------------------------------------


def _headline(fabric: Fabric, gpu_name: str, cpu_name: str) -> Iterable[RenderableType]:
    yield Text(fabric.name, style="bold")
    gpus, sockets = len(fabric.gpus), len(fabric.of_kind(DeviceKind.SOCKET))
    model = gpu_name or fabric.gpu_model
    parts = [f"{gpus} x {model}" if model else f"{_count(gpus, 'GPU')} of a model not stated"]
    switches = fabric.of_kind(DeviceKind.SWITCH)
    chips = len({switch.chip or switch.name for switch in switches})
    if switches:
        cut = len(switches) > chips
        parts.append(f"{_count(chips, 'chip')} in {len(switches)} partitions" if cut else _count(chips, "switch"))
    if fabric.nics:
        parts.append(_count(len(fabric.nics), "NIC"))
    yield Text(", ".join(parts))
    yield Text(f"{_count(sockets, 'socket')}, {cpu_name or fabric.host.cpu or 'CPU not stated'}")
    if gpus > 1:
        yield Text(peer_level(fabric))
    if fabric.acs_redirect:
        yield Text("ACS redirect is on: peers of one switch go through the root complex", style="yellow")
    if not fabric.registry_override:
        yield Text("no ForceP2P option: loads from peers across a root complex are slow", style="yellow")
    if fabric.host.iommu:
        yield Text("the IOMMU is on: about 15 % less for a single flow, and known hangs of NCCL", style="yellow")
    if fabric.write_collapse:
        yield Text(
            f"posted writes collapse when {fabric.write_collapse} GPUs of one switch write to two root ports at once",
            style="yellow",
        )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "es" if word.endswith("h") else "s")


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
        _grow(tree, fabric, children, socket.name)
        yield tree
    yield from _nvlinks(fabric)


def _grow(tree: Tree, fabric: Fabric, children: dict[str, list[tuple[Device, Link]]], name: str) -> None:
    nics: dict[tuple[int | None, int | None], list[Device]] = {}
    for device, link in children.get(name, []):
        below = children.get(device.name, [])
        if device.kind is DeviceKind.NIC:
            nics.setdefault((link.generation, link.width), []).append(device)
        elif device.kind is DeviceKind.ROOT_COMPLEX and is_usual(fabric, device):
            _grow(tree, fabric, children, device.name)
        elif device.kind is DeviceKind.ROOT_PORT and len(below) == 1:
            only, slot = below[0]
            branch = tree.add(Text.assemble(f"{device.name} ── ", _label(fabric, only, slot)))
            _grow(branch, fabric, children, only.name)
        else:
            _grow(tree.add(_label(fabric, device, link)), fabric, children, device.name)
    for (generation, width), members in nics.items():
        lanes = f"  Gen{generation} x{width}"
        if len(members) > _NICS_SHOWN:
            spans = [f"NIC{a} to NIC{b}" if b > a else f"NIC{a}" for a, b in runs(nic.index or 0 for nic in members)]
            tree.add(Text.assemble((", ".join(spans), "magenta"), lanes, f"  {len(members)} NICs"))
        else:
            for nic in members:
                tree.add(Text.assemble((nic.name, "magenta"), lanes, f"  {nic.label}" * bool(nic.label)))


def _label(fabric: Fabric, device: Device, link: Link) -> Text:
    detail = f"Gen{link.generation} x{link.width}" if link.kind is LinkKind.PCIE else ""
    if device.kind is DeviceKind.ROOT_COMPLEX:
        rate, quadrant = limit_of(fabric, device)
        detail = "root complex" + (f", {format_rate(rate)} in all" if rate else "") + f" ({quadrant})" * bool(quadrant)
    if device.kind is DeviceKind.MEMORY:
        detail = format_rate(link.bandwidth)
    style = {DeviceKind.GPU: "green", DeviceKind.SWITCH: "cyan", DeviceKind.NIC: "magenta"}.get(device.kind, "")
    model = device.model if device.kind is DeviceKind.SWITCH or device.model != fabric.gpu_model else ""
    extra = [
        device.label,
        model if device.kind in (DeviceKind.SWITCH, DeviceKind.GPU) else "",
        f"chip {device.chip}" * bool(device.chip),
    ]
    return Text.assemble((device.name, style), *(f"  {each}" for each in (detail, *extra) if each))


def _nvlinks(fabric: Fabric) -> Iterable[RenderableType]:
    wires = [link for link in fabric.links if link.kind is LinkKind.NVLINK and link.source < link.target]
    if any(each.name.startswith("nvlink_out_") for each in fabric.constraints):
        yield Text(f"NVSwitch ═ {max(link.width or 0 for link in wires)} x NVLink to each GPU")
    elif wires:
        shown = [f"{link.source} ═ {link.target} {link.width} x NVLink" for link in wires]
        more = f" and {len(wires) - _PAIRS_SHOWN} more" if len(wires) > _PAIRS_SHOWN else ""
        yield Text("; ".join(shown[:_PAIRS_SHOWN]) + more)


# -- tables -------------------------------------------------------------------------------------------------------


def _matrix(fabric: Fabric, width: int) -> Iterable[Text]:
    """The matrix in as many blocks of columns as the width needs, never clipped."""
    names = [gpu.name for gpu in fabric.gpus]
    heads, rows, gap = names, [list(row) for row in fabric.matrix], 2
    label = max(len(name) for name in (*names, "NUMA")) + 2
    cell = max(len(text) for text in (*names, *(text for row in rows for text in row)))
    if label + (len(names) + 1) * (cell + gap) > width:
        heads, gap = [name.removeprefix("GPU") for name in names], 1
        cell = max(len(text) for text in (*heads, *(text for row in rows for text in row)))
    heads = [*heads, "NUMA"]
    rows = [[*row, "-" if gpu.numa is None else str(gpu.numa)] for gpu, row in zip(fabric.gpus, rows, strict=True)]
    fitting = max(1, (width - label + gap) // (cell + gap))
    even = math.ceil(len(heads) / math.ceil(len(heads) / fitting))
    for start in range(0, len(heads), even):
        block = slice(start, start + even)
        yield Text(" " * label + (" " * gap).join(f"{each:{cell}}" for each in heads[block]), style="dim")
        for name, row in zip(names, rows, strict=True):
            yield Text(f"{name:{label}}" + (" " * gap).join(f"{each:{cell}}" for each in row[block]))


def _pairs(fabric: Fabric, costs: RouteCosts, *, narrow: bool) -> Iterable[RenderableType]:
    rows = pair_classes(fabric, costs)
    if not rows:
        return
    table = Table(box=None, padding=(0, 1 if narrow else 2, 0, 0), header_style="dim")
    for heading in ("pairs", "type", "crosses"):
        table.add_column(heading)
    for heading in ("L us", "R us", "write", "read", "copy"):
        table.add_column(heading, justify="right")
    table.add_column("limit")
    for row in rows:
        table.add_row(
            _pair_names(row.pairs, _PAIRS_SHOWN - narrow),
            row.path_type + ("" if row.peer else ", no P2P"),
            _crossing(row, narrow),
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
    yield Text("L: a store until it is visible; R: a dependent load", style="dim")
    yield Text(f"write, read: one flow of a kernel, copy: of a copy engine, GB/s{'; sw: switch' * narrow}", style="dim")


def _pair_names(pairs: Sequence[tuple[int, int]], shown: int) -> str:
    names = " ".join(f"{one}-{other}" for one, other in pairs[:shown])
    return names + (f" +{len(pairs) - shown}" if len(pairs) > shown else "")


def _crossing(row: PairClass, narrow: bool) -> str:
    if row.path_type == "NVL":
        return "NVLink"
    cpus = "2 CPUs" if row.socket_hops else "CPU" if row.root_complexes else ""
    if row.root_complexes > 1 and not row.socket_hops:
        cpus = "2 roots"
    switches = f"{row.switches} sw" if narrow else _count(row.switches, "switch")
    return " + ".join(part for part in (switches if row.switches else "", cpus) if part)


def _assumptions(fabric: Fabric) -> Iterable[RenderableType]:
    for each in fabric.assumptions:
        lines = Table.grid(padding=(0, 1, 0, 0))
        lines.add_row("-", Text(each.text))
        for word, text in (("settle", each.settle), ("matters", each.matters)):
            if text:
                detail = Table.grid(padding=(0, 1, 0, 0))
                detail.add_row(Text(f"{word}:", style="dim"), Text(text))
                lines.add_row("", detail)
        yield lines
