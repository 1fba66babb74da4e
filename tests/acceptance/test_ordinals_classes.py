from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from tests.acceptance.conftest import RunOnOrdinals

CLASSES = """
    import os

    import pytest
    import pytest_tpu

    @pytest_tpu.multi_process
    class TestMethods:
        made = []

        @pytest.fixture(scope="class")
        def shared(self, request):
            request.cls.made.append("shared")
            return "shared value"

        def setup_method(self, method):
            self.name = method.__name__

        def teardown_method(self):
            assert self.name

        def test_first(self, shared, tpu_world):
            assert "test_first" == self.name
            self.made.append(tpu_world.ordinal)
            assert ["shared", tpu_world.ordinal] == self.made

        def test_second(self, shared, tpu_world):
            assert "shared value" == shared
            assert ["shared"] == self.made
            assert tpu_world.ordinal != 1

        @staticmethod
        def test_static(tpu_world):
            assert tpu_world.ordinal != 0

        @classmethod
        def test_class(cls, tpu_world):
            assert "TestMethods" == cls.__name__
            assert tpu_world.ordinal != 2

    class TestBase:
        word = "base"

        def test_word(self, tpu_world):
            assert self.word == "base" or tpu_world.ordinal != 1

    class TestDerived(TestBase):
        word = "derived"
"""


class TestClasses:
    def test_methods(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Methods of all kinds run on every ordinal with their instance, and class fixtures are made once."""
        result = run_on_ordinals(CLASSES, "--tb=short", cores=3)

        result.assert_outcomes(passed=2, failed=4)
        result.stdout.fnmatch_lines_random(
            [
                "FAILED test_it.py::TestMethods::test_second - RAISED: ordinal 1: assert 1 != 1*",
                "FAILED test_it.py::TestMethods::test_static - RAISED: ordinal 0: assert 0 != 0*",
                "FAILED test_it.py::TestMethods::test_class - RAISED: ordinal 2: assert 2 != 2*",
                "FAILED test_it.py::TestDerived::test_word - RAISED: ordinal 1: *",
            ]
        )


CASE = """
    import asyncio
    import os
    import unittest

    import pytest
    import pytest_tpu

    def note(text):
        with open("log.txt", "a") as file:
            file.write(f"{text}\\n")

    @pytest_tpu.multi_process
    class TestCase(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            note("setUpClass")
            cls.value = object()
            cls.owner = os.getpid()

        @classmethod
        def tearDownClass(cls):
            note(f"tearDownClass {cls.owner == os.getpid()}")

        @pytest.fixture(autouse=True)
        def use_world(self, tpu_world):
            self.world = tpu_world

        def setUp(self):
            note(f"setUp {self.world.ordinal}")
            self.addCleanup(note, f"cleanup {self.world.ordinal}")

        def tearDown(self):
            note(f"tearDown {self.world.ordinal}")

        def test_1_pass(self):
            self.assertIsNotNone(self.value)
            self.assertNotEqual(os.getpid(), self.owner)
            note(f"body {self.world.ordinal}")

    @pytest_tpu.multi_process
    class TestOutcomes(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def use_world(self, tpu_world):
            self.world = tpu_world

        def test_fail(self):
            self.assertNotEqual(1, self.world.ordinal)

        def test_skip(self):
            self.skipTest("not now")

        def test_skip_on_one(self):
            if self.world.ordinal == 0:
                self.skipTest("not here")

        @unittest.skip("never")
        def test_skipped(self):
            self.fail()

        @unittest.expectedFailure
        def test_expected(self):
            self.fail("as expected")

        @unittest.expectedFailure
        def test_unexpected(self):
            pass

        @unittest.expectedFailure
        def test_expected_on_one(self):
            self.assertNotEqual(1, self.world.ordinal)

        def test_raises(self):
            with self.assertRaisesRegex(ValueError, "in"):
                int("x", 10)

    class TestCoroutines(unittest.IsolatedAsyncioTestCase):
        @pytest.fixture(autouse=True)
        def use_world(self, tpu_world):
            self.world = tpu_world

        async def asyncSetUp(self):
            self.queue = asyncio.Queue()

        async def test_await(self):
            await self.queue.put(self.world.ordinal)
            self.assertNotEqual(1, await self.queue.get())

    class TestErrors(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def use_world(self, tpu_world):
            self.world = tpu_world

        def setUp(self):
            if "cleanup" in self.id():
                self.addCleanup(self.fail_on_one)

        def fail_on_one(self):
            assert self.world.ordinal != 1, "clean-up failed"

        def tearDown(self):
            if "down" in self.id():
                self.fail_on_one()

        def test_cleanup(self):
            pass

        def test_down(self):
            pass
"""


class TestUnittest:
    def test_where(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """What is set up for each test runs on each ordinal, what is set up for the class once in the controller."""
        run_on_ordinals(CASE, "test_it.py::TestCase").assert_outcomes(passed=1)
        log = (pytester.path / "log.txt").read_text().splitlines()

        assert ("setUpClass", "tearDownClass True") == (log[0], log[-1])
        assert 10 == len(log)
        for ordinal in (0, 1):
            own = [line for line in log if line.endswith(f" {ordinal}")]
            assert [f"{act} {ordinal}" for act in ("setUp", "body", "tearDown", "cleanup")] == own

    def test_outcomes(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Every outcome of a TestCase comes through where all ordinals have it, and else is a failure with names."""
        result = run_on_ordinals(CASE, "-v", "-k", "TestOutcomes", cores=2)

        result.stdout.fnmatch_lines(
            [
                "*::test_expected XFAIL*",
                "*::test_expected_on_one FAILED*",
                "*::test_fail FAILED*",
                "*::test_raises PASSED*",
                "*::test_skip SKIPPED*",
                "*::test_skip_on_one FAILED*",
                "*::test_skipped SKIPPED*",
                "*::test_unexpected FAILED*",
                "FAILED *::test_expected_on_one - *",
                "FAILED *::test_fail - RAISED: ordinal 1: AssertionError: 1 == 1*",
                "FAILED *::test_skip_on_one - DIVERGED: ordinal 0 skipped (not here), ordinal 1 passed",
                "FAILED *::test_unexpected - AGREED: all 2 ordinals *: Unexpected success*",
            ]
        )

    def test_coroutines(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Coroutines of a TestCase that makes its own event loop run on ordinals."""
        result = run_on_ordinals(CASE, "-k", "TestCoroutines")

        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["FAILED *::test_await - RAISED: ordinal 1: AssertionError: 1 == 1"])

    def test_errors(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A failure of tearDown or of a clean-up on one ordinal fails the test with its name."""
        result = run_on_ordinals(CASE, "-k", "TestErrors")

        result.assert_outcomes(failed=2)
        result.stdout.fnmatch_lines(
            [
                "FAILED *::test_cleanup - RAISED: ordinal 1: AssertionError: clean-up failed*",
                "FAILED *::test_down - RAISED: ordinal 1: AssertionError: clean-up failed*",
            ]
        )
