from __future__ import annotations

import pytest

from pytest_tpu.model.limits import Limits


@pytest.mark.parametrize(
    ("expected", "timeout", "left"),
    [
        pytest.param(40.0, 300.0, 40.0, id="what is left"),
        pytest.param(10.0, 10.0, 40.0, id="its own is shorter"),
        pytest.param(40.0, 0.0, 40.0, id="none of its own"),
        pytest.param(0.01, 300.0, 0.0, id="nothing is left, which is not no limit"),
        pytest.param(0.01, 300.0, -1.0, id="less than nothing"),
    ],
)
def test_a_launch_in_an_isolated_test(expected: float, timeout: float, left: float) -> None:
    """A launch inside an isolated test may take what is left of that test's time."""
    assert expected == Limits(timeout=timeout, grace=2).within(left).timeout


def test_an_isolated_test_that_launches() -> None:
    """It gets the time to stop its ordinals and to tell their verdict: two graces and a second; no limit stays none."""
    assert 305.0 == Limits(timeout=300, grace=2).around().timeout
    assert 0.0 == Limits(timeout=0).around().timeout
