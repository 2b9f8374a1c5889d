"""The text of ``nvidia-smi topo -m``: to a :class:`TopologyMatrix` and back.

People paste this text through terminals, web pages, logs and wikis, so the reader goes by names and connection types,
not by columns: the header is the line that lists ``GPU0 GPU1 ...``, a row is a name followed by as many connection
types as the header has names. Underlining, log prefixes, pipes of a Markdown table, lost tabs, wrapped lines and a
header that starts in the first column are all understood. What is cut or contradicts itself is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pciesim.errors import InputError

__all__ = ["CONNECTION_TYPES", "TopologyMatrix", "is_nvlink", "parse_matrix", "render_matrix", "runs"]

CONNECTION_TYPES: Final = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "NV#", "SOC", "PSB")
_WORDS: Final = frozenset(CONNECTION_TYPES) - {"NV#"}
_NVLINK: Final = re.compile(r"NV\d{1,2}")
_TYPE: Final = re.compile(r"NV\d{1,2}|PIX|PXB|PHB|PSB|NODE|SYS|SOC|X")
_TYPES: Final = re.compile(rf"(?:{_TYPE.pattern})+")
_STARTS_CELL: Final = re.compile(rf"\s*(?:{_TYPE.pattern})")
_GPU: Final = re.compile(r"GPU\d{1,3}")
_AFFINITY: Final = re.compile(r"CPU\s+Affin|NUMA\s+Affin|GPU\s+NUMA|Affinity", re.IGNORECASE)
_COLUMN: Final = re.compile(r"GPU\d{1,3}|NIC\d{1,3}(?=NIC|CPU|\W|$)|mlx\d_(?:bond_)?\d{1,3}|[A-Za-z][\w.:-]*")
_ESCAPE: Final = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|\^\[)\[[0-9;]*[A-Za-z]|\[[0-9]{1,2}m")
_CPU_LIST: Final = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*,?")
_NUMA: Final = re.compile(r"\d{1,3}(?:-\d{1,3})?(?:,\d{1,3}(?:-\d{1,3})?)*")
_GLUED: Final = re.compile(r"((?:\d{1,5}-\d{1,5},)+\d{1,5}-)(\d{2,6})(N/A)?")
_LEGEND: Final = re.compile(r"\s*(NIC\d{1,3})\s*:\s*(\S+)\s*$")
_ABSENT: Final = ("", "N/A", "n/a", "-")
_MAX_NAMES: Final = 300
_MAX_HEADERS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyMatrix:
    """What the text says, and nothing more.

    ``cells`` is square over ``gpus`` then ``nics``, as printed (``X`` on the diagonal). ``cpu_affinity``,
    ``numa_affinity`` and ``gpu_numa`` have an entry per GPU, empty where the text has none. ``nic_labels`` pairs NIC
    names with what the legend calls them. ``notes`` says what had to be repaired; ``lines`` is the line of each row.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    cpu_affinity: tuple[str, ...]
    numa_affinity: tuple[str, ...]
    gpu_numa: tuple[str, ...] = ()
    nic_labels: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    lines: tuple[int, ...] = field(default=(), compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """GPUs, then NICs."""
        return self.gpus + self.nics

    def numa(self, gpu: int) -> tuple[int, ...]:
        """NUMA nodes of a GPU: one, several (a virtual machine may print ``0-1``), or none known."""
        text = self.numa_affinity[gpu]
        found: list[int] = []
        for part in text.split(",") if text else ():
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
        return tuple(found)


def is_nvlink(cell: str) -> bool:
    """Whether a cell is a bonded set of NVLinks (``NV4``); the number is ``int(cell[2:])``."""
    return cell.startswith("NV")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    number: int
    raw: str
    text: str  # without escapes; pipes are blanks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    position: int  # index of the line that follows it
    number: int
    gpus: tuple[str, ...]
    nics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    number: int
    cells: tuple[str, ...]
    affinity: tuple[str, str, str]  # CPUs, NUMA nodes, the GPU's own NUMA node


def parse_matrix(text: str, *, source: str) -> TopologyMatrix:
    """The matrix in a text. Raises InputError with file and line where there is none, or it is cut or contradictory."""
    if not text.strip():
        raise InputError("is empty, expected the output of nvidia-smi topo -m", where=source)
    lines = [
        _Line(number=number, raw=raw, text=_ESCAPE.sub("", raw).replace("|", " ").rstrip("\n"))
        for number, raw in enumerate(text.split("\n"), start=1)
    ]
    failure: InputError | None = None
    for header, rest in _headers(lines):
        if len(header.gpus) + len(header.nics) > _MAX_NAMES:
            raise InputError(f"has more than {_MAX_NAMES} devices", where=f"{source}:{header.number}")
        try:
            return _read(header, rest, lines, source)
        except InputError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    raise InputError(
        "has no topology matrix: no header line 'GPU0 GPU1 ...' as nvidia-smi topo -m prints it", where=source
    )


def _headers(lines: Sequence[_Line]) -> Iterator[tuple[_Header, list[_Line]]]:
    """Candidate headers, each with the lines after it (which may begin within the header's own line)."""
    found = 0
    for position, line in enumerate(lines):
        first = _GPU.search(line.text)
        if first is None or _STARTS_CELL.match(line.text, first.end()):
            continue
        after = line.text[first.end() : first.end() + 1]
        if after and not after.isspace() and after not in "GNCm":
            continue
        names, end = _header_names(line.text, first.start())
        gpus = tuple(name for name in names if _GPU.fullmatch(name))
        numbers = [int(name[3:]) for name in gpus]
        if numbers != sorted(set(numbers)):
            continue
        header = _Header(
            position=position, number=line.number, gpus=gpus, nics=tuple(name for name in names if name not in gpus)
        )
        yield header, [*_split_rows(line, end, names), *lines[position + 1 :]]
        found += 1
        if found == _MAX_HEADERS:
            return


def _header_names(text: str, start: int) -> tuple[list[str], int]:
    """Column names from a position on, and where they end: at the affinity, a repeated name or the line's end."""
    stop = _AFFINITY.search(text, start)
    limit = stop.start() if stop else len(text)
    names: list[str] = []
    for match in _COLUMN.finditer(text, start, limit):
        if match[0] in names:
            return names, match.start()
        names.append(match[0])
    return names, len(text)


def _split_rows(line: _Line, start: int, names: Sequence[str]) -> list[_Line]:
    """A matrix that a web page joined into one line: one piece per row name."""
    rest = line.text[start:]
    if not rest.strip():
        return []
    cuts = [match.start() for match in re.finditer("|".join(map(re.escape, names)), rest)]
    return [
        _Line(number=line.number, raw=line.raw, text=rest[begin:end])
        for begin, end in zip(cuts, [*cuts[1:], len(rest)], strict=True)
    ]


def _read(header: _Header, rest: Sequence[_Line], lines: Sequence[_Line], source: str) -> TopologyMatrix:
    names = header.gpus + header.nics
    notes: list[str] = []
    rows = _rows(names, rest, source, notes)
    missing = next((name for name in names if name not in rows), None)
    if missing is not None:
        last = max((row.number for row in rows.values()), default=header.number)
        raise InputError(
            f"the matrix is cut: the header names {len(names)} devices, but no row for {missing} follows",
            where=f"{source}:{last}",
        )
    cells = tuple(rows[name].cells for name in names)
    _check(names, cells, [rows[name].number for name in names], source, notes)
    affinities = [rows[name].affinity for name in header.gpus]
    labels = {match[1]: match[2] for line in lines if (match := _LEGEND.match(line.text))}
    return TopologyMatrix(
        gpus=header.gpus,
        nics=header.nics,
        cells=cells,
        cpu_affinity=tuple(cpu for cpu, _, _ in affinities),
        numa_affinity=tuple(numa for _, numa, _ in affinities),
        gpu_numa=tuple(own for _, _, own in affinities),
        nic_labels=tuple((name, labels[name]) for name in header.nics if name in labels),
        notes=tuple(dict.fromkeys(notes)),
        lines=tuple(rows[name].number for name in names),
    )


def _rows(names: Sequence[str], rest: Sequence[_Line], source: str, notes: list[str]) -> dict[str, _Row]:
    """The first row of every name. A row that lacks cells goes on in the next lines that start with a cell."""
    by_length = sorted(names, key=len, reverse=True)
    start = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, by_length))})(?=\s|{_TYPE.pattern}|$)")
    rows: dict[str, _Row] = {}
    position = 0
    while position < len(rest) and len(rows) < len(names):
        line = rest[position]
        position += 1
        match = start.search(line.text)
        if match is None or match[1] in rows or line.text[match.end() :].lstrip()[:1] in (":", "="):
            continue
        body = line.text[match.end() :]
        cells, tail = _cells(body, len(names), line, match[1], source)
        while len(cells) < len(names) and position < len(rest) and _STARTS_CELL.match(rest[position].text):
            more, tail = _cells(rest[position].text, len(names) - len(cells), rest[position], match[1], source)
            cells += more
            position += 1
        if len(cells) < len(names):
            raise InputError(
                f"the matrix is cut: the row of {match[1]} has {len(cells)} of {len(names)} connection types",
                where=f"{source}:{line.number}",
            )
        where = f"{source}:{line.number}"
        affinity = _affinity(tail, where, notes) if _GPU.fullmatch(match[1]) else ("", "", "")
        rows[match[1]] = _Row(number=line.number, cells=tuple(cells), affinity=affinity)
    return rows


