"""Only the topology file or its overlay changes; the step must change by what a pencil says.

A step has 121 all-reduces of 8 KiB.
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
def profile():
    return load_profile(None, gpu_type("rtx_pro_6000"))


@pytest.fixture(scope="module")
def costs(profile):
    return RouteCosts.of(profile)


def all_reduce(topo, name="auto") -> float:
    line = predict(topo=str(topo), model="qwen35_397b", allreduce=name).collectives[0]
    assert (line.count, line.nbytes) == (CALLS, 8192)
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


def test_halving_one_uplink_doubles_the_wire_time_of_a_one_shot_pull(root, tmp_path, costs):
    """Two switches of four: each of four GPUs pulls from four on the other side, so 16 tensors of 8 KiB cross each
    uplink, more than the 7 that any port takes. Halving one uplink adds as much wire time again, at the full rate of
    loads: what several at once lose, they lose at a GPU's port."""
    folder = root / "topologies"
    overlay = (folder / "rtx6000x8_2switch.yaml").read_text()
    halved, count = re.subn(
        r"uplink: \{generation: 5, width: 16\}", "uplink: {generation: 5, width: 8}", overlay, count=1
    )
    assert count == 1
    (tmp_path / "halved.txt").write_text((folder / "rtx6000x8_2switch.txt").read_text())
    (tmp_path / "halved.yaml").write_text(halved)
    whole = all_reduce(folder / "rtx6000x8_2switch.txt", "oneshot-pull")
    added = all_reduce(tmp_path / "halved.txt", "oneshot-pull") - whole
    rate = LINE * costs.share_load
    assert added == pytest.approx(16 * 8192 / rate, rel=1e-3)


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
