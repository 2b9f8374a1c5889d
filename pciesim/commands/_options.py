"""Options that several commands take, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ["NcclVariables", "Overlay"]

Overlay: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="YAML that states what the matrix cannot show.", show_default="the file beside --topo"
    ),
]
NcclVariables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="NCCL variable, as in NCCL_P2P_LEVEL=SYS. Can be repeated."),
]