def _cells(body: str, wanted: int, line: _Line, name: str, source: str) -> tuple[list[str], str]:
    """Up to ``wanted`` connection types from the start of a text, and what follows them."""
    words = body.split(None, wanted)  # the usual case, four times as fast as looking for types inside the words
    if len(words) >= wanted and all(word in _WORDS or _NVLINK.fullmatch(word) for word in words[:wanted]):
        rest = len(words[wanted]) if len(words) > wanted else 0
        return words[:wanted], body[len(body[: len(body) - rest].rstrip()) :]
    cells: list[str] = []
    end = 0
    for token in re.finditer(r"\S+", body):
        if len(cells) >= wanted:
            break
        run = _TYPES.match(token[0])
        types = _TYPE.findall(run[0]) if run else []
        whole = run is not None and run.end() == len(token[0])
        if not whole and len(cells) + len(types) < wanted:
            column = line.raw.find(token[0], max(0, line.raw.find(name))) + 1
            raise InputError(
                f"row {name}: unknown connection type '{token[0]}' (valid: {', '.join(CONNECTION_TYPES)})",
                where=f"{source}:{line.number}:{max(1, column)}",
            )
        end = token.end()
        for each in types:
            if len(cells) == wanted:
                break
            cells.append(each)
        if not whole or len(types) > wanted:  # the affinity is glued to the last cell
            used = sum(len(each) for each in cells[-len(types) :]) if types else 0
            end = token.start() + min(used, len(token[0]))
    return cells, body[end:]


