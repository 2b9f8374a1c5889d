"""Makes collectives.csv of the H200 run from its raw rows, and says which points are for the fit.

Through host memory twelve points of the forced algorithms, protocols and channels; every other point only checks.
Run from the checkout: ``python calibration/h200_points.py``.
"""

from __future__ import annotations

from pathlib import Path

from pciesim.calibrate.points import Point
from pciesim.formats.points_csv import points_text
from pciesim.formats.runs_measure import read_measure_folder
from pciesim.units import KIB, MIB

RUNS = Path(__file__).resolve().parent / "runs"
FIT = {
    "host/Ring_LL": (2 * KIB, 4 * MIB), "host/Ring_LL128": (16 * KIB, 4 * MIB), "host/Ring_Simple": (16 * KIB,),
    "host/Tree_LL": (MIB,), "host/Tree_LL128": (2 * MIB,), "host/Tree_Simple": (128 * KIB,),
    "host/ch1": (256 * KIB, 16 * MIB), "host/ch16": (16 * MIB,), "host/ch8_Ring_LL": (16 * MIB,),
    "p2p/Ring_LL": (2 * KIB, MIB), "p2p/Ring_LL128": (16 * KIB, 4 * MIB), "p2p/Ring_Simple": (16 * KIB,),
    "p2p/ch1": (MIB, 16 * MIB), "p2p/ch16_Ring_Simple": (16 * MIB,), "p2p/ch4_Ring_LL": (16 * MIB,),
    "push_peer": (KIB, 128 * KIB, 4 * MIB), "pull_peer": (KIB, 128 * KIB, 4 * MIB), "push_host": (KIB, 64 * KIB),
}  # fmt: skip
DEFAULT = {  # as NCCL chooses, both transports; the all-to-all only checks
    "all_reduce": (8 * KIB, 512 * KIB, 64 * MIB),
    "all_gather": (8 * KIB, 32 * MIB),
    "reduce_scatter": (8 * KIB, 32 * MIB),
}


def use(point: Point) -> str:
    """Whether a point is for the fit."""
    name = point.dataset.partition("/")[2]
    sizes = DEFAULT.get(str(point.kind), ()) if name.endswith("/default") else FIT.get(name, ())
    return "fit" if point.nbytes in sizes else "check"


if __name__ == "__main__":
    folder = RUNS / "h200x2_2026-11-30b"
    points = read_measure_folder(folder, "h200x2").points
    (folder / "collectives.csv").write_text(points_text(points, use), encoding="utf-8")
    print(len(points), "points,", sum(use(point) == "fit" for point in points), "for the fit")
