from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

RESULTS = """
    from dataclasses import dataclass

    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    def test_order(tpu_launch):
        assert [(0, 3), (1, 3), (2, 3)] == tpu_launch(lambda: (xr.global_ordinal(), xr.world_size()))

    def test_arguments(tpu_launch):
        offset = 10
        assert [13, 14, 15] == tpu_launch(lambda a, b: offset + a + b + xr.global_ordinal(), 1, 2)

    def test_cores(tpu_launch):
        assert [1] == tpu_launch(xr.world_size, cores=1)
        assert [2, 2] == tpu_launch(xr.world_size, cores=2)

    def test_tensors(tpu_launch):
        def reduced():
            ours = torch.full((2,), 1.0 + xr.global_ordinal(), device="xla")
            layer = torch.nn.Linear(2, 2).to("xla")
            return {"sum": [xm.all_reduce("sum", ours)], "ours": (ours, "text"), "layer": layer}

        results = tpu_launch(reduced)
        assert [[6.0, 6.0]] * 3 == [result["sum"][0].tolist() for result in results]
        assert [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]] == [result["ours"][0].tolist() for result in results]
        tensors = [(*result["sum"], result["ours"][0], result["layer"].weight) for result in results]
        assert {"cpu"} == {tensor.device.type for of_one in tensors for tensor in of_one}
        assert not torch_runtime_is_up()

    def test_tensor_in_a_closure(tpu_launch):
        def make():
            ours = torch.full((2,), 1.0, device="xla")
            return lambda: ours + 1

        assert [[2.0, 2.0]] * 3 == [plus_one().tolist() for plus_one in tpu_launch(make)]
        assert not torch_runtime_is_up()

    def torch_runtime_is_up():
        import torch_xla
        return torch_xla._XLAC._xla_runtime_is_initialized()

    def test_local_class(tpu_launch):
        @dataclass
        class Point:
            x: int

        assert [Point(0), Point(1), Point(2)] == tpu_launch(lambda: Point(xr.global_ordinal()))

    def test_class_made_on_the_ordinal(tpu_launch):
        def made():
            @dataclass
            class Point:
                x: int
            return Point(xr.global_ordinal())

        assert [0, 1, 2] == [point.x for point in tpu_launch(made)]

    def test_changes_stay_there(tpu_launch):
        seen = []
        assert [None] * 3 == tpu_launch(seen.append, 1)
        assert [] == seen

    def test_large(tpu_launch):
        assert [3_000_000] * 3 == [len(text) for text in tpu_launch(lambda: "x" * 3_000_000)]
"""


FIXTURES = """
    import pytest
    import pytest_tpu
    import torch
    import torch_xla.runtime as xr

    @pytest.fixture
    def trained(tpu_launch):
        return tpu_launch(lambda: xr.global_ordinal())

    def test_from_a_fixture(trained, tpu_launch):
        assert [0, 1] == trained
        assert [[0, 1]] * 2 == tpu_launch(lambda: trained)

    @pytest.fixture
    def skipping(tpu_launch):
        tpu_launch(lambda: pytest.skip("not there"))

    def test_skip_in_a_fixture(skipping):
        pass

    def test_with_cores(tpu_launch, tpu_cores):
        assert [tpu_cores] * tpu_cores == tpu_launch(xr.world_size)

    @pytest_tpu.isolated(1)
    def test_isolated(tpu_launch):
        assert [1] == tpu_launch(xr.world_size)

    @pytest_tpu.isolated
    def test_device_first(tpu_launch):
        torch.ones(1, device="xla").cpu()
        tpu_launch(xr.world_size)

    def test_late(request):
        assert [2, 2] == request.getfixturevalue("tpu_launch")(xr.world_size)

    @pytest_tpu.multi_process
    def test_on_an_ordinal(tpu_launch):
        tpu_launch(xr.world_size)
"""