def _affinity(tail: str, where: str, notes: list[str]) -> tuple[str, str, str]:
    """(CPU list, NUMA nodes, the GPU's own NUMA node) of a row's tail; empty where absent.

    Raises InputError where a range runs backwards: the digits are damaged.
    """
    tokens = tail.split()
    if tokens[:1] == ["NUMA"] and len(tokens) > 1:  # 'NUMA 0' in place of the columns
        tokens = ["", *tokens[1:]]
    elif tokens and len(tokens[0]) > 3 and tokens[0].endswith("N/A"):
        cpu, numa = _unglue(tokens[0])
        notes.append(
            f"'{tokens[0]}' has lost its separators: "
            + (f"read as CPUs {cpu}, NUMA node {numa}" if cpu else "the affinity is left out")
        )
        return cpu, numa, ""
    elif tail.startswith("\t"):
        tokens = [part.strip() for part in tail.split("\t")[1:]]
        own = next((part for part in reversed(tokens[2:]) if part), "")
        tokens = [*tokens[:2], own]
    cpu, numa, own = (*tokens, "", "", "")[:3]
    if not _CPU_LIST.fullmatch(cpu):
        if cpu not in _ABSENT:
            notes.append(f"the CPU affinity '{cpu[:40]}' is not a list of numbers and is left out")
        cpu = ""
    if not _NUMA.fullmatch(numa):
        numa = ""
    for part in [*cpu.split(","), *numa.split(",")]:
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise InputError(f"the range {part} runs backwards: the text is damaged", where=where)
    return cpu, numa, own if own.isdigit() else ""


