"""Only the topology file or its overlay changes; the step must change by what a pencil says.

121 all-reduces of 8 KiB by a ring with LL. One hop passes a chunk of 8 KiB / n, doubled by LL's flags.
"""

import re

import pytest

from pciesim.api import load_profile, predict
from pciesim.formats.catalogue import gpu_type
from pciesim.physics import RouteCosts
from pciesim.units import GB

CALLS = 121
LINE = 63.015 * GB  # Gen5 x16 after encoding


@pytest.fixture(scope="module")
def costs():
    return RouteCosts.of(load_profile(None, gpu_type("rtx_pro_6000")))


def all_reduce(topo) -> float:
    line = predict(topo=str(topo), model="qwen35_397b").collectives[0]
    assert (line.count, line.nbytes, line.protocol) == (CALLS, 8192, "LL")
    return line.latency.value


def test_a_switch_above_four_root_port_gpus_shortens_six_hops(root, tmp_path, costs):
    """Four GPUs on root ports (NODE) become four behind one switch (PIX): each of 2 (4 - 1) hops crosses a switch
    instead of a root complex."""
    folder = root / "topologies"
    switched = tmp_path / "switched.txt"
    switched.write_text((folder / "rtx6000x4.txt").read_text().replace("NODE\t", "PIX\t"))
    (tmp_path / "switched.yaml").write_text(
        (folder / "rtx6000x4.yaml").read_text()
        + "\nswitches:\n  - {name: sw0, gpus: [0, 1, 2, 3], uplink: {generation: 5, width: 16}}\n"
    )
    saved = all_reduce(folder / "rtx6000x4.txt") - all_reduce(switched)
    assert saved == pytest.approx(6 * (costs.root_complex - costs.switch), rel=1e-3)


def test_halving_one_uplink_slows_the_hops_that_cross_it(root, tmp_path, costs):
    """Two switches of four: 2 of the 8 ring edges cross, one up and one down each uplink. The longest chain of 14 hops
    starts on a crossing edge and meets one at hops 1, 5, 9 and 13: four crossings, each passing 1 KiB x 2 at half rate."""
    folder = root / "topologies"
    overlay = (folder / "rtx6000x8_2switch.yaml").read_text()
    halved, count = re.subn(r"uplink: \{generation: 5, width: 16\}", "uplink: {generation: 5, width: 8}", overlay, count=1)
    assert count == 1
    (tmp_path / "halved.txt").write_text((folder / "rtx6000x8_2switch.txt").read_text())
    (tmp_path / "halved.yaml").write_text(halved)
    added = all_reduce(tmp_path / "halved.txt") - all_reduce(folder / "rtx6000x8_2switch.txt")
    chunk = 2 * 8192 / 8 / (costs.share_store * LINE)
    assert added == pytest.approx(4 * chunk, rel=1e-3)


def test_parts_add_up_to_the_step():
    for topo in ("rtx6000x8", "rtx6000x4", "h200x2_shm", "h200x2"):
        prediction = predict(topo=topo, model="llama31_70b")
        total = sum(part.value for _, part in prediction.breakdown)
        assert total == pytest.approx(prediction.step_latency.value, rel=1e-9)
        for line in prediction.collectives:
            assert line.latency.low <= line.latency.value <= line.latency.high


def test_both_evaluators_give_the_same_step():
    one, other = (
        predict(topo="rtx6000x8", model="qwen35_397b", evaluator=name).step_latency.value
        for name in ("simulate", "estimate")
    )
    assert one == pytest.approx(other, rel=1e-9)


def test_same_question_same_answer():
    assert predict(topo="rtx6000x8", model="qwen35_397b") == predict(topo="rtx6000x8", model="qwen35_397b")
