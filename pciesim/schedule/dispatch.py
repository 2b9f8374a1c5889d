"""Which backend of an engine serves a collective: an ordered list of backends, each with the conditions it asks for.

The first backend that does not refuse serves. A refusal is a sentence for the user: what it needs, what it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pciesim.model import Precision
from pciesim.schedule.ops import Collective, CollectiveKind
from pciesim.units import format_bytes

__all__ = ["Backend", "Box", "Decision", "Switch", "decide"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What an engine finds out about the GPUs of a group at start-up.

    ``capability`` is major * 10 + minor. ``nvlink``: every pair has NVLink. ``multicast``: a switch of the NVLink
    fabric can multicast (NVLS). ``experts``: the model has routed experts.
    """

    capability: int
    p2p: bool
    nvlink: bool
    multicast: bool = False
    nodes: int = 1
    experts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """What turns a backend on or off: a command-line flag, an environment variable, or several, and its default."""

    names: tuple[str, ...]
    default: bool

    def state(self, options: Mapping[str, str]) -> bool:
        """Whether the backend is on. A ``--disable-...`` flag turns off; ``0``, ``false`` and ``off`` do too."""
        state = self.default
        for name in self.names:
            if name in options:
                given = options[name].lower() not in ("0", "false", "off", "no")
                state = not given if _negative(name) else given
        return state


def _negative(name: str) -> bool:
    return name.startswith(("--disable", "--enforce-disable", "--no-")) or "_DISABLE_" in name


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One line of an engine's dispatch.

    ``algorithm`` is the lowering that stands for it (``nccl``, ``oneshot-push``, ...). ``needs_nvlink_above`` n:
    groups larger than n need NVLink between all pairs (0: every group; None: none does). ``size_limits`` maps a world
    size to its largest message (0: any other). ``precisions``, ``groups``, ``worlds``, ``capabilities`` empty: all.
    ``for_experts``: on by itself for models with routed experts only. ``platform`` other than ``cuda`` never runs
    here. ``why`` is what the engine's source says, for the user.
    """

    name: str
    algorithm: str
    why: str
    kinds: tuple[CollectiveKind, ...] = (CollectiveKind.ALL_REDUCE,)
    switch: Switch | None = None
    platform: str = "cuda"
    worlds: tuple[int, ...] = ()
    min_bytes: int = 0
    max_bytes: int = 0
    size_limits: tuple[tuple[int, int], ...] = ()
    multiple_of: int = 1
    precisions: tuple[Precision, ...] = ()
    groups: tuple[str, ...] = ()
    capabilities: tuple[int, ...] = ()
    needs_p2p: bool = False
    needs_nvlink_above: int | None = None
    needs_multicast: bool = False
    one_node: bool = False
    eager: bool = True
    for_experts: bool = False

    def refusal(self, op: Collective, box: Box, options: Mapping[str, str]) -> str:
        """Why this backend does not serve the collective; empty when it does."""
        return next((reason for holds, reason in self._conditions(op, box, options) if not holds), "")

    def _conditions(self, op: Collective, box: Box, options: Mapping[str, str]) -> Sequence[tuple[bool, str]]:
        switch, limit = self.switch, self._limit(op.ranks)
        least = self.needs_nvlink_above
        return (
            (op.kind in self.kinds, f"serves {_words(self.kinds)}, not {_word(op.kind)}"),
            (self.platform == "cuda", f"runs on {self.platform} only"),
            (switch is None or switch.state(options), f"off{_by(switch)}"),
            (not self.capabilities or box.capability in self.capabilities,
             f"built for {_sms(self.capabilities)}, this GPU is SM{box.capability}"),
            (box.experts or not self.for_experts or (switch is not None and any(n in options for n in switch.names)),
             "on by itself only for models with routed experts"),
            (not self.worlds or op.ranks in self.worlds,
             f"serves groups of {_words(self.worlds)}, this one has {op.ranks}"),
            (not self.groups or op.group in self.groups,
             f"built for the group {_words(self.groups)}, this is {op.group}"),
            (box.nodes == 1 or not self.one_node, "serves one node only"),
            (least is None or op.ranks <= least or box.nvlink,
             "needs NVLink between all pairs" + (f" for more than {least} GPUs" if least else "")),
            (box.p2p or not self.needs_p2p, "needs peer-to-peer, which is off or failed its test"),
            (box.multicast or not self.needs_multicast, "needs NVLink multicast"),
            (not self.precisions or op.precision in self.precisions,
             f"serves {_words(self.precisions)}, this is {op.precision}"),
            (op.nbytes % self.multiple_of == 0, f"needs a multiple of {self.multiple_of} bytes, this is {op.nbytes}"),
            (op.nbytes >= self.min_bytes,
             f"serves {format_bytes(self.min_bytes)} and more, this is {format_bytes(op.nbytes)}"),
            (not limit or op.nbytes <= limit,
             f"serves up to {format_bytes(limit)}, this is {format_bytes(op.nbytes)}"),
            (op.graph or self.eager, "serves CUDA graphs only"),
        )  # fmt: skip

    def _limit(self, world: int) -> int:
        sizes = dict(self.size_limits)
        return sizes.get(world, sizes.get(0, self.max_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The backend that serves a collective, and why every earlier one did not."""

    backend: Backend
    refused: tuple[tuple[Backend, str], ...]

    @property
    def reason(self) -> str:
        """One sentence: why this one."""
        return self.backend.why


def decide(backends: Sequence[Backend], op: Collective, box: Box, options: Mapping[str, str]) -> Decision:
    """The first backend that serves. The last one of an engine has no conditions, so there always is one."""
    refused: list[tuple[Backend, str]] = []
    for backend in backends:
        reason = backend.refusal(op, box, options)
        if not reason:
            return Decision(backend=backend, refused=tuple(refused))
        refused.append((backend, reason))
    raise LookupError(f"no backend serves {op}; the last one must")


def _by(switch: Switch | None) -> str:
    if switch is None or not switch.names:
        return ""
    how = " or ".join(f"{name}" if name.startswith("--") else f"{name}=1" for name in switch.names)
    return f" by default ({how} turns it on)" if not switch.default else f" ({how})"


def _sms(capabilities: Sequence[int]) -> str:
    return ", ".join(f"SM{each}" for each in capabilities)


def _words(values: Sequence[object]) -> str:
    words = [_word(value) for value in values]
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} or {words[-1]}"


def _word(value: object) -> str:
    return str(value).replace("_", "-") if isinstance(value, CollectiveKind) else str(value)
