"""A drawing of a box as SVG: sockets with their memory, root ports, switches, cards, every link with its lanes.

Written by hand rather than plotted: boxes and lines on a grid, one column per card, so that an owner sees the machine
from above. What is slower than its neighbours is drawn in red.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from pciesim.errors import InputError
from pciesim.fabric import Device, DeviceKind, Fabric, Link, LinkKind
from pciesim.reports.topology_pairs import peer_level
from pciesim.reports.topology_tree import children_of, is_usual, limit_of, upward
from pciesim.units import format_rate

__all__ = ["to_svg", "write_svg"]

_COLUMN: Final = 104
_CARD: Final = (88, 62)
_MARGIN: Final = 28
_TITLE: Final = 64
_MEMORY_Y: Final = _TITLE + 12
_SOCKET_Y: Final = _MEMORY_Y + 62
_SOCKET_H: Final = 74
_LEVEL: Final = 104
_SOCKET_GAP: Final = 84
_FILL: Final = {
    DeviceKind.GPU: ("#e5f3d0", "#5b8c00"),
    DeviceKind.NIC: ("#efe3f7", "#7b3fa0"),
    DeviceKind.SWITCH: ("#d6edf2", "#1b7a8f"),
    DeviceKind.ROOT_COMPLEX: ("#d5dbe6", "#8a97ab"),
    DeviceKind.ROOT_PORT: ("#ffffff", "#44546a"),
    DeviceKind.SOCKET: ("#e9edf3", "#44546a"),
    DeviceKind.MEMORY: ("#fdf1d6", "#a87400"),
}
_WIRE: Final = "#5a6472"
_SLOW: Final = "#c62828"
_NVLINK: Final = "#5b8c00"


@dataclass(slots=True)
class _Place:
    """A device, or several NICs of one parent, and where it is drawn."""

    devices: list[Device]
    link: Link | None
    below: list[_Place] = field(default_factory=list)
    x: float = 0.0
    level: int = 0

    @property
    def columns(self) -> int:
        return max(1, sum(place.columns for place in self.below))

    @property
    def kind(self) -> DeviceKind:
        return self.devices[0].kind


def write_svg(fabric: Fabric, path: Path, *, gpu_name: str = "") -> None:
    """Write the drawing. Raises InputError when the file cannot be written or is not named ``.svg``."""
    if path.suffix != ".svg":
        raise InputError("the drawing is SVG; name the file so", where=str(path))
    try:
        path.write_text(to_svg(fabric, gpu_name=gpu_name), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None


def to_svg(fabric: Fabric, *, gpu_name: str = "") -> str:
    """The drawing as text."""
    sockets = fabric.of_kind(DeviceKind.SOCKET)
    trees = {socket.name: _tree(fabric, socket) for socket in sockets}
    x = float(_MARGIN)
    spans: dict[str, tuple[float, float]] = {}
    for name, tree in trees.items():
        span = max(tree.columns, 2) * _COLUMN
        spans[name] = (x, span)
        _lay_out(tree.below, x + (span - tree.columns * _COLUMN) / 2, 1)
        x += span + _SOCKET_GAP
    places = [place for tree in trees.values() for place in _all_below(tree)]
    deepest = max((place.level for place in places), default=1)
    bottom = float(_SOCKET_Y + _SOCKET_H + deepest * _LEVEL)
    bridges = [link for link in fabric.links if link.kind is LinkKind.NVLINK and link.source < link.target]
    height = bottom + (96 if bridges else 34)
    width = max(x - _SOCKET_GAP + _MARGIN, 460.0)
    body = [
        *_title(fabric, gpu_name),
        *_chips(places, bottom),
        *_wires(trees, bottom),
        *_sockets(fabric, trees, spans),
        *_cards(fabric, places, bottom),
        *_nvlinks(fabric, bridges, places, bottom),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="12" fill="#22272e">'
    )
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(fabric.name)}</title>", ground, *body, "</svg>", ""])


# -- layout -------------------------------------------------------------------------------------------------------


def _tree(fabric: Fabric, socket: Device) -> _Place:
    children = children_of(fabric)

    def grow(device: Device, link: Link | None) -> _Place:
        place = _Place(devices=[device], link=link)
        nics: list[Device] = []
        for below, up in children.get(device.name, []):
            if below.kind is DeviceKind.ROOT_COMPLEX and is_usual(fabric, below):
                place.below += grow(below, up).below  # drawn as the socket itself
            elif below.kind is DeviceKind.NIC:
                nics.append(below)
            elif below.kind is not DeviceKind.MEMORY:
                place.below.append(grow(below, up))
        if nics:  # several functions of one card, or several cards of one switch: one box, so that wide hosts fit
            place.below.append(_Place(devices=nics, link=upward(fabric, nics[0])))
        return place

    return grow(socket, None)


def _lay_out(places: Sequence[_Place], x: float, level: int) -> None:
    """Centres of every place; root complexes and ports are level 0, cards and switches on that which depth gives."""
    for place in places:
        inside = place.kind in (DeviceKind.ROOT_PORT, DeviceKind.ROOT_COMPLEX)
        place.level = level - 1 if inside else level
        place.x = x + place.columns * _COLUMN / 2
        _lay_out(place.below, x, level if inside else level + 1)
        x += place.columns * _COLUMN


def _all_below(tree: _Place) -> Iterator[_Place]:
    for place in tree.below:
        yield place
        yield from _all_below(place)


def _y(place: _Place, bottom: float) -> float:
    """Top edge: cards in one row at the bottom, switches by their level, root ports on the socket's lower edge."""
    if place.kind is DeviceKind.ROOT_COMPLEX:
        return _SOCKET_Y + 33
    if place.kind is DeviceKind.ROOT_PORT:
        return _SOCKET_Y + _SOCKET_H - 11
    if place.kind is DeviceKind.SWITCH:
        return _SOCKET_Y + _SOCKET_H + (place.level - 1) * _LEVEL + 46
    return bottom - _CARD[1]