ERRORS = """
    import os
    import signal
    import threading

    import pytest
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    class Several(Exception):
        def __init__(self, code, where):
            super().__init__(f"failed with {code} in {where}")
            self.code = code
            self.where = where

    class Unpicklable(Exception):
        def __init__(self):
            super().__init__("holds a lock")
            self.lock = threading.Lock()

    def raising(error, ordinal=None):
        def on_ordinal():
            if ordinal is None or ordinal == xr.global_ordinal():
                raise error
            xm.rendezvous("after")
        return on_ordinal

    def test_several(tpu_launch):
        with pytest.raises(Several, match="^failed with 7 in here$") as caught:
            tpu_launch(raising(Several(7, "here"), 1))
        assert (7, "here") == (caught.value.code, caught.value.where)

    def test_shown(tpu_launch):
        tpu_launch(raising(Several(7, "here"), 1))

    def test_local(tpu_launch):
        class Local(Exception):
            pass

        with pytest.raises(Local, match="^mine$"):
            tpu_launch(raising(Local("mine")))

    def test_made_on_the_ordinal(tpu_launch):
        def raise_local():
            class Local(Exception):
                pass
            raise Local("its own")

        with pytest.raises(Exception, match="^its own$") as caught:
            tpu_launch(raise_local)
        assert "Local" == caught.type.__name__

    def test_unpicklable(tpu_launch):
        tpu_launch(raising(Unpicklable(), 1))

    def test_assertion(tpu_launch):
        def compare():
            seen = [xr.global_ordinal() % 2, 7]
            assert [0, 7] == seen

        tpu_launch(compare)

    def test_exit_of_python(tpu_launch):
        with pytest.raises(SystemExit) as caught:
            tpu_launch(raising(SystemExit(3)))
        assert 3 == caught.value.code

    MAKERS = {
        "lock": threading.Lock,
        "generator": lambda: (n for n in [1]),
        "dict": lambda: {"key": [threading.Lock()]},
    }

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_unreturnable(tpu_launch, make):
        tpu_launch(make)

    @pytest.mark.parametrize("cores", [0, 4, -1, True, 2.5])
    def test_out_of_range(tpu_launch, cores):
        tpu_launch(xr.world_size, cores=cores)

    def test_killed(tpu_launch):
        def killed():
            if xr.global_ordinal() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            xm.rendezvous("after")

        tpu_launch(killed)

    def test_limit(tpu_launch):
        tpu_launch(threading.Event().wait, timeout=3)
"""


OUTCOMES = """
    import unittest

    import pytest
    import torch_xla.runtime as xr

    def test_skip(tpu_launch):
        tpu_launch(lambda: pytest.skip("not here"))

    def test_skip_of_unittest(tpu_launch):
        def skip():
            raise unittest.SkipTest("not here")
        tpu_launch(skip)

    def test_one_skips(tpu_launch):
        tpu_launch(lambda: xr.global_ordinal() or pytest.skip("not on this one"))

    def test_xfail(tpu_launch):
        tpu_launch(lambda: pytest.xfail("not yet"))

    def test_one_xfails(tpu_launch):
        tpu_launch(lambda: xr.global_ordinal() or pytest.xfail("not on this one"))

    def test_fail(tpu_launch):
        tpu_launch(lambda: pytest.fail("failed by hand", pytrace=False))

    def test_caught(tpu_launch):
        with pytest.raises(pytest.fail.Exception, match="by hand"):
            tpu_launch(lambda: pytest.fail("failed by hand"))
        with pytest.raises(pytest.skip.Exception):
            tpu_launch(lambda: pytest.skip("not here"))

    @pytest.mark.xfail(raises=ValueError, reason="known")
    def test_expected(tpu_launch):
        tpu_launch(int, "x")
"""