def _unglue(text: str) -> tuple[str, str]:
    """``'0-47,96-1430N/A'`` -> CPUs ``0-47,96-143``, NUMA node ``0``: the split that makes the last range as long as
    the first (a socket's two hardware threads per core). Empty where that does not decide."""
    match = _GLUED.fullmatch(text)
    if match is None:
        return "", ""
    first, last = match[1].split(",")[0].split("-"), match[1].rstrip("-").split(",")[-1]
    length = int(first[1]) - int(first[0])
    end = str(int(last) + length)
    return (match[1] + end, match[2].removeprefix(end)) if match[2].startswith(end) and match[2] != end else ("", "")


def _check(
    names: Sequence[str], cells: Sequence[Sequence[str]], lines: Sequence[int], source: str, notes: list[str]
) -> None:
    """The diagonal is X and the matrix symmetric, or InputError.

    One end alone may show NVLink: the other end's links are down (seen on real boxes), and the pair has only PCIe.
    """
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if (cell == "X") != (i == j):
                found = f"{names[i]}-{names[j]} is {cell}"
                raise InputError(f"{found}; X belongs on the diagonal and nowhere else", where=f"{source}:{lines[i]}")
            other = cells[j][i]
            if j >= i or cell == other:
                continue
            if not is_nvlink(cell) and not is_nvlink(other):
                raise InputError(
                    f"{names[i]}-{names[j]} is {cell}, but {names[j]}-{names[i]} is {other} (line {lines[j]})",
                    where=f"{source}:{lines[i]}",
                )
            notes.append(
                f"{names[j]}-{names[i]} is {other} in one direction and {cell} in the other: "
                "NVLinks that only one end reports are taken as down"
            )


_LEGEND_TEXT: Final = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def render_matrix(matrix: TopologyMatrix) -> str:
    """The text as nvidia-smi prints it: tabs, underlined header, legend."""
    header = "\t".join((*matrix.names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"))
    out = [f"\t\x1b[4m{header}\x1b[0m"]
    for position, name in enumerate(matrix.names):
        cells = "\t".join(" X " if cell == "X" else cell for cell in matrix.cells[position])
        if position < len(matrix.gpus):
            own = matrix.gpu_numa[position] if matrix.gpu_numa else ""
            numa = matrix.numa_affinity[position] or "N/A"
            out.append(f"{name}\t{cells}\t{matrix.cpu_affinity[position] or 'N/A'}\t{numa}\t\t{own or 'N/A'}")
        else:
            out.append(f"{name}\t{cells}\t\t\t\t")
    text = "\n".join(out) + "\n" + _LEGEND_TEXT
    if matrix.nic_labels:
        text += "\nNIC Legend:\n\n" + "".join(f"  {name}: {label}\n" for name, label in matrix.nic_labels)
    return text


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of every run of successive numbers: ``[0, 1, 2, 5]`` -> ``[(0, 2), (5, 5)]``."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
