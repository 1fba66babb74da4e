from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

PHASES = """
    import os
    import signal
    import sys

    import pytest
    import pytest_tpu

    pytestmark = pytest.mark.tpu_isolated

    @pytest.fixture
    def skipping():
        pytest.skip("no luck")

    @pytest.fixture
    def broken():
        raise ValueError("set-up broke")

    @pytest.fixture
    def messy():
        yield
        raise ValueError("teardown broke")

    @pytest.fixture
    def deadly():
        yield
        os.kill(os.getpid(), signal.SIGKILL)

    @pytest.fixture
    def stillborn():
        os.kill(os.getpid(), signal.SIGKILL)

    def test_pass():
        pass

    def test_fail():
        assert [1, 2] == [1, 3]

    def test_skip():
        pytest.skip("not today")

    def test_skip_in_a_fixture(skipping):
        assert False

    @pytest.mark.skip(reason="by mark")
    def test_skip_by_mark(broken):
        assert False

    def test_error_in_a_fixture(broken):
        assert False

    def test_error_in_teardown(messy):
        pass

    def test_failure_and_error(messy):
        assert False

    @pytest.mark.xfail(reason="known")
    def test_xfail():
        assert False

    @pytest.mark.xfail(reason="known", raises=KeyError)
    def test_xfail_of_another(self=None):
        assert False

    @pytest.mark.xfail(reason="known")
    def test_xpass():
        pass

    @pytest.mark.xfail(reason="known", strict=True)
    def test_xpass_strict():
        pass

    def test_xfail_by_hand():
        pytest.xfail("gave up")

    def test_xfail_by_added_mark(request):
        request.node.add_marker(pytest.mark.xfail(reason="added"))
        assert False

    @pytest.mark.xfail(reason="known")
    def test_xfail_in_a_fixture(broken):
        pass

    @pytest.mark.xfail(reason="known")
    def test_killed():
        os.kill(os.getpid(), signal.SIGSEGV)

    @pytest.mark.xfail(reason="known")
    def test_killed_in_setup(stillborn):
        pass

    def test_killed_in_teardown(deadly):
        pass

    def test_left():
        os._exit(0)

    def test_exit_of_python():
        sys.exit(0)

    async def test_coroutine():
        pass
"""

TEST_CASE = """
    import os
    import unittest

    import pytest_tpu

    CONTROLLER = os.getpid()

    class TestOld(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.log = []

        def setUp(self):
            assert os.getpid() != CONTROLLER
            self.log.append("setUp")
            self.addCleanup(print, "cleaned up")

        def tearDown(self):
            print("torn down")

        def test_pass(self):
            self.assertEqual(["setUp"], self.log)

        def test_fail(self):
            self.assertEqual(1, 2)

        def test_skip(self):
            self.skipTest("not today")

        @unittest.skip("by decorator")
        def test_skip_by_decorator(self):
            assert False

        @unittest.expectedFailure
        def test_expected(self):
            assert False

        @unittest.expectedFailure
        def test_unexpected(self):
            pass

        def test_subtests(self):
            for number in range(3):
                with self.subTest(number=number):
                    self.assertNotEqual(1, number)

    TestOld = pytest_tpu.isolated(TestOld)
"""

SHIPPED = """
    import logging
    import os
    import sys
    import warnings

    import pytest
    import pytest_tpu

    CONTROLLER = os.getpid()

    @pytest.fixture
    def chatty():
        print("from the fixture")
        yield
        print("from the teardown")

    @pytest_tpu.isolated
    def test_output(chatty, capsys):
        print("from the body")
        assert "from the body\\n" == capsys.readouterr().out
        print("left over")
        print("to stderr", file=sys.stderr)
        logging.getLogger("user").warning("logged")
        os.write(1, b"past Python\\n")
        assert False

    @pytest_tpu.isolated
    def test_warnings():
        warnings.warn("careful")
        with pytest.warns(DeprecationWarning):
            warnings.warn("caught", DeprecationWarning)

    @pytest_tpu.isolated
    def test_properties(record_property):
        record_property("loss", 0.25)
        record_property("where", os.getpid() != CONTROLLER)

    @pytest_tpu.isolated
    def test_subtests(subtests):
        for number in range(3):
            with subtests.test("count", number=number):
                assert number != 1

    @pytest_tpu.isolated
    def test_tmp_path(tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert tmp_path.is_dir()
        assert CONTROLLER != os.getpid()
"""


