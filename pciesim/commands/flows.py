"""``pciesim flows``: what concurrent copies on a box reach, and what limits each."""

from __future__ import annotations

from typing import Annotated

import typer

from pciesim.commands._options import Overlay
from pciesim.errors import UnknownName

__all__ = ["app"]

EXAMPLES = """\b
Examples:
  pciesim flows --topo rtx6000x8_2switch '0>4' '1>5' '6>2'
  pciesim flows --topo rtx6000x8_2switch stagger:4 --metric p2pmark_mean
  pciesim flows --topo rtx6000x8 all-to-all --metric completion --volume 256MB --json
  pciesim flows --topo rtx6000x8 host:0 host:1 --background 2:host@10GB/s
"""

app = typer.Typer(rich_markup_mode=None, add_completion=False)


def _one_of(option: str, value: str, valid: list[str]) -> str:
    if value not in valid:
        raise UnknownName(option, value, valid)
    return value


@app.command(epilog=EXAMPLES)
def flows(
    flow: Annotated[
        list[str],
        typer.Argument(
            metavar="FLOW...",
            help="'0>4' (or 0:4), host:0, 0:host, lists as in 0-3:4-7, all-to-all, stagger:K; '@10GB/s' caps one.",
        ),
    ],
    topo: Annotated[
        str,
        typer.Option(
            metavar="FILE|NAME", help="Output of 'nvidia-smi topo -m', as a file or the name of a shipped one."
        ),
    ],
    op: Annotated[str, typer.Option(metavar="write|read", help="Whether sources write or targets read.")] = "write",
    engine: Annotated[str, typer.Option(metavar="ce|sm", help="Copy engines, or loads and stores of a kernel.")] = "ce",
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="rate (all run for ever), completion (equal volumes), or a tool: p2p_test, p2pmark, p2pmark_mean, "
            "copy_loop.",
        ),
    ] = "rate",
    volume: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of each flow, but for rate.")] = "256MB",
    background: Annotated[
        list[str] | None,
        typer.Option(metavar="FLOW@RATE", help="Traffic of others (a NIC, a replica) at most at a rate. Repeatable."),
    ] = None,
    p2p: Annotated[
        bool, typer.Option("--p2p/--no-p2p", help="Peer-to-peer, or everything through host memory.")
    ] = True,
    arbitration: Annotated[
        str, typer.Option(metavar="flow|port", help="What a switch's output takes turns among.")
    ] = "flow",
    ideal: Annotated[bool, typer.Option("--ideal", help="Plain max-min sharing, without any loss.")] = False,
    profile: Annotated[
        str | None,
        typer.Option(metavar="FILE|NAME", help="Calibrated profile.", show_default="by GPU"),
    ] = None,
    overlay: Overlay = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (see 'pciesim schema flows').")] = False,
) -> None:
    """Say what concurrent copies reach, when they end, and what limits each."""
    from dataclasses import replace

    from pciesim.api import box_profile
    from pciesim.contention import Arbitration, Rules
    from pciesim.flows import EngineWord, Metric, Operation, run_flows
    from pciesim.formats.flow_text import parse_flows
    from pciesim.formats.shipped import find_input
    from pciesim.formats.topology import load_fabric
    from pciesim.physics import RouteCosts
    from pciesim.units import parse_bytes

    fabric = load_fabric(find_input("topologies", topo), overlay)
    rules = replace(
        Rules.ideal() if ideal else Rules(),
        arbitration=Arbitration(_one_of("arbitration", arbitration, list(Arbitration))),
    )
    result = run_flows(
        fabric,
        RouteCosts.of(box_profile(fabric, profile)),
        parse_flows(flow, fabric),
        operation=Operation(_one_of("operation", op, list(Operation))),
        engine=EngineWord(_one_of("engine", engine, list(EngineWord))),
        metric=Metric(_one_of("metric", metric, list(Metric))),
        volume=parse_bytes(volume, where="--volume"),
        background=parse_flows(background or [], fabric, where="--background"),
        peer_to_peer=p2p,
        rules=rules,
    )
    if json:
        from pciesim.reports.flows_json import to_json

        typer.echo(to_json(result))
    else:
        from pciesim.reports.flows_text import to_text

        typer.echo(to_text(result), nl=False)