def _height(place: _Place) -> float:
    return {DeviceKind.ROOT_COMPLEX: 26, DeviceKind.ROOT_PORT: 22, DeviceKind.SWITCH: 40}.get(place.kind, _CARD[1])


# -- drawing ------------------------------------------------------------------------------------------------------


def _text(x: float, y: float, text: str, *, size: int = 12, weight: str = "normal", anchor: str = "middle",
          fill: str = "#22272e") -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{fill}">{escape(text)}</text>'
    )


def _box(x: float, y: float, width: float, height: float, kind: DeviceKind, *, radius: int = 6) -> str:
    fill, edge = _FILL[kind]
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" fill="{fill}" '
        f'stroke="{edge}" stroke-width="1.4"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, *, width: float, colour: str = _WIRE) -> str:
    if abs(x1 - x2) < 1:
        path = f"M{x1:.1f} {y1:.1f} V{y2:.1f}"
    else:
        middle = (y1 + y2) / 2
        path = f"M{x1:.1f} {y1:.1f} V{middle:.1f} H{x2:.1f} V{y2:.1f}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:.1f}" stroke-linejoin="round"/>'


def _title(fabric: Fabric, gpu_name: str) -> Iterator[str]:
    yield _text(_MARGIN, 34, fabric.name, size=20, weight="bold", anchor="start")
    gpus = len(fabric.gpus)
    model = gpu_name or fabric.gpu_model
    parts = [
        f"{gpus} x {model}" if model else f"{gpus} GPU{'s' if gpus > 1 else ''}",
        fabric.host.cpu.replace("_", " "),
        peer_level(fabric) if gpus > 1 else "",
    ]
    yield _text(_MARGIN, 54, ", ".join(part for part in parts if part), anchor="start", fill="#57606a")


def _sockets(fabric: Fabric, trees: dict[str, _Place], spans: dict[str, tuple[float, float]]) -> Iterator[str]:
    names = list(trees)
    for one, other in pairwise(names):
        link = fabric.link(one, other)
        left, right = spans[one][0] + spans[one][1], spans[other][0]
        y = _SOCKET_Y + _SOCKET_H / 2
        for shift in (-4, 4):
            yield _line_h(left, right, y + shift)
        yield _text((left + right) / 2, y - 12, f"{link.width} links" if link.width else "", size=10)
        yield _text((left + right) / 2, y + 22, format_rate(link.bandwidth), size=10)
    for name, (x, width) in spans.items():
        yield _box(x, _SOCKET_Y, width, _SOCKET_H, DeviceKind.SOCKET, radius=10)
        cpu = fabric.host.cpu.replace("_", " ")
        divided = any(place.kind is DeviceKind.ROOT_COMPLEX for place in trees[name].below)
        y = _SOCKET_Y + (22 if divided else 30)
        yield _text(x + width / 2, y, f"{name}: {cpu}" if cpu else name, size=14, weight="bold")
        memories = [
            (fabric.device(link.target), link)
            for link in fabric.links
            if link.source == name and link.kind is LinkKind.DRAM
        ]
        for position, (memory, link) in enumerate(memories):
            share = width / len(memories)
            left = x + position * share + share / 2 - 66
            yield _line(left + 66, _MEMORY_Y + 34, left + 66, _SOCKET_Y, width=3, colour="#a87400")
            yield _box(left, _MEMORY_Y, 132, 34, DeviceKind.MEMORY, radius=4)
            yield _text(left + 66, _MEMORY_Y + 21, f"{memory.name}, {format_rate(link.bandwidth)}", size=11)


def _line_h(left: float, right: float, y: float) -> str:
    return f'<path d="M{left:.1f} {y:.1f} H{right:.1f}" stroke="{_WIRE}" stroke-width="3"/>'


def _wires(trees: dict[str, _Place], bottom: float) -> Iterator[str]:
    links = [place.link for tree in trees.values() for place in _all_below(tree) if _is_slot(place)]
    fastest = max((link.bandwidth for link in links if link is not None), default=0.0)
    for tree in trees.values():
        for parent in (tree, *_all_below(tree)):
            for place in parent.below:
                if _is_slot(place) and place.link is not None:
                    yield from _slot(parent, place, place.link, fastest, bottom)