class TestResults:
    def test_results(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Results come in ordinal order, tensors as CPU tensors, objects of the caller's own classes as just that."""
        run_on_ordinals(RESULTS, cores=3).assert_outcomes(passed=9)

    def test_fixtures(self, run_on_ordinals: RunOnOrdinals) -> None:
        """It serves fixtures and tests, twice in one test, on the test's cores; where it can't launch it says so."""
        result = run_on_ordinals(FIXTURES, *SHOW_ALL)

        result.assert_outcomes(passed=5, skipped=1, failed=2)
        assert summary(result)["test_device_first"].startswith(
            "FAILED pytest_tpu.LaunchError: REFUSED: no ordinal can be forked, since the test has used the XLA device"
        )
        assert summary(result)["test_on_an_ordinal"].startswith(
            "FAILED AGREED: all 2 ordinals failed: pytest_tpu.LaunchError: REFUSED: tpu_launch was called on an ordinal"
        )

    def test_output(self, run_on_ordinals: RunOnOrdinals) -> None:
        """What ordinals write stands in the output of the test, line by line, with the ordinal in front."""
        result = run_on_ordinals(
            """
            import sys

            def test_it(tpu_launch):
                def write():
                    print("one")
                    print("two", end="", file=sys.stderr)
                tpu_launch(write)
                assert False
            """
        )

        result.stdout.fnmatch_lines(
            [
                "*Captured stdout call*",
                "[[]ordinal 0] one",
                "[[]ordinal 1] one",
                "*Captured stderr call*",
                "[[]ordinal 0] two",
                "[[]ordinal 1] two",
            ]
        )

    def test_no_host(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """Without a host the tests that use it are skipped with the reason, also those that ask for it late."""
        pytester.makepyfile(
            """
            def test_it(tpu_launch):
                pass

            def test_late(request):
                request.getfixturevalue("tpu_launch")
            """
        )
        result = pytester.runpytest_inprocess(*SHOW_ALL)

        words = summary(result)
        assert 2 == len(words)
        assert {"SKIPPED"} == {word.partition(" ")[0] for word in words.values()}
        assert all("needs a TPU host" in word and "--tpu-cores=8" in word for word in words.values())


class TestErrors:
    def test_errors(self, run_on_ordinals: RunOnOrdinals) -> None:
        """What an ordinal raises is raised in the test; what can't travel, and every other end, is a clear error."""
        result = run_on_ordinals(ERRORS, *SHOW_ALL, cores=3)
        words = summary(result)

        unreturnable = (
            "FAILED pytest_tpu.errors.ResultError: a result of type {} can't be returned from an ordinal:"
            " TypeError: cannot pickle '{}' object"
        )
        allowed = "is not allowed: give a whole number from 1"
        assert {
            "test_several": "PASSED",
            "test_shown": "FAILED test_it.Several: failed with 7 in here",
            "test_local": "PASSED",
            "test_made_on_the_ordinal": "PASSED",
            "test_unpicklable": "FAILED pytest_tpu.LaunchError: RAISED: ordinal 1: test_it.Unpicklable: holds a lock",
            "test_assertion": "FAILED assert [0, 7] == [1, 7]",
            "test_exit_of_python": "PASSED",
            "test_unreturnable[lock]": unreturnable.format("lock", "_thread.lock"),
            "test_unreturnable[generator]": unreturnable.format("generator", "generator"),
            "test_unreturnable[dict]": unreturnable.format("dict", "_thread.lock"),
            **{
                f"test_out_of_range[{cores}]": (
                    f"FAILED pytest_tpu.errors.BackendError: tpu_launch(cores={cores}) in"
                    f" test_it.py::test_out_of_range[{cores}] {allowed}"
                )
                for cores in ("0", "-1", "True", "2.5")
            },
            "test_out_of_range[4]": "SKIPPED Skipped: needs 4 cores and this run has 3; --tpu-cores=4 emulates them",
            "test_killed": ("FAILED pytest_tpu.LaunchError: LOST: ordinal 1: killed by SIGKILL (9), without a report"),
            "test_limit": "FAILED pytest_tpu.LaunchError: OVERDUE: all 3 ordinals not finished within 3 s",
        } == words

    def test_report(self, run_on_ordinals: RunOnOrdinals) -> None:
        """The report shows the line that launched and the ordinal's own traceback, and no line of the plugin."""
        result = run_on_ordinals(ERRORS, "-k", "test_shown or test_unpicklable or test_killed", cores=3)

        result.stdout.fnmatch_lines(
            [
                "on ordinal 1:",
                "Traceback (most recent call last):",
                '  File "*test_it.py", line *, in on_ordinal',
                "    raise error",
                "test_it.Several: failed with 7 in here",
                "*>*tpu_launch(raising(Several(7, *",
                "E *test_it.Several: failed with 7 in here",
            ]
        )
        result.stdout.fnmatch_lines(
            [
                "E *LaunchError: RAISED: ordinal 1: test_it.Unpicklable: holds a lock",
                "E *1 * failed *test_it.Unpicklable: holds a lock in test_it.py:* <- first",
                "E *on ordinal 1:",
                "E *Traceback (most recent call last):",
                "E *test_it.Unpicklable: holds a lock",
            ]
        )
        result.stdout.fnmatch_lines(["E *1 * none *killed by SIGKILL (9) *<- first"])
        result.stdout.no_fnmatch_line("*pytest_tpu/*")

    def test_outcomes(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Pytest's outcomes pass through as themselves where the ordinals agree; a skip of one alone is no skip."""
        result = run_on_ordinals(OUTCOMES, *SHOW_ALL)

        diverged = "FAILED pytest_tpu.LaunchError: DIVERGED:"
        assert {
            "test_skip": "SKIPPED Skipped: not here",
            "test_skip_of_unittest": "SKIPPED Skipped: not here",
            "test_one_skips": f"{diverged} ordinal 0 skipped (not on this one), ordinal 1 passed",
            "test_xfail": "XFAIL not yet",
            "test_one_xfails": f"{diverged} ordinal 0 called xfail (not on this one), ordinal 1 passed",
            "test_fail": "FAILED Failed: failed by hand",
            "test_caught": "PASSED",
            "test_expected": "XFAIL known",
        } == summary(result)
        # `pytrace=False` asks for the text alone.
        result.stdout.fnmatch_lines(["*_ test_fail _*", "failed by hand"], consecutive=True)

    def test_exit(self, run_on_ordinals: RunOnOrdinals) -> None:
        """pytest.exit on an ordinal ends the session with its return code."""
        result = run_on_ordinals(
            """
            import pytest

            def test_exit(tpu_launch):
                tpu_launch(lambda: pytest.exit("enough", returncode=7))

            def test_after():
                pass
            """
        )

        assert 7 == result.ret
        result.stdout.fnmatch_lines(["*Exit: enough*"])
        result.stdout.no_fnmatch_line("*passed*")
