"""What if, by names and files: compare, sweep and advise. What the command line and a notebook call."""

from pciesim.whatif.comparing import compare
from pciesim.whatif.loading import Loader, parse_vary
from pciesim.whatif.sweeping import SweepRow, sweep, sweep_grid

__all__ = ["Loader", "SweepRow", "compare", "parse_vary", "sweep", "sweep_grid"]