def _is_slot(place: _Place) -> bool:
    return place.link is not None and place.link.kind is LinkKind.PCIE


def _slot(parent: _Place, place: _Place, link: Link, fastest: float, bottom: float) -> Iterator[str]:
    """A PCIe link: as thick as it is wide, its generation and lanes beside its lower end."""
    slow = place.kind is not DeviceKind.NIC and link.bandwidth < fastest * (1 - 1 / 64)
    colour = _SLOW if slow else _WIRE
    top, below = _y(parent, bottom) + _height(parent), _y(place, bottom)
    yield _line(parent.x, top, place.x, below, width=1 + (link.width or 1) / 5, colour=colour)
    yield _text(place.x + 6, below - 7, f"Gen{link.generation} x{link.width}", size=10, anchor="start", fill=colour)


def _cards(fabric: Fabric, places: Sequence[_Place], bottom: float) -> Iterator[str]:
    for place in places:
        y, first = _y(place, bottom), place.devices[0]
        if place.kind is DeviceKind.ROOT_COMPLEX:
            width = place.columns * _COLUMN - 16
            rate, quadrant = limit_of(fabric, first)
            more = f" ({quadrant} {format_rate(rate)})" if quadrant else f" ({format_rate(rate)})" if rate else ""
            yield _box(place.x - width / 2, y, width, _height(place), place.kind, radius=4)
            yield _text(place.x, y + 17, first.name + more, size=10 if more and place.columns < 2 else 11)
        elif place.kind is DeviceKind.ROOT_PORT:
            yield _box(place.x - 34, y, 68, 22, place.kind, radius=3)
            yield _text(place.x, y + 15, first.name.replace("root_port", "port "), size=10)
        elif place.kind is DeviceKind.SWITCH:
            width = max(place.columns * _COLUMN - 28, 88)
            yield _box(place.x - width / 2, y, width, 40, place.kind)
            yield _text(place.x, y + (17 if first.model else 25), first.name, weight="bold")
            yield _text(place.x, y + 32, first.model.replace("_", " "), size=10, fill="#57606a")
        else:
            yield _box(place.x - _CARD[0] / 2, y, *_CARD, place.kind)
            last = place.devices[-1]
            name = first.name if first is last else f"{first.name} + {len(place.devices) - 1} more"
            yield _text(place.x, y + 24, name, weight="bold", size=13 if first is last else 10)
            lines = [first.label]
            if place.kind is DeviceKind.GPU:
                lines = [
                    first.model.replace("_", " "),
                    first.label or ("" if first.numa is None else f"NUMA {first.numa}"),
                ]
            for position, line in enumerate(line for line in lines if line):
                yield _text(place.x, y + 40 + 13 * position, line, size=10, fill="#57606a")


def _chips(places: Sequence[_Place], bottom: float) -> Iterator[str]:
    """A dashed frame around the partitions of one chip."""
    chips: dict[str, list[_Place]] = {}
    for place in places:
        if place.devices[0].chip:
            chips.setdefault(place.devices[0].chip, []).append(place)
    for name, parts in chips.items():
        left = min(part.x - part.columns * _COLUMN / 2 for part in parts) + 4
        right = max(part.x + part.columns * _COLUMN / 2 for part in parts) - 4
        y = _y(parts[0], bottom)
        yield (
            f'<rect x="{left:.1f}" y="{y - 4:.1f}" width="{right - left:.1f}" height="53" rx="9" fill="#f3fafc" '
            'stroke="#1b7a8f" stroke-dasharray="5 4"/>'
        )
        yield _text((left + right) / 2, y + 63, f"chip {name}", size=10, fill="#1b7a8f")


def _nvlinks(fabric: Fabric, bridges: Sequence[Link], places: Sequence[_Place], bottom: float) -> Iterator[str]:
    if not bridges:
        return
    at = {device.name: place.x for place in places for device in place.devices if place.kind is DeviceKind.GPU}
    if any(each.name.startswith("nvlink_out_") for each in fabric.constraints):
        left, right = min(at.values()) - _CARD[0] / 2, max(at.values()) + _CARD[0] / 2
        yield from (_line(x, bottom, x, bottom + 34, width=4, colour=_NVLINK) for x in at.values())
        yield _box(left, bottom + 34, right - left, 30, DeviceKind.GPU)
        yield _text(
            (left + right) / 2, bottom + 54, f"NVSwitch, {max(link.width or 0 for link in bridges)} links a GPU"
        )
        return
    for link in bridges:
        one, other = sorted((at[link.source], at[link.target]))
        depth = min(16 + abs(other - one) / 7, 64)
        yield (
            f'<path d="M{one:.1f} {bottom:.1f} C{one:.1f} {bottom + depth:.1f} {other:.1f} {bottom + depth:.1f} '
            f'{other:.1f} {bottom:.1f}" fill="none" stroke="{_NVLINK}" stroke-width="{1 + (link.width or 1) / 6:.1f}"/>'
        )
        yield _text((one + other) / 2, bottom + depth * 0.75 + 13, f"NV{link.width}", size=10, fill=_NVLINK)
