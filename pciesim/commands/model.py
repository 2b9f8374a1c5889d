"""``pciesim model``: show a model's sizes, list the shipped ones, turn a published config into a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@app.command(epilog="Example:  pciesim model show qwen35_397b --tp 8 --context 131072")
def show(
    model: Annotated[str, typer.Argument(help="Model file, config.json, its folder, or the name of a shipped model.")],
    tp: Annotated[
        int | None, typer.Option(min=1, help="Tensor-parallel degree.", show_default="every usual one")
    ] = None,
    ep: Annotated[int, typer.Option(min=1, help="Expert-parallel degree; divides --tp.")] = 1,
    context: Annotated[int, typer.Option(min=1, help="Tokens in the KV cache of a sequence.")] = 32768,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show parameters by module, bytes on each GPU, caches and all-reduces."""
    from pciesim.errors import InputError
    from pciesim.formats.model import load_model
    from pciesim.formats.shipped import find_input
    from pciesim.model_summary import summarise

    if tp is None and ep != 1:
        raise InputError("--ep needs --tp")
    summary = summarise(load_model(find_input("models", model)), tp=tp, ep=ep, context=context)
    if json:
        from pciesim.reports.model_json import to_json

        typer.echo(to_json(summary))
    else:
        from pciesim.reports.model_text import print_model

        print_model(summary)


@app.command("list", epilog="Example:  pciesim model list")
def list_models(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the shipped models."""
    from pciesim.formats.model import load_model
    from pciesim.formats.shipped import find_input, shipped_names
    from pciesim.model_summary import summarise

    entries = [
        (name, summarise(load_model(find_input("models", name)), tp=1, context=1)) for name in shipped_names("models")
    ]
    if json:
        from pciesim.reports.model_json import list_to_json

        typer.echo(list_to_json(entries))
    else:
        from pciesim.reports.model_text import print_list

        print_list(entries)


@app.command("import", epilog="Example:  pciesim model import Qwen3.5-397B-A17B-NVFP4/config.json -o my_model.yaml")
def import_model(
    config: Annotated[Path, typer.Argument(help="A published config.json, or the folder that holds it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write.", show_default="standard output")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the model.", show_default="from the folder or file")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Turn a published config.json (with hf_quant_config.json beside it) into a model file to edit."""
    from pciesim.errors import InputError
    from pciesim.formats.model_hf import read_hf_document
    from pciesim.formats.model_write import write_model

    text = write_model(read_hf_document(config / "config.json" if config.is_dir() else config, name=name))
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise InputError("is there already (--force replaces it)", where=str(output))
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(output)) from None
    typer.echo(f"wrote {output}", err=True)
