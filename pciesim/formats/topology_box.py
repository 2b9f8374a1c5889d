"""A box resolved against the catalogue: what every slot, uplink and socket is, stated or at its most likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from pciesim.formats.catalogue import UNKNOWN_HOST, gpu_type, host_type, switch_type
from pciesim.formats.topology_infer import Plan, PlannedSwitch
from pciesim.formats.topology_overlay import LinkEntry, OverlayDocument
from pciesim.formats.topology_roots import Roots, plan_roots
from pciesim.formats.topology_smi import TopologyMatrix, is_nvlink
from pciesim.hardware import GpuType, HostType, SwitchType
from pciesim.units import GB, MIB, BytesPerSecond

__all__ = ["DEFAULT_GENERATION", "DEFAULT_WIDTH", "Box", "PcieLink", "resolve"]

PcieLink: TypeAlias = tuple[int, int]
"""(generation, lanes)."""

DEFAULT_GENERATION: Final = 4  # of a device nobody named: most boxes in the field
DEFAULT_WIDTH: Final = 16
_NVLINK: Final[BytesPerSecond] = 25 * GB  # per link and direction since NVLink 2, where the GPU model is not known
_MOST_NVLINKS: Final = 18  # no GPU so far has more: a row of the matrix that sums to more sees a switch
_SMALL_BAR1: Final = 256 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Text, overlay, plan and the catalogue entries they name. ``gpus`` has None for a GPU of unknown model.

    ``nvlinks`` counts the NVLinks of every GPU pair that both ends report.
    """

    matrix: TopologyMatrix
    overlay: OverlayDocument
    plan: Plan
    gpus: tuple[GpuType | None, ...]
    host: HostType
    switches: dict[str, SwitchType | None]
    nvlinks: tuple[tuple[int, ...], ...]
    roots: Roots

    def gpu_link(self, gpu: int) -> PcieLink:
        """A GPU's slot: as stated for it, for all, or the most that GPU and the port above can do."""
        kind, own, every = self.gpus[gpu], self.overlay.gpus.get(gpu) or LinkEntry(), self.overlay.link
        holder = self.plan.gpu_switches[gpu]
        above = self.switches[holder] if holder else None
        limit = above.pcie_generation if above else self.host.pcie_generation
        most = min(kind.pcie_generation if kind else DEFAULT_GENERATION, limit)
        width = kind.pcie_width if kind else DEFAULT_WIDTH
        return own.generation or every.generation or most, own.width or every.width or width

    def uplink(self, switch: PlannedSwitch) -> PcieLink:
        """The link from a switch up: as stated, else x16 of the chip's generation or of the fastest link below it."""
        chip, stated = self.switches[switch.name], switch.uplink or LinkEntry()
        if chip is not None:
            most = chip.pcie_generation
        else:
            below = [self.gpu_link(gpu)[0] for gpu in switch.gpus]
            below += [self.uplink(each)[0] for each in self.plan.switches if each.behind == switch.name]
            most = max(below, default=DEFAULT_GENERATION)
        return stated.generation or min(most, self.host.pcie_generation), stated.width or DEFAULT_WIDTH

    def nic_link(self, nic: int) -> PcieLink:
        """A NIC's slot."""
        own = self.overlay.nics.get(nic) or LinkEntry()
        return own.generation or DEFAULT_GENERATION, own.width or DEFAULT_WIDTH

    def nvlink_peers(self, gpu: int) -> tuple[int, ...]:
        """GPUs that a GPU reaches over NVLink."""
        return tuple(other for other, count in enumerate(self.nvlinks[gpu]) if count)

    def behind_nvswitch(self, gpu: int) -> bool:
        """Whether a GPU's row shows more NVLinks than a GPU can have: its peers then share one set."""
        return sum(self.nvlinks[gpu]) > _MOST_NVLINKS

    def nvlink_rate(self, gpu: int) -> BytesPerSecond:
        """One NVLink of a GPU, per direction."""
        kind = self.gpus[gpu]
        return kind.nvlink_bandwidth if kind is not None and kind.nvlink else _NVLINK

    def may_peer(self, one: int, other: int) -> bool:
        """Whether the driver grants peer-to-peer: as stated, else as the vendor's stock driver does."""
        stated = self.overlay.p2p
        if (one, other) in stated.refused or (other, one) in stated.refused:
            return False
        if self.nvlinks[one][other]:
            return True
        if stated.driver is False:
            return False
        if stated.bar1 is not None and stated.bar1 <= _SMALL_BAR1:
            return False
        stock = all(kind is None or kind.pcie_p2p for kind in (self.gpus[one], self.gpus[other]))
        return stated.driver is not None or stock


def resolve(matrix: TopologyMatrix, overlay: OverlayDocument, plan: Plan, *, source: str = "") -> Box:
    """The box. Raises UnknownName for a GPU, CPU or switch model that the catalogue lacks, InputError where root
    complexes contradict the plan."""
    names = [
        entry.model if (entry := overlay.gpus.get(gpu)) and entry.model else overlay.gpu
        for gpu in range(len(matrix.gpus))
    ]
    gpus = {name: gpu_type(name, where=source) for name in dict.fromkeys(names) if name}
    models = [switch.model for switch in plan.switches]
    chips = {name: switch_type(name, where=source) for name in dict.fromkeys(models) if name}
    return Box(
        matrix=matrix,
        overlay=overlay,
        plan=plan,
        gpus=tuple(gpus[name] if name else None for name in names),
        host=host_type(overlay.host.cpu or UNKNOWN_HOST, where=source),
        switches={switch.name: chips[switch.model] if switch.model else None for switch in plan.switches},
        nvlinks=tuple(
            tuple(
                min(_links(matrix.cells[one][other]), _links(matrix.cells[other][one])) for other in range(len(names))
            )
            for one in range(len(names))
        ),
        roots=plan_roots(matrix, overlay, plan, source=source),
    )


def _links(cell: str) -> int:
    return int(cell[2:]) if is_nvlink(cell) else 0
