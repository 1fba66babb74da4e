from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

WARNINGS = """
    import threading
    import warnings

    import pytest

    class Own(UserWarning):
        pass

    @pytest.fixture
    def late(tpu_world):
        warnings.warn("set up")
        yield
        warnings.warn("torn down")

    def test_alike(tpu_world):
        warnings.warn("the same on all")

    def test_one(tpu_world):
        if tpu_world.ordinal == 1:
            warnings.warn("only here", Own)

    def test_fixture(late):
        pass

    def test_caught(tpu_world):
        with pytest.warns(Own, match="caught"):
            warnings.warn("caught", Own)
        with pytest.deprecated_call():
            warnings.warn("old", DeprecationWarning)

    def test_not_caught_on_one(tpu_world):
        with pytest.warns(Own, match="expected"):
            if tpu_world.ordinal == 0:
                warnings.warn("expected", Own)

    def test_recorded(tpu_world, recwarn):
        warnings.warn(f"of {tpu_world.ordinal}")
        assert [f"of {tpu_world.ordinal}"] == [str(warning.message) for warning in recwarn]
        assert tpu_world.ordinal == 0

    @pytest.mark.filterwarnings("error::test_it.Own")
    def test_mark(tpu_world):
        if tpu_world.ordinal == 1:
            warnings.warn("forbidden", Own)

    @pytest.mark.filterwarnings("ignore:silent")
    def test_ignored(tpu_world):
        warnings.warn("silent")
"""

ERRORS = """
    import warnings

    def test_nothing(tpu_world):
        tpu_world.rendezvous("here")

    def test_one(tpu_world):
        if tpu_world.ordinal == 1:
            warnings.warn("an error here")

    def test_deprecated(tpu_world):
        if tpu_world.ordinal == 0:
            warnings.warn("old", DeprecationWarning)

    def test_next(tpu_world):
        pass

    def test_alone():
        pass
"""

# What Python 3.12 and later do at a fork of a process with threads.
FORK_WARNS = """
    import os
    import warnings

    real = os.fork

    def fork():
        warnings.warn("use of fork() may lead to deadlocks in the child", DeprecationWarning, stacklevel=2)
        return real()

    os.fork = fork

    def pytest_unconfigure():
        os.fork = real
"""

THREADS = """
    import gc
    import threading

    def fail():
        raise ValueError("in a thread")

    def test_thread(tpu_world):
        if tpu_world.ordinal == 1:
            thread = threading.Thread(target=fail, name="mine")
            thread.start()
            thread.join()

    class Bad:
        def __del__(self):
            raise ValueError("in a destructor")

    def test_destructor(tpu_world):
        bad = Bad()
        del bad
        gc.collect()
"""


class TestWarnings:
    def test_shown(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Warnings of ordinals are shown once each, with their line; pytest.warns and marks hold on ordinals."""
        result = run_on_ordinals(WARNINGS, "-W", "always", "--tb=short")

        result.assert_outcomes(passed=5, failed=3, warnings=4)
        result.stdout.fnmatch_lines(
            [
                "test_it.py::test_alike*",
                "  *test_it.py:16: UserWarning: the same on all",
                "test_it.py::test_one",
                "  *test_it.py:20: Own: only here",
                "test_it.py::test_fixture",
                "  *test_it.py:11: UserWarning: set up",
                "  *test_it.py:13: UserWarning: torn down",
                "FAILED *::test_not_caught_on_one - RAISED: ordinal 1: Failed: DID NOT WARN.*",
                "FAILED *::test_recorded - RAISED: ordinal 1: *",
                "FAILED *::test_mark - RAISED: ordinal 1: test_it.Own: forbidden",
            ]
        )
        for text in ("the same on all", "only here"):
            assert 1 == sum(line.endswith(f": {text}") for line in result.outlines)

    @pytest.mark.parametrize("args", [(), ("-n1",)], ids=["plain", "xdist"])
    def test_error(self, run_on_ordinals: RunOnOrdinals, args: tuple[str, ...]) -> None:
        """With -W error a warning fails the ordinal that gives it, and the launch itself gives none."""
        result = run_on_ordinals(ERRORS, "-W", "error", *args, conftest=FORK_WARNS)

        result.assert_outcomes(passed=3, failed=2)
        result.stdout.fnmatch_lines_random(
            [
                "FAILED test_it.py::test_one - RAISED: ordinal 1: UserWarning: an error here",
                "FAILED test_it.py::test_deprecated - RAISED: ordinal 0: DeprecationWarning: old",
            ]
        )


class TestThreads:
    def test_unhandled(self, run_on_ordinals: RunOnOrdinals) -> None:
        """An exception that nobody handled, in a thread or a destructor, is a warning as in any test, or an error."""
        result = run_on_ordinals(THREADS, "-W", "always")

        result.assert_outcomes(passed=2, warnings=2)
        result.stdout.fnmatch_lines(
            ["*PytestUnhandledThreadExceptionWarning: Exception in thread mine*", "*ValueError: in a thread*"]
        )
        result.stdout.fnmatch_lines(["*PytestUnraisableExceptionWarning: Exception ignored*"])

        result = run_on_ordinals(THREADS, "-W", "error")

        result.assert_outcomes(failed=2)
        result.stdout.fnmatch_lines(["FAILED test_it.py::test_thread - RAISED: ordinal 1: *"])
