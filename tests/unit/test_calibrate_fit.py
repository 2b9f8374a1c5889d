"""The fit on points made up from a known profile: it finds the parameters again, and says what points cannot tell."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pciesim.calibrate.check import held_out
from pciesim.calibrate.curves import oddities, without_outliers
from pciesim.calibrate.direct import direct_parameters
from pciesim.calibrate.fit import Free, fit_profile
from pciesim.calibrate.points import Point, predicted
from pciesim.calibrate.ranges import RANGES, free_of, settles
from pciesim.calibrate.readings import Reading, What
from pciesim.formats.profile_yaml import PARAMETERS, profile_text, read_profile
from pciesim.formats.runs_context import ImportContext
from pciesim.formats.shipped import find_input
from pciesim.formats.topology import load_fabric
from pciesim.profile import Profile
from pciesim.refit import fit_runs, point_timers
from pciesim.schedule import CollectiveKind
from pciesim.units import GB, KIB, MIB, NS, US

SIZES = (KIB, 8 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB)
NAMES = ("nccl.shm.base", "nccl.shm.ll_channel", "nccl.shm.simple_channel", "nccl.shm.simple_extra", "nccl.smooth")


@pytest.fixture(scope="module")
def truth() -> Profile:
    return read_profile(find_input("profiles", "h200"))


def point(nbytes: int, *, channels: int = 0, algorithm: str = "nccl", kind: str = "all_reduce") -> Point:
    nccl = (("NCCL_MIN_NCHANNELS", str(channels)), ("NCCL_MAX_NCHANNELS", str(channels))) if channels else ()
    return Point(dataset="made up", topology="h200x2_shm", nccl=nccl, gpus=(0, 1), algorithm=algorithm,
                 kind=CollectiveKind(kind), nbytes=nbytes, latency=1.0, fitted=True, source="test")  # fmt: skip


def measured(truth: Profile, noise: float) -> list[Point]:
    timers, generator = point_timers(), random.Random(1)
    points = [point(size, algorithm=name) for size in SIZES for name in ("nccl-ring-ll", "nccl-ring-simple")]
    points += [point(size, channels=count) for size in SIZES for count in (1, 2, 8, 16)]
    return [
        replace(each, latency=predicted(each, truth, timers) * math.exp(generator.gauss(0, noise))) for each in points
    ]


def starts(truth: Profile, factor: float) -> dict[str, Free]:
    free = free_of(truth, NAMES)
    return {name: replace(each, start=min(each.most, each.start * factor)) for name, each in free.items()}


def test_it_finds_the_truth_again(truth: Profile) -> None:
    fit = fit_profile(truth, starts(truth, 1.6), measured(truth, 0.0), point_timers(), source="test", resamples=20)
    for name in NAMES:
        assert fit.profile.value(name) == pytest.approx(truth.value(name), rel=0.03), name
    assert not fit.unidentified


def test_intervals_hold_the_truth(truth: Profile) -> None:
    fit = fit_profile(truth, starts(truth, 1.3), measured(truth, 0.04), point_timers(), source="test", resamples=100)
    for name in NAMES:
        found = fit.profile.parameter(name)
        assert found.low <= truth.value(name) <= found.high, name
        assert found.low < found.value < found.high


def test_one_wild_point_does_not_pull(truth: Profile) -> None:
    points = measured(truth, 0.0)
    points[3] = replace(points[3], latency=5 * points[3].latency)
    fit = fit_profile(truth, starts(truth, 1.2), points, point_timers(), source="test", resamples=10)
    assert fit.profile.value("nccl.shm.base") == pytest.approx(truth.value("nccl.shm.base"), rel=0.05)


def test_what_no_point_depends_on_is_said(truth: Profile) -> None:
    free = {**starts(truth, 1.0), **free_of(truth, ("nccl.p2p.base",))}
    fit = fit_profile(truth, free, measured(truth, 0.02), point_timers(), source="test", resamples=10)
    assert fit.unidentified == ("nccl.p2p.base",)
    assert "nccl_sizes" in settles("nccl.p2p.base")


def test_parameters_told_only_together_are_said(truth: Profile) -> None:
    """Two ranks: a ring's base and its two hops are one sum at every size."""
    small = [each for each in measured(truth, 0.02) if each.nbytes <= 8 * KIB and each.algorithm == "nccl-ring-ll"]
    free = {
        "nccl.shm.base": Free(start=7 * US, least=US, most=20 * US),
        "nccl.shm.step": Free(start=US, least=0.1 * US, most=4 * US),
    }
    fit = fit_profile(truth, free, small * 10, point_timers(), source="test", resamples=10)
    assert {pair[:2] for pair in fit.correlated} == {("nccl.shm.base", "nccl.shm.step")}


def test_it_is_the_same_every_time(truth: Profile) -> None:
    points = measured(truth, 0.03)
    texts = {
        profile_text(
            fit_profile(truth, starts(truth, 1.1), points, point_timers(), source="t", resamples=20).profile, ""
        )
        for _ in range(2)
    }
    assert len(texts) == 1


