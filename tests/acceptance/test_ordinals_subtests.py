from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

FIXTURE = """
    import os
    import signal
    import sys
    import unittest

    import pytest

    def test_one_fails(tpu_world, subtests):
        for number in range(3):
            with subtests.test("adds", number=number):
                print(f"in {number} of {tpu_world.ordinal}")
                assert (number, tpu_world.ordinal) != (2, 1)

    def test_two_fail(tpu_world, subtests):
        with subtests.test("both"):
            assert tpu_world.ordinal == 0

    def test_skips(tpu_world, subtests):
        with subtests.test("skipped"):
            pytest.skip("why")
        with subtests.test("passed"):
            pass

    def test_nested(tpu_world, subtests):
        with subtests.test("outer"):
            with subtests.test("inner"):
                assert tpu_world.ordinal != 2

    def test_xfail(tpu_world, subtests):
        with subtests.test("expected"):
            pytest.xfail("known")

    def test_loop(tpu_world, subtests):
        for _ in range(2):
            with subtests.test("same"):
                assert tpu_world.ordinal != 0

    class TestOld(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def use_world(self, tpu_world):
            self.world = tpu_world

        def test_case(self):
            with self.subTest("adds", number=1):
                with self.subTest(letter="a"):
                    self.assertNotEqual(1, self.world.ordinal)
            with self.subTest("good"):
                pass
            with self.subTest("skipped"):
                self.skipTest("not now")

    def test_killed(tpu_world, subtests):
        with subtests.test("last words"):
            print(f"dying {tpu_world.ordinal}")
            if tpu_world.ordinal == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    def test_after(subtests):
        with subtests.test("plain"):
            pass
"""

FAILURES = [
    "SUBFAILED[[]adds[]] (number=QUOTED2QUOTED) test_it.py::test_one_fails - ordinal 1: assert (2, 1) != (2, 1)*",
    "FAILED test_it.py::test_one_fails - RAISED: ordinal 1: contains 1 failed subtest",
    "SUBFAILED[[]both[]] test_it.py::test_two_fail - ordinals 1-2: assert [12] == 0*",
    "FAILED test_it.py::test_two_fail - RAISED: ordinal [12]: contains 1 failed subtest",
    "SUBFAILED[[]inner[]] test_it.py::test_nested - ordinal 2: assert 2 != 2*",
    "FAILED test_it.py::test_nested - RAISED: ordinal 2: contains 1 failed subtest",
    "SUBFAILED[[]same[]] test_it.py::test_loop - ordinal 0: assert 0 != 0*",
    "SUBFAILED[[]same[]] test_it.py::test_loop - ordinal 0: assert 0 != 0*",
    "FAILED test_it.py::test_loop - RAISED: ordinal 0: contains 2 failed subtests",
    "SUBFAILED(letter=QUOTED'a'QUOTED, number=QUOTED1QUOTED) *::test_case - ordinal 1: AssertionError: 1 == 1*",
    "FAILED test_it.py::TestOld::test_case - RAISED: ordinal 1: *",
    "FAILED test_it.py::test_killed - LOST: ordinal 1: killed by SIGKILL (9), without a report",
]


class TestSubtests:
    @pytest.mark.parametrize(
        ("args", "quote"),
        # Xdist has pytest quote the arguments of subtests a second time.
        [((), ""), (("-n2",), "[\"']")],
        ids=["plain", "xdist"],
    )
    def test_failures(
        self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester, args: tuple[str, ...], quote: str
    ) -> None:
        """A subtest that failed on some ordinals fails once, names them, and fails its test; workers survive that."""
        result = run_on_ordinals(FIXTURE, *args, "--junit-xml=junit.xml", cores=3)

        result.stdout.fnmatch_lines_random([line.replace("QUOTED", quote) for line in FAILURES])
        assert 6 == sum(line.startswith("FAILED ") for line in result.outlines)
        assert 6 == sum(line.startswith("SUBFAILED") for line in result.outlines)
        result.stdout.no_fnmatch_line("*worker*crashed*")
        names = [case.attrib["name"] for case in ElementTree.parse(pytester.path / "junit.xml").iter("testcase")]
        assert {"test_skips", "test_xfail", "test_after"} <= set(names)

    def test_counts(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Subtests count once, and not once for each ordinal; skips and expected failures are no failures."""
        result = run_on_ordinals(FIXTURE, "-vv", "-k", "skips or xfail or after")

        result.stdout.fnmatch_lines(
            [
                "*::test_skips SUBSKIPPED[[]skipped[]] *",
                "*::test_skips SUBPASSED[[]passed[]] *",
                "*::test_skips PASSED *",
                "*::test_xfail SUBXFAIL[[]expected[]] *",
                "*::test_xfail PASSED *",
                "*= 3 passed, 1 skipped, * 1 xfailed, 2 subtests passed *",
            ]
        )

    def test_output(self, run_on_ordinals: RunOnOrdinals) -> None:
        """What was printed inside subtests is in the sections of the ordinals, of a killed one too."""
        result = run_on_ordinals(FIXTURE, "-k", "one_fails or killed")

        for ordinal in (0, 1):
            assert 1 == result.outlines.count(f"in 0 of {ordinal}")
            assert 1 == result.outlines.count(f"dying {ordinal}")
