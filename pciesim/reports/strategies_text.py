"""The table of strategies as text: every axis, what its values do, what they need, and when they hurt."""

from __future__ import annotations

import textwrap

from pciesim.strategies import STRATEGIES
from pciesim.strategies.choice import AXES

__all__ = ["strategies_markdown", "strategies_text"]

_WIDTH = 110


def strategies_text() -> str:
    """Every strategy by axis, in the order of application."""
    lines: list[str] = []
    for axis, values in AXES.items():
        lines.append(f"{axis}  (unchanged: {values[0]})")
        for (own, name), each in STRATEGIES.items():
            if own != axis:
                continue
            typed = f"{name}:<{each.argument}>" if each.argument else name
            mark = " [changes the model]" if each.model_change else ""
            lines.append(f"  {typed}{mark}")
            for told in (each.sentence, f"transfers: {each.number}; {each.size}; {each.criticality}",
                         f"risk: {each.risk}", f"hurts: {each.hurts}", f"source: {each.source}"):  # fmt: skip
                lines += textwrap.wrap(told, _WIDTH, initial_indent="    ", subsequent_indent="      ")
    return "\n".join(lines)


def strategies_markdown() -> str:
    """The same as a table for the documentation."""
    lines = [
        "| axis=value | what | transfers: number; size; criticality | risk | hurts | source |",
        "|---|---|---|---|---|---|",
    ]
    for (axis, name), each in STRATEGIES.items():
        typed = f"{axis}={name}" + (f":{each.argument}" if each.argument else "")
        cells = (f"`{typed}`", each.sentence + (" **(changes the model)**" if each.model_change else ""),
                 f"{each.number}; {each.size}; {each.criticality}", each.risk, each.hurts, each.source)  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
