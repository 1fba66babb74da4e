"""What a fork would take away or leave, and ordinals don't notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def test_seeds_hold_on_ordinals(pytester: pytest.Pytester) -> None:
    """A seed that a fixture sets holds on ordinals, for `random` too, which Python seeds anew in forked children."""
    pytester.makepyfile(
        """
        import random

        import pytest
        import pytest_tpu


        @pytest.fixture
        def expected():
            random.seed(0)
            number = random.random()
            random.seed(0)
            return number


        @pytest_tpu.multi_process
        def test_on_ordinals(expected):
            assert random.random() == expected


        @pytest_tpu.isolated
        def test_isolated(expected):
            assert random.random() == expected


        def test_launched(expected, tpu_launch):
            assert tpu_launch(random.random) == [expected] * 2
        """
    )

    result = pytester.runpytest_inprocess("--tpu-cores=2")

    result.assert_outcomes(passed=3)


def test_a_launch_on_an_ordinal_says_what_to_do(pytester: pytest.Pytester) -> None:
    """A program that launches by itself can't do so on an ordinal: torch_xla's error says that it needs isolation."""
    pytester.makepyfile(
        """
        import pytest_tpu
        import torch_xla


        @pytest_tpu.multi_process
        def test_launches():
            torch_xla.launch(print)
        """
    )

    result = pytester.runpytest_inprocess("--tpu-cores=2")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *RuntimeError: Runtime is already initialized. *@pytest_tpu.isolated for a test that launches.*"]
    )
