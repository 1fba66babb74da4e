from __future__ import annotations

import pytest

from pytest_tpu.model.limits import Limits


@pytest.mark.parametrize(
    ("expected", "timeout", "left"),
    [
        pytest.param(295.0, 300.0, 300.0, id="two graces and a second earlier"),
        pytest.param(10.0, 10.0, 300.0, id="its own is shorter"),
        pytest.param(1.5, 300.0, 3.0, id="half of what is left, where that is little"),
        pytest.param(295.0, 0.0, 300.0, id="none of its own"),
    ],
)
def test_an_inner_launch_ends_first(expected: float, timeout: float, left: float) -> None:
    """A launch inside an isolated test is over, and its verdict told, before the test itself is stopped."""
    assert expected == Limits(timeout=timeout, grace=2).within(left).timeout
