"""Root ports and root complexes of a plan: what hangs on which.

Every GPU and every switch that is behind no other has a root port of its own, and so has every group of NICs that are
functions of one card. Root complexes are those of the overlay. Ports in none of them are on their socket's own, of
which there is one: to pass two of a socket costs no more than to turn in one, and the matrix does not tell what each
carries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pciesim.errors import InputError, UnknownName
from pciesim.formats.topology_infer import Plan
from pciesim.formats.topology_overlay import OverlayDocument, RootComplexEntry
from pciesim.formats.topology_smi import TopologyMatrix
from pciesim.units import BytesPerSecond

__all__ = ["RootComplex", "RootPort", "Roots", "plan_roots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RootPort:
    """A root port, by what hangs on it: the name of a GPU, of a top switch, or of a card's first NIC."""

    name: str
    tenant: str
    root_complex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RootComplex:
    """A root complex of a socket. ``bandwidth`` as stated."""

    name: str
    socket: int
    bandwidth: BytesPerSecond | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """All of a box: ports by tenant, root complexes socket by socket."""

    ports: dict[str, RootPort]
    complexes: tuple[RootComplex, ...]


def plan_roots(matrix: TopologyMatrix, overlay: OverlayDocument, plan: Plan, *, source: str = "") -> Roots:
    """The roots. Raises InputError where root complexes claim one port or mix sockets, UnknownName for a switch."""
    sockets = _tenants(matrix, plan)
    owners: dict[str, RootComplexEntry] = {}
    for entry in overlay.root_complexes:
        for member, tenant in _members(entry, matrix, plan, source):
            other = owners.setdefault(tenant, entry)
            if other is not entry:
                raise InputError(f"root complexes '{other.name}' and '{entry.name}' both hold {member}", where=source)
    stated = {
        entry.name: RootComplex(
            name=entry.name,
            socket=_socket(entry, [name for name, owner in owners.items() if owner is entry], sockets, matrix, source),
            bandwidth=entry.bandwidth,
        )
        for entry in overlay.root_complexes
    }
    ports = {
        tenant: RootPort(
            name=f"root_port{number}",
            tenant=tenant,
            root_complex=owners[tenant].name if tenant in owners else _rest(socket, stated),
        )
        for number, (tenant, socket) in enumerate(sockets.items())
    }
    used = {port.root_complex for port in ports.values()}
    complexes: list[RootComplex] = []
    for socket in range(plan.sockets):
        own = [each for each in stated.values() if each.socket == socket]
        rest = _rest(socket, stated)
        if rest not in stated and (rest in used or not own):
            own.insert(0, RootComplex(name=rest, socket=socket, bandwidth=None))
        complexes += own
    return Roots(ports=ports, complexes=tuple(complexes))


def _rest(socket: int, stated: Mapping[str, RootComplex]) -> str:
    """The root complex of a socket's ports that none is stated for; a stated one of that name is another socket's."""
    name = f"root_complex{socket}"
    while name in stated and stated[name].socket != socket:
        name += "_own"
    return name


def _tenants(matrix: TopologyMatrix, plan: Plan) -> dict[str, int]:
    """Socket of everything on a root port: GPUs and top switches by socket and lowest GPU, then groups of NICs.

    A switch counts where it is itself: the matrix may put a GPU below it elsewhere.
    """
    tenants = [plan.top(holder) if holder is not None else matrix.gpus[gpu]
               for gpu, holder in enumerate(plan.gpu_switches)]  # fmt: skip
    switches = {switch.name: switch.socket for switch in plan.switches if switch.behind is None}
    sockets = switches | dict(zip(matrix.gpus, plan.gpu_sockets, strict=True))
    names = dict.fromkeys(name for _, _, name in sorted((sockets[name], gpu, name) for gpu, name in enumerate(tenants)))
    cards = {matrix.nics[members[0]]: plan.nic_sockets[members[0]] for members in plan.nic_ports}
    return {name: sockets[name] for name in [*names, *switches]} | cards


def _members(entry: RootComplexEntry, matrix: TopologyMatrix, plan: Plan, source: str) -> Iterator[tuple[str, str]]:
    """(what the entry names, what hangs on the root port above it)."""
    for gpu in entry.gpus:
        holder = plan.gpu_switches[gpu]
        yield matrix.gpus[gpu], plan.top(holder) if holder is not None else matrix.gpus[gpu]
    for nic in entry.nics:
        holder = plan.nic_switches[nic]
        first = next((members[0] for members in plan.nic_ports if nic in members), nic)
        yield matrix.nics[nic], plan.top(holder) if holder is not None else matrix.nics[first]
    known = [switch.name for switch in plan.switches]
    for name in entry.switches:
        if name not in known:
            raise UnknownName("switch", name, known, where=source)
        yield f"switch '{name}'", plan.top(name)


def _socket(
    entry: RootComplexEntry, tenants: Sequence[str], sockets: Mapping[str, int], matrix: TopologyMatrix, source: str
) -> int:
    """The socket of a root complex: as stated, else its members'. GPUs and switches must agree on it; NICs, whose
    socket is often a guess, follow it."""
    firm = [name for name in tenants if name not in matrix.nics]
    found = entry.socket if entry.socket is not None else next((sockets[name] for name in (*firm, *tenants)), 0)
    for name in firm:
        if sockets[name] != found:
            raise InputError(
                f"root complex '{entry.name}' is on socket {found}, but {name} is on socket {sockets[name]}",
                where=source,
            )
    return found
