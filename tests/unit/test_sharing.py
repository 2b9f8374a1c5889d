"""Each system is stated as equations, the expected rates in words."""

import pytest

from pciesim.sharing import Flow, max_min, violations


def test_equal_flows_share_a_link_equally():
    # x + y <= 10, equal weights: 5 each.
    flows = [Flow(uses=((0, 1.0),)), Flow(uses=((0, 1.0),))]
    assert max_min([10.0], flows) == [5.0, 5.0]


def test_a_capped_flow_leaves_the_rest_to_the_other():
    # x <= 2, x + y <= 10: x 2, y 8.
    flows = [Flow(uses=((0, 1.0),), cap=2.0), Flow(uses=((0, 1.0),))]
    assert max_min([10.0], flows) == [2.0, 8.0]


def test_weights_are_lanes():
    # Three lanes against one on a link of 8: 6 and 2, as four equal flows would share it.
    flows = [Flow(uses=((0, 1.0),), weight=3.0), Flow(uses=((0, 1.0),))]
    assert max_min([8.0], flows) == [6.0, 2.0]


def test_the_classic_three_link_chain():
    # a over links 0 and 1, b over 0, c over 1; capacities 10 and 4: link 1 binds first (2 each), then b takes 8.
    flows = [Flow(uses=((0, 1.0), (1, 1.0))), Flow(uses=((0, 1.0),)), Flow(uses=((1, 1.0),))]
    assert max_min([10.0, 4.0], flows) == [2.0, 8.0, 2.0]


def test_coefficients_charge_more_than_the_rate():
    # LL sends two bytes for one: 2x + y <= 9 with x = y gives 3 each.
    flows = [Flow(uses=((0, 2.0),)), Flow(uses=((0, 1.0),))]
    assert max_min([9.0], flows) == pytest.approx([3.0, 3.0])


def test_an_unbounded_flow_is_an_error():
    with pytest.raises(ValueError, match="bounded by no"):
        max_min([1.0], [Flow(uses=())])


def test_the_certificate_rejects_rates_that_are_not_max_min():
    flows = [Flow(uses=((0, 1.0),)), Flow(uses=((0, 1.0),))]
    assert violations([10.0], flows, [5.0, 5.0]) == []
    assert violations([10.0], flows, [6.0, 4.0])
    assert violations([10.0], flows, [5.0, 6.0])
    assert violations([10.0], flows, [4.0, 4.0])
