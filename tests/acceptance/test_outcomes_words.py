from __future__ import annotations

from typing import TYPE_CHECKING

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals


def test_skip(run_on_ordinals: RunOnOrdinals) -> None:
    """A skip counts when every ordinal skips; the others are told apart, whatever marks there are."""
    result = run_on_ordinals(
        """
        import unittest
        import pytest

        pytestmark = pytest.mark.tpu_multi_process

        def test_all(tpu_world):
            pytest.skip("not today")

        def test_one(tpu_world):
            if tpu_world.ordinal == 1:
                pytest.skip("not here")

        @pytest.mark.xfail
        def test_one_marked(tpu_world):
            if tpu_world.ordinal == 1:
                pytest.skip("not here")

        def test_different_reasons(tpu_world):
            pytest.skip(f"on {tpu_world.ordinal}")

        @pytest.mark.skip(reason="by mark")
        def test_mark(tpu_world):
            raise AssertionError

        @pytest.mark.skipif(True, reason="by condition")
        def test_skipif(tpu_world):
            raise AssertionError

        def test_importorskip(tpu_world):
            pytest.importorskip("no_such_module", reason="no module")

        def test_importorskip_on_one(tpu_world):
            pytest.importorskip("no_such_module" if tpu_world.ordinal == 2 else "os", reason="no module")

        def test_one_skips_one_fails(tpu_world):
            if tpu_world.ordinal == 0:
                pytest.skip("not here")
            assert tpu_world.ordinal != 1

        @pytest.fixture
        def skipping():
            pytest.skip("by fixture")

        def test_fixture(skipping, tpu_world):
            raise AssertionError

        @pytest.fixture
        def skipping_on_one(tpu_world):
            if tpu_world.ordinal == 0:
                pytest.skip("by fixture")

        def test_fixture_on_one(skipping_on_one):
            pass

        @pytest.fixture
        def ends_badly(tpu_world):
            yield
            if tpu_world.ordinal == 1:
                pytest.fail("torn down badly")

        def test_all_then_ends_badly(ends_badly):
            pytest.skip("not today")

        def test_gives_up_and_ends_badly(ends_badly):
            pytest.xfail("known")
        """,
        *SHOW_ALL,
        cores=3,
    )
    diverged = "FAILED DIVERGED: ordinals 0, 2 passed, ordinal 1 skipped (not here)"

    assert {
        "test_all": "SKIPPED Skipped: not today",
        "test_one": diverged,
        "test_one_marked": "FAILED DIVERGED: ordinals 0, 2 xpassed, ordinal 1 skipped (not here)",
        "test_different_reasons": "SKIPPED Skipped: on 0",
        "test_mark": "SKIPPED Skipped: by mark",
        "test_skipif": "SKIPPED Skipped: by condition",
        "test_importorskip": "SKIPPED Skipped: no module",
        "test_importorskip_on_one": "FAILED DIVERGED: ordinals 0-1 passed, ordinal 2 skipped (no module)",
        "test_one_skips_one_fails": "FAILED RAISED: ordinal 1: assert 1 != 1",
        "test_fixture": "SKIPPED Skipped: by fixture",
        "test_fixture_on_one": "FAILED DIVERGED: ordinal 0 skipped (by fixture), ordinals 1-2 passed",
        "test_all_then_ends_badly": "FAILED RAISED: ordinal 1: teardown: Failed: torn down badly",
        "test_gives_up_and_ends_badly": "FAILED RAISED: ordinal 1: teardown: Failed: torn down badly",
    } == summary(result)


def test_skip_shows_its_line(run_on_ordinals: RunOnOrdinals) -> None:
    """The folded line of a skip names the line that skips."""
    result = run_on_ordinals(
        """
        import pytest

        @pytest.mark.tpu_multi_process
        def test_all():
            pytest.skip("not today")
        """,
        "-rs",
    )

    result.stdout.fnmatch_lines(["SKIPPED [[]1[]] test_it.py:5: not today"])


def test_failures(run_on_ordinals: RunOnOrdinals) -> None:
    """What is raised on one ordinal fails the test, by the line that pytest gives it, and first cause first."""
    result = run_on_ordinals(
        """
        import pytest

        pytestmark = pytest.mark.tpu_multi_process

        def test_raises_passes(tpu_world):
            with pytest.raises(KeyError, match="here"):
                raise KeyError("here")

        def test_did_not_raise(tpu_world):
            with pytest.raises(KeyError):
                if tpu_world.ordinal != 1:
                    raise KeyError("here")

        def test_fail_without_traceback(tpu_world):
            if tpu_world.ordinal == 1:
                pytest.fail("a sentence", pytrace=False)

        def test_exception(tpu_world):
            if tpu_world.ordinal == 1:
                raise ValueError("several\\nlines")

        def test_base_exception(tpu_world):
            class Own(BaseException):
                pass

            if tpu_world.ordinal == 1:
                raise Own("straight")

        def test_alike(tpu_world):
            assert False, "everywhere"

        def test_not_alike(tpu_world):
            raise (KeyError if tpu_world.ordinal else ValueError)("own")

        def test_first_in_time(tpu_world):
            if tpu_world.ordinal == 1:
                raise ValueError("cause")
            tpu_world.rendezvous("never complete")
        """,
        *SHOW_ALL,
    )

    assert {
        "test_raises_passes": "PASSED",
        "test_did_not_raise": "FAILED RAISED: ordinal 1: Failed: DID NOT RAISE KeyError",
        "test_fail_without_traceback": "FAILED RAISED: ordinal 1: Failed: a sentence",
        "test_exception": "FAILED RAISED: ordinal 1: ValueError: several",
        "test_base_exception": "FAILED RAISED: ordinal 1: test_it.test_base_exception.<locals>.Own: straight",
        "test_alike": "FAILED AGREED: all 2 ordinals failed: AssertionError: everywhere",
        "test_first_in_time": "FAILED RAISED: ordinal 1: ValueError: cause",
    } == {name: line for name, line in summary(result).items() if name != "test_not_alike"}
    assert summary(result)["test_not_alike"] in {
        "FAILED AGREED: all 2 ordinals failed, first ordinal 0: ValueError: own",
        "FAILED AGREED: all 2 ordinals failed, first ordinal 1: KeyError: 'own'",
    }