class TestPhases:
    def test_words(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Set-up, body and teardown each end as themselves; a process that does not say its end is lost."""
        result = run_on_ordinals(PHASES, *SHOW_ALL)

        lost = "LOST: isolated process: killed by SIGKILL (9), without a report"
        assert {
            "test_pass": "PASSED",
            "test_fail": "FAILED assert [1, 2] == [1, 3]",
            "test_skip": "SKIPPED Skipped: not today",
            "test_skip_in_a_fixture": "SKIPPED Skipped: no luck",
            "test_skip_by_mark": "SKIPPED Skipped: by mark",
            "test_error_in_a_fixture": "ERROR ValueError: set-up broke",
            "test_error_in_teardown": "PASSED\nERROR ValueError: teardown broke",
            "test_failure_and_error": "ERROR ValueError: teardown broke\nFAILED assert False",
            "test_xfail": "XFAIL known",
            "test_xfail_of_another": "FAILED assert False",
            "test_xpass": "XPASS known",
            "test_xpass_strict": "FAILED [XPASS(strict)] known",
            "test_xfail_by_hand": "XFAIL gave up",
            "test_xfail_by_added_mark": "XFAIL added",
            "test_xfail_in_a_fixture": "XFAIL known",
            "test_killed": "FAILED LOST: isolated process: killed by SIGSEGV (11), without a report",
            "test_killed_in_setup": f"ERROR {lost}",
            "test_killed_in_teardown": f"PASSED\nERROR {lost}",
            "test_left": "FAILED LOST: isolated process: exit code 0, without a report",
            "test_exit_of_python": "FAILED SystemExit: 0",
            "test_coroutine": "FAILED Failed: async def functions are not natively supported.",
        } == summary(result)
        result.stdout.no_fnmatch_line("ordinal *")

    def test_report(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A failure looks as it would without isolation: pytest's traceback, and no word of processes."""
        result = run_on_ordinals(PHASES, "-k", "test_fail")

        result.stdout.fnmatch_lines(
            [
                "*= FAILURES =*",
                "*_ test_fail _*",
                "",
                "    def test_fail():",
                ">*assert [[]1, 2[]] == [[]1, 3[]]",
                "E       assert [[]1, 2[]] == [[]1, 3[]]",
                "test_it.py:*: AssertionError",
                "*short test summary info*",
            ]
        )
        result.stdout.no_fnmatch_line("*ordinal*")
        result.stdout.no_fnmatch_line("*isolated*")

    @pytest.mark.parametrize("isolate", [[], ["--tpu-isolate"]], ids=["here", "isolated"])
    def test_traceback(self, run_on_ordinals: RunOnOrdinals, isolate: list[str]) -> None:
        """The traceback of a fixture in a conftest has no line of the plugin, isolated or not."""
        conftest = """
            import pytest

            @pytest.fixture
            def broken():
                raise ValueError("set-up broke")
        """
        result = run_on_ordinals("def test_it(broken): pass", *isolate, conftest=conftest)

        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*_ ERROR at setup of test_it _*", "", "    @pytest.fixture", "*def broken*"])
        result.stdout.no_fnmatch_line("*pytest_tpu*")

    def test_test_case(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A TestCase runs whole in its process: setUp, tearDown, clean-ups, skips, expected failures and subtests."""
        result = run_on_ordinals(TEST_CASE, *SHOW_ALL)

        assert {
            "TestOld::test_pass": "PASSED",
            "TestOld::test_fail": "FAILED AssertionError: 1 != 2",
            "TestOld::test_skip": "SKIPPED Skipped: not today",
            "TestOld::test_skip_by_decorator": "SKIPPED Skipped: by decorator",
            "TestOld::test_expected": "XFAIL",
            "TestOld::test_unexpected": "FAILED Failed: Unexpected success",
            "TestOld::test_subtests": "FAILED contains 1 failed subtest",
        } == summary(result)
        result.stdout.fnmatch_lines(["SUBFAILED(number=1) test_it.py::TestOld::test_subtests - AssertionError: 1 == 1"])
        result.stdout.fnmatch_lines(["*_ TestOld.test_fail _*", "*Captured stdout*", "torn down", "cleaned up"])

    def test_failure_here(self, run_on_ordinals: RunOnOrdinals) -> None:
        """What a plugin finds wrong in pytest's own process counts, whatever the other processes said."""
        source = """
            import pytest
            import pytest_tpu

            @pytest_tpu.isolated
            def test_isolated():
                pass

            @pytest_tpu.isolated
            @pytest.mark.xfail
            def test_xfail():
                assert False

            @pytest_tpu.multi_process
            def test_on_ordinals():
                pass

            @pytest_tpu.multi_process
            def test_skip():
                pytest.skip("not today")
        """
        conftest = """
            import os
            import pytest

            CONTROLLER = os.getpid()

            @pytest.hookimpl(wrapper=True, tryfirst=True)
            def pytest_runtest_call():
                try:
                    return (yield)
                finally:
                    if os.getpid() == CONTROLLER:
                        raise RuntimeError("found wrong")
        """
        result = run_on_ordinals(source, *SHOW_ALL, conftest=conftest)

        failed = "FAILED RuntimeError: found wrong"
        assert {
            "test_isolated": failed,
            "test_xfail": "XFAIL",
            "test_on_ordinals": failed,
            "test_skip": failed,
        } == summary(result)

    def test_durations(self, run_on_ordinals: RunOnOrdinals) -> None:
        """The durations are those of the phases, and not of the process as a whole."""
        result = run_on_ordinals(
            """
            import threading
            import pytest_tpu

            @pytest_tpu.isolated
            def test_slow():
                threading.Event().wait(0.5)
            """,
            "--durations=0",
            "-vv",
        )

        (call,) = [line.split()[0] for line in result.outlines if " call " in line]
        (setup,) = [line.split()[0] for line in result.outlines if " setup " in line]
        assert 0.5 <= float(call.removesuffix("s"))
        assert 0.4 >= float(setup.removesuffix("s"))

    def test_selected(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Every test of the run, or those a mark expression selects, is isolated without a change of its code."""
        source = """
            import os

            import pytest

            CONTROLLER = os.getpid()

            def test_here():
                assert CONTROLLER == os.getpid()

            @pytest.mark.slow
            def test_slow():
                assert CONTROLLER != os.getpid()

            @pytest.mark.slow
            @pytest.mark.quick
            def test_both():
                assert CONTROLLER == os.getpid()
        """
        ini = "-Wignore::pytest.PytestUnknownMarkWarning"
        by_mark = run_on_ordinals(source, "--tpu-isolate-marked=slow and not quick", ini)
        all_of_them = run_on_ordinals(source, "--tpu-isolate", ini, "-k", "test_slow")
        none = run_on_ordinals(source, "-k", "here", ini)

        by_mark.assert_outcomes(passed=3)
        all_of_them.assert_outcomes(passed=1, deselected=2)
        none.assert_outcomes(passed=1, deselected=2)

    def test_without_a_host(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """A plain test can be isolated without any host; a marked one, which sees a host, is skipped."""
        pytester.makepyfile(
            """
            import os

            import pytest_tpu

            CONTROLLER = os.getpid()

            def test_plain():
                assert CONTROLLER != os.getpid()

            @pytest_tpu.isolated
            def test_marked():
                assert False
            """
        )
        result = pytester.runpytest_inprocess("--tpu-isolate")

        result.assert_outcomes(passed=1, skipped=1)

    @pytest.mark.parametrize("asks", ["tpu_world", "asks_too"])
    def test_world_is_refused(self, run_on_ordinals: RunOnOrdinals, asks: str) -> None:
        """An isolated test is no ordinal: one that asks for the world, itself or by a fixture, is an error by name."""
        result = run_on_ordinals(
            f"""
            import pytest
            import pytest_tpu

            @pytest.fixture
            def asks_too(tpu_world):
                return tpu_world

            @pytest_tpu.isolated
            def test_both({asks}):
                pass
            """
        )

        assert pytest.ExitCode.INTERRUPTED == result.ret
        result.stdout.fnmatch_lines(
            ["tpu_isolated on test_it.py::test_both contradicts its fixture tpu_world: an isolated test *"]
        )


class TestShipped:
    def test_output(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Output of all phases and logs are shown once, and what capsys took is not."""
        result = run_on_ordinals(SHIPPED, "-k", "test_output")

        result.assert_outcomes(failed=1, deselected=4)
        result.stdout.fnmatch_lines(
            [
                "*Captured stdout*",
                "from the fixture",
                "left over",
                "from the teardown",
            ]
        )
        result.stdout.fnmatch_lines(["*Captured stderr*", "to stderr"])
        result.stdout.fnmatch_lines(["*Captured log*", "WARNING *user:*logged"])
        text = result.stdout.str()
        assert 1 == text.count("\npast Python\n")
        assert 1 == text.count("\nleft over\n")
        assert 0 == text.count("\nfrom the body\n")

    def test_records(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """Warnings, properties and subtests of an isolated test come home, once."""
        result = run_on_ordinals(
            SHIPPED, "-Walways", "--junitxml=junit.xml", "-o", "junit_family=xunit1", "-k", "not test_output"
        )

        result.assert_outcomes(passed=3, failed=2, warnings=1, deselected=1)
        result.stdout.fnmatch_lines(["test_it.py::test_warnings", "  *test_it.py:*: UserWarning: careful"])
        result.stdout.fnmatch_lines(["SUBFAILED[[]count] (number=1) test_it.py::test_subtests - assert 1 != 1"])
        junit = (pytester.path / "junit.xml").read_text()
        assert '<property name="loss" value="0.25" /><property name="where" value="True" />' in junit

    def test_letters(self, pytester: pytest.Pytester) -> None:
        """The terminal's letters for subtests are no output of the test, with real descriptors too."""
        pytester.makepyfile(
            """
            def test_it(subtests):
                for number in range(3):
                    with subtests.test(number=number):
                        assert number != 1
            """
        )
        result = pytester.runpytest_subprocess("--tpu-isolate", "--capture=fd")

        result.stdout.fnmatch_lines(["test_letters.py uF *", "*_ test_it (number=1) _*"])
        result.stdout.no_fnmatch_line("*Captured stdout*")
