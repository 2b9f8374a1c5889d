"""``python3 -m pciesim.measure``: the tool on a machine that has PyTorch and nothing else of pciesim's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pciesim.errors import PciesimError
from pciesim.measure.controller import measure
from pciesim.measure.options import Options
from pciesim.measure.plan import EXPERIMENTS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code (0 done, 1 something failed or hung, 2 bad usage or no GPU)."""
    parser = argparse.ArgumentParser(
        prog="python3 -m pciesim.measure",
        description="Measures the GPUs of this machine. Changes no setting. Run again to go on where it stopped.",
        epilog="experiments: " + ", ".join(dict.fromkeys(name.partition(".")[0] for name in EXPERIMENTS)),
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about two minutes (default)")
    size.add_argument("--full", action="store_true", help="about fifteen minutes")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the rows and manifest go")
    parser.add_argument("--only", metavar="NAMES", help="experiments, comma-separated")
    parser.add_argument("--gpus", metavar="INDEXES", help="GPUs, comma-separated (default: all)")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="start nothing after this long")
    parser.add_argument("--commit", default="", help="version of the tool, where git cannot say")
    given = parser.parse_args(arguments)
    try:
        options = Options(
            out=given.out,
            full=given.full,
            only=tuple(given.only.split(",")) if given.only else None,
            gpus=tuple(int(each) for each in given.gpus.split(",")) if given.gpus else None,
            limit=given.time_limit,
            commit=given.commit,
            command="python3 -m pciesim.measure " + " ".join(arguments if arguments is not None else sys.argv[1:]),
        )
        return 1 if measure(options) else 0
    except ValueError:
        sys.stderr.write(f"pciesim: error: --gpus {given.gpus}: write it like 0,1\n")
        return 2
    except PciesimError as error:
        sys.stderr.write(f"pciesim: error: {error}\n")
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
