"""The ``pciesim`` command: the table of commands, and what becomes of an error.

Commands are listed from the table and imported only when they run, so ``pciesim --help`` costs no more than typer.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from pciesim.errors import ExitCode, PciesimError

__all__ = ["COMMANDS", "CommandEntry", "main", "run"]

REPORT: Final = "this is a bug in pciesim: please report it with the lines above and the command that you ran"
COMPLETION: Final = "_PCIESIM_COMPLETE"  # set by the shell's completion script
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it
PIPE_CLOSED: Final = 141  # 128 + SIGPIPE


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    """A line of the table: ``module`` has a typer ``app``, which holds ``group`` commands or is one."""

    module: str
    help: str
    group: bool = False

    def load(self) -> Any:
        """The command itself, imported now."""
        app = importlib.import_module(self.module).app
        return typer.main.get_group(app) if self.group else typer.main.get_command(app)


COMMANDS: Final = {
    "predict": CommandEntry(module="pciesim.commands.predict", help="What will this box do with this model?"),
    "compare": CommandEntry(module="pciesim.commands.compare", help="What would change, and is that certain?"),
    "sweep": CommandEntry(module="pciesim.commands.sweep", help="A grid of configurations into a table."),
    "pareto": CommandEntry(module="pciesim.commands.pareto", help="Speed of one user against the whole box."),
    "recommend": CommandEntry(module="pciesim.commands.recommend", help="What to do with this box and this model."),
    "topo": CommandEntry(module="pciesim.commands.topo", help="Read, draw and check the wiring of a box.", group=True),
    "model": CommandEntry(module="pciesim.commands.model", help="Read and check model descriptions.", group=True),
    "flows": CommandEntry(module="pciesim.commands.flows", help="What do concurrent copies reach, and why no more?"),
    "collective": CommandEntry(
        module="pciesim.commands.collective", help="How long does a collective take, by size and algorithm?"
    ),
    "nccl": CommandEntry(
        module="pciesim.commands.nccl", help="What NCCL chooses on this box, why, and how to mend it.", group=True
    ),
    "calibrate": CommandEntry(
        module="pciesim.commands.calibrate", help="Fit profiles to runs, and show how right they are.", group=True
    ),
    "engine": CommandEntry(
        module="pciesim.commands.engine", help="What a serving engine decides on a box, and why.", group=True
    ),
    "measure": CommandEntry(module="pciesim.commands.measure", help="Measure the GPUs of this machine."),
    "schema": CommandEntry(module="pciesim.commands.schema", help="Print the JSON Schema of a file format."),
}


class _LazyGroup(TyperGroup):
    """Lists commands from the table, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        attributes["commands"] = {name: TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()}
        super().__init__(**attributes)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, COMMANDS[name].load() if name in COMMANDS else placeholder, rest


def _print_version(wanted: bool) -> None:
    if wanted:
        from pciesim import __version__

        typer.echo(f"pciesim {__version__}")
        raise typer.Exit


_app: Final = typer.Typer(cls=_LazyGroup, rich_markup_mode=None)


@_app.callback(epilog="Example:  pciesim predict --topo rtx6000x8 --model qwen35_397b")
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Predict LLM decode latency on GPUs joined by PCIe.

    What a box will do with a model, where the time goes, and what would change it.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code (see :class:`pciesim.errors.ExitCode`)."""
    command = typer.main.get_command(_app)
    if COMPLETION in os.environ:
        command.main(prog_name="pciesim")  # answers the shell and exits
    try:
        # Not command.main: that prints errors in frames and answers a closed pipe with "the answer is no".
        with command.make_context("pciesim", list(arguments) or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left (`pciesim ... | head`). Python flushes stdout once more on exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:  # the one place where nothing may pass
        return _refuse(error)
    return ExitCode.OK


def _refuse(error: Exception) -> int:
    """Say in one line on stderr what is wrong, after the traceback where it is a bug; the exit code."""
    match error:
        case PciesimError():
            message, code = str(error), int(error.exit_code)
        case typer.TyperException() if type(error).__name__ == "NoArgsIsHelpError":  # typer does not export it
            typer.echo(error.format_message())  # a group without a command: its help, as for a bare `pciesim`
            return int(ExitCode.OK)
        case typer.TyperException():
            message, code = _usage(error), error.exit_code
        case typer.Abort():
            message, code = "aborted", int(ExitCode.NO)
        case _:
            traceback.print_exception(error)
            message, code = REPORT, int(ExitCode.BUG)
    typer.echo(f"pciesim: error: {' '.join(message.split())}", err=True)
    return code


def _usage(error: typer.TyperException) -> str:
    """A command line that typer cannot read, and where its help is."""
    message = error.format_message().rstrip(".").replace("Value error, ", "").replace(": Input should", ": should")
    context = getattr(error, "ctx", None)
    hint = f" (see '{context.command_path} --help')" if context is not None else ""
    return message[:1].lower() + message[1:] + hint


def main() -> None:
    """Entry point of the ``pciesim`` script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