def test_left_out_points_are_predicted_by_the_others(truth: Profile) -> None:
    found = held_out(truth, starts(truth, 1.1), measured(truth, 0.0), point_timers())
    assert {each.grouping for each in found} == {"size"}, "one host, one number of GPUs"
    assert max(abs(each.relative) for each in found if MIB > each.point.nbytes > KIB) < 0.03


def curve(*times: float) -> list[Point]:
    return [replace(point(KIB << at), latency=time * US) for at, time in enumerate(times)]


def test_an_outlier_and_a_switch_are_told_apart() -> None:
    """71.2 between 15.6 and 24.7 grew 4.6 times for twice the bytes; 156 before 132 grew 1.8 times."""
    (odd,) = oddities(curve(15.4, 15.6, 71.2, 24.7, 30.0))
    assert odd.outlier
    assert odd.nbytes == 4 * KIB
    (odd,) = oddities(curve(48.0, 85.0, 156.0, 132.0, 221.0))
    assert not odd.outlier
    assert "switch" in odd.text
    points, _ = without_outliers(curve(15.4, 15.6, 71.2, 24.7))
    assert [each.fitted for each in points] == [True, True, False, True]


def reading(what: What, gpus: tuple[int, ...], value: float) -> Reading:
    return Reading(what=what, gpus=gpus, value=value, low=value, high=value, source="test")


def test_direct_readings_through_host_and_nvlink(truth: Profile) -> None:
    """A flag of 3.2 us there and back is 1.6 one way: 1.2 are the load, 0.4 the store. 1.3 over NVLink: 0.65."""
    found = direct_parameters(
        [
            reading(What.HOST_LOAD, (0,), 1.2 * US),
            reading(What.HOST_FLAG, (0, 1), 3.2 * US),
            reading(What.PEER_LOAD, (0, 1), 0.85 * US),
            reading(What.PEER_FLAG, (0, 1), 1.3 * US),
            reading(What.HOST_FENCE, (0,), 1.5 * US),
            reading(What.HOST_COPY, (0,), 55 * GB),
        ],
        load_fabric(find_input("topologies", "h200x2")),
        truth,
    )
    assert found["latency.host_store"].value == pytest.approx(0.4 * US)
    assert found["latency.nvlink_store"].value == pytest.approx(0.65 * US)
    assert found["latency.fence_per_load"].value == pytest.approx(1.25)
    assert found["share.copy"].value == pytest.approx(55 / 63.015, rel=1e-3)
    assert all(each.low <= each.value <= each.high for each in found.values())


def test_direct_readings_over_pcie_give_the_parts_of_a_route(truth: Profile) -> None:
    """Made from poll 0.30, endpoint 0.15, switch 0.105 and root complex 0.25 us on two switches of four."""
    fabric = load_fabric(find_input("topologies", "rtx6000x8_2switch"))
    near, far = 2 * 150 + 105, 2 * 150 + 2 * 105 + 250  # nanoseconds of wire on one switch, and across
    readings = [reading(What.PEER_LOAD, (0, peer), 2 * (near if peer < 4 else far) * NS) for peer in range(1, 8)]
    readings += [
        reading(What.PEER_FLAG, (0, peer), 2 * (300 + (near if peer < 4 else far)) * NS) for peer in range(1, 8)
    ]
    found = direct_parameters(readings, fabric, read_profile(find_input("profiles", "rtx_pro_6000")))
    assert found["latency.poll"].value == pytest.approx(300 * NS, abs=15 * NS)
    wire = 2 * found["latency.endpoint"].value + truth.value("latency.switch")
    assert wire == pytest.approx(near * NS, abs=25 * NS)


def test_every_range_is_of_a_parameter_and_holds_the_shipped_ones(truth: Profile) -> None:
    for name, parameter in truth.parameters:
        free = free_of(truth, (name,))
        if name in free:
            # A share of nothing is a limit that a fit, which works in logarithms, only comes near.
            assert parameter.value == 0 or free[name].least <= parameter.value <= free[name].most, name
    assert all(each.least < each.most for each in RANGES.values())
    assert {name for name, _ in truth.parameters} <= set(PARAMETERS)


def test_fitting_files_of_others(tmp_path: Path) -> None:
    """A curve imported with its GPUs and variables makes a profile that says where its runs are, twice the same."""
    path = tmp_path / "mine.csv"
    path.write_text("bytes,latency_us\n" + "".join(f"{8 * KIB << at},{11 + 3 * at}\n" for at in range(6)), "utf-8")
    context = ImportContext(topology="h200x2_shm", gpus=(0, 1), algorithm="nccl-ring-ll")
    made = fit_runs([path], context, name="mine")
    assert "mine.csv/mine.csv" in made.text
    assert "runs:" in made.text
    assert made.text == fit_runs([path], context, name="mine").text
    written = tmp_path / "mine.yaml"
    written.write_text(made.text, "utf-8")
    assert read_profile(written).name == "mine"
