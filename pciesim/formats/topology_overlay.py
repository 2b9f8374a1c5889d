"""The overlay: what ``nvidia-smi topo -m`` cannot show, as YAML beside the matrix (``box.yaml`` beside ``box.txt``).

Everything is optional, and what is stated here wins over what was inferred::

    schema: pciesim/topology/1
    gpu: rtx_pro_6000
    link: {generation: 5, width: 16}      # of every GPU's slot
    gpus: {3: {width: 8}}                 # one slot differs
    switches:                             # all of them; GPUs named in none sit on root ports
      - {name: left, model: microchip_pm50100, gpus: [0, 1, 2, 3], uplink: {generation: 5, width: 16}}
    root_complexes: [{name: root_00, switches: [left]}]   # several of one socket, and what hangs on each
    host: {cpu: EPYC 9575F, sockets: 2, socket_link: {links: 3}}
    nccl: {p2p_level: SYS}
    profile: box-profile.yaml             # what `pciesim calibrate fit` made of this box, beside this file
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, ValidationInfo, field_validator

from pciesim.errors import InputError
from pciesim.formats.catalogue import ByteQuantity, Rate
from pciesim.formats.documents import Document, read_document

__all__ = [
    "ConcurrencyEntry", "GpuEntry", "HostEntry", "LinkEntry", "NcclEntry", "NicEntry", "OverlayDocument", "P2pEntry",
    "QuadrantEntry", "RootComplexEntry", "SocketLinkEntry", "SwitchEntry", "read_overlay",
]  # fmt: skip

Generation = Annotated[int, Field(ge=1, le=6)]
Width = Literal[1, 2, 4, 8, 16]
Index = Annotated[int, Field(ge=0, le=999)]
Socket = Annotated[int, Field(ge=0, le=15)]
Share = Annotated[float, Field(gt=0, le=1)]


class LinkEntry(Document):
    """A PCIe link: generation and lanes as negotiated under load (idle GPUs train down)."""

    generation: Generation | None = None
    width: Width | None = None


class GpuEntry(LinkEntry):
    """One GPU: whatever differs from the rest."""

    model: str | None = None
    socket: Socket | None = None
    numa: Index | None = None
    label: str = ""


class NicEntry(LinkEntry):
    """One NIC: its link, and its socket where the matrix does not tell (a switch lists its own NICs)."""

    socket: Socket | None = None


class SwitchEntry(Document):
    """A PCIe switch, or one partition of a chip that is cut into several (``chip`` names it).

    ``behind`` names the switch above; without it the uplink ends at a root port of its own.
    """

    name: str
    model: str | None = None
    gpus: tuple[Index, ...] = ()
    nics: tuple[Index, ...] = ()
    uplink: LinkEntry = LinkEntry()
    behind: str | None = None
    chip: str = ""
    socket: Socket | None = None


class RootComplexEntry(Document):
    """A root complex (host bridge): a socket may have several, and nvidia-smi prints NODE between them.

    ``gpus``, ``nics`` and ``switches`` stand for the root ports above them; a port in no list is on its socket's own
    ``root_complex0`` (or 1). ``bandwidth`` is what all of its ports reach outside it in one direction.
    """

    name: str
    gpus: tuple[Index, ...] = ()
    nics: tuple[Index, ...] = ()
    switches: tuple[str, ...] = ()
    socket: Socket | None = None
    bandwidth: Rate | None = None


class QuadrantEntry(Document):
    """Root complexes that share one path into the I/O die: ``bandwidth`` is what they reach in one direction."""

    name: str
    root_complexes: tuple[str, ...]
    bandwidth: Rate


class SocketLinkEntry(Document):
    """The links between two sockets: how many, and the raw rate of each per direction."""

    links: PositiveInt | None = None
    bandwidth: Rate | None = None


class HostEntry(Document):
    """CPU, sockets, NUMA nodes (``numa``: node to socket), memory bandwidth of a NUMA node.

    ``acs_redirect``: switches send peer traffic up through the root complex (ACS request redirect is on).
    """

    cpu: str | None = None
    sockets: Annotated[int, Field(ge=1, le=8)] | None = None
    numa: dict[Index, Socket] = Field(default_factory=dict)
    memory_bandwidth: Rate | None = None
    socket_link: SocketLinkEntry = SocketLinkEntry()
    iommu: bool = False
    acs_redirect: bool | None = None


class P2pEntry(Document):
    """Peer-to-peer over PCIe: does the driver grant it (``topo -p2p r`` says OK), the size of BAR1, the override.

    ``refused`` lists pairs that it refuses where it grants others. ``registry_override`` false: the driver runs without
    its ForceP2P option, and loads from peers across a root complex are slow.
    """

    driver: bool | None = None
    refused: tuple[tuple[Index, Index], ...] = ()
    bar1: ByteQuantity | None = None
    registry_override: bool | None = None


class NcclEntry(Document):
    """NCCL as this box runs it; see :class:`pciesim.fabric.NcclEnvironment`."""

    version: str = ""
    p2p: bool = True
    p2p_level: Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"] | None = None
    graph_file: bool = False
    algorithm: Literal["Ring", "Tree"] | None = None
    protocol: Literal["LL", "LL128", "Simple"] | None = None
    channels: PositiveInt | None = None


class ConcurrencyEntry(Document):
    """What concurrent transfers reach on this box; see :class:`pciesim.fabric.Concurrency`.

    Fitted to copy tests of the box (``docs/contention.md``); state what you have measured, leave out the rest.
    """

    copy_share: Share | None = None
    host_read_share: Share | None = None
    socket_peer: Rate | None = None
    socket_peer_both: Rate | None = None
    port_socket_peer: Rate | None = None
    host_dma: Rate | None = None
    collapsed: Rate | None = None


class OverlayDocument(Document):
    """An overlay file."""

    format: Literal["pciesim/topology/1"] = Field(alias="schema")
    name: str = ""
    notes: str = ""
    gpu: str | None = None
    link: LinkEntry = LinkEntry()
    gpus: dict[Index, GpuEntry] = Field(default_factory=dict)
    nics: dict[Index, NicEntry] = Field(default_factory=dict)
    switches: tuple[SwitchEntry, ...] | None = None
    root_complexes: tuple[RootComplexEntry, ...] = ()
    quadrants: tuple[QuadrantEntry, ...] = ()
    host: HostEntry = HostEntry()
    p2p: P2pEntry = P2pEntry()
    nccl: NcclEntry = NcclEntry()
    write_collapse: PositiveInt | None = None
    concurrency: ConcurrencyEntry = ConcurrencyEntry()
    profile: str = ""

    @field_validator("switches")
    @classmethod
    def _switches_make_a_forest(cls, switches: tuple[SwitchEntry, ...] | None) -> tuple[SwitchEntry, ...] | None:
        above = {switch.name: switch.behind for switch in switches or ()}
        members = [gpu for switch in switches or () for gpu in switch.gpus]
        if switches and len(above) < len(switches):
            raise ValueError("two switches have one name")
        if len(set(members)) < len(members):
            raise ValueError("a GPU is listed behind two switches")
        for name in above:
            here, passed = name, {name}
            while (parent := above[here]) is not None:
                if parent not in above:
                    raise ValueError(f"switch '{here}' is behind '{parent}', which is no switch of this file")
                if parent in passed:
                    raise ValueError(f"switch '{name}' is behind itself")
                passed.add(parent)
                here = parent
        return switches

    @field_validator("root_complexes")
    @classmethod
    def _root_complexes_differ(cls, complexes: tuple[RootComplexEntry, ...]) -> tuple[RootComplexEntry, ...]:
        if len({each.name for each in complexes}) < len(complexes):
            raise ValueError("two root complexes have one name")
        return complexes

    @field_validator("quadrants")
    @classmethod
    def _quadrants_hold_root_complexes(
        cls, quadrants: tuple[QuadrantEntry, ...], info: ValidationInfo
    ) -> tuple[QuadrantEntry, ...]:
        if "root_complexes" not in info.data:  # refused themselves
            return quadrants
        known = {each.name for each in info.data["root_complexes"]}
        held = [name for quadrant in quadrants for name in quadrant.root_complexes]
        unknown = next((name for name in held if name not in known), None)
        if unknown is not None:
            valid = ", ".join(sorted(known)) or "none is stated"
            raise ValueError(f"'{unknown}' is no root complex of this file (valid: {valid})")
        if len(set(held)) < len(held):
            raise ValueError("a root complex is listed in two quadrants")
        return quadrants

    @classmethod
    def empty(cls) -> OverlayDocument:
        """An overlay that states nothing."""
        return cls(schema="pciesim/topology/1")

    @classmethod
    def told_by(cls, data: Mapping[str, Any], *, source: str) -> OverlayDocument:
        """What another tool's output says, as an overlay. Raises InputError where that cannot be true of a machine."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            path = ".".join(str(part) for part in fault["loc"])
            message = fault["msg"][:1].lower() + fault["msg"][1:]
            raise InputError(f"{path}: {message}, found {fault['input']!r}", where=source) from None


def read_overlay(path: Path) -> OverlayDocument:
    """An overlay from a YAML file; a profile that lies beside it is named from where pciesim runs.

    Raises InputError with file, line, column and key.
    """
    overlay = read_document(path, OverlayDocument)
    beside = path.parent / overlay.profile
    return overlay.model_copy(update={"profile": str(beside)}) if overlay.profile and beside.is_file() else overlay
