from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals


def test_process_ends(run_on_ordinals: RunOnOrdinals) -> None:
    """A pass needs the word of every ordinal and a clean end of its process; the headline says what is missing."""
    result = run_on_ordinals(
        """
        import atexit, multiprocessing, os, signal, sys, threading
        import pytest

        pytestmark = pytest.mark.tpu_multi_process(timeout=60)

        def test_leaves(tpu_world):
            if tpu_world.ordinal == 1:
                os._exit(0)

        def test_leaves_from_all(tpu_world):
            os._exit(0)

        def test_sys_exit(tpu_world):
            if tpu_world.ordinal == 1:
                sys.exit(0)

        class LeavesWhileItEnds(threading.Thread):
            # Not a daemon, so that the process waits for it after the body: its way to end is the process's own.
            def run(self):
                threading.main_thread().join()
                os._exit(3)

        def test_leaves_after_the_body(tpu_world):
            if tpu_world.ordinal == 1:
                LeavesWhileItEnds().start()

        def test_segmentation_fault(tpu_world):
            if tpu_world.ordinal == 1:
                os.kill(os.getpid(), signal.SIGSEGV)

        def test_killed_while_others_wait(tpu_world):
            if tpu_world.ordinal == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            tpu_world.rendezvous("never complete")

        def test_abort(tpu_world):
            if tpu_world.ordinal == 1:
                os.abort()
            tpu_world.rendezvous("never complete")

        def test_signal_without_a_name(tpu_world):
            if tpu_world.ordinal == 1:
                os.kill(os.getpid(), signal.SIGRTMIN + 9)
            tpu_world.rendezvous("never complete")

        def test_passes_after_all_that(tpu_world):
            tpu_world.rendezvous("complete")
        """,
        *SHOW_ALL,
    )

    assert {
        "test_leaves": "FAILED LOST: ordinal 1: exit code 0, without a report",
        "test_sys_exit": "FAILED RAISED: ordinal 1: SystemExit: 0",
        "test_leaves_after_the_body": "FAILED LOST: ordinal 1: exit code 3, after it had reported passed",
        "test_segmentation_fault": "FAILED LOST: ordinal 1: killed by SIGSEGV (11), without a report",
        "test_killed_while_others_wait": "FAILED LOST: ordinal 1: killed by SIGKILL (9), without a report",
        "test_abort": "FAILED LOST: ordinal 1: killed by SIGABRT (6), without a report",
        "test_signal_without_a_name": "FAILED LOST: ordinal 1: killed by signal 43, without a report",
        "test_passes_after_all_that": "PASSED",
    } == {name: line for name, line in summary(result).items() if name != "test_leaves_from_all"}
    assert summary(result)["test_leaves_from_all"].endswith(": exit code 0, without a report")


def test_crash_shows_python_stack(run_on_ordinals: RunOnOrdinals) -> None:
    """Where a crash left Python is in the standard error of the ordinal that crashed, and of no other."""
    result = run_on_ordinals(
        """
        import ctypes
        import pytest

        def reads_nowhere():
            ctypes.string_at(0)

        def test_crash(tpu_world):
            if tpu_world.ordinal == 1:
                reads_nowhere()
        """
    )

    result.stdout.fnmatch_lines(
        [
            "LOST: ordinal 1: killed by SIGSEGV (11), without a report",
            "*Captured stderr (ordinal 1)*",
            "Fatal Python error: Segmentation fault",
            '  File "*test_it.py", line 5 in reads_nowhere',
        ]
    )
    result.stdout.no_fnmatch_line("*Captured stderr (ordinal 0)*")


def test_lingering(run_on_ordinals: RunOnOrdinals) -> None:
    """A process that does not end after its body fails the test in bounded time, and a slow one that ends does not."""
    result = run_on_ordinals(
        """
        import multiprocessing, threading, time
        import pytest

        pytestmark = pytest.mark.tpu_multi_process

        def test_thread(tpu_world):
            if tpu_world.ordinal == 1:
                threading.Thread(target=threading.Event().wait, name="loader").start()

        def test_feeder(tpu_world):
            # Nobody reads, and a pipe holds less than that: the feeder thread never finishes.
            multiprocessing.Queue().put(bytes(10_000_000))

        def compute():
            threading.main_thread().join()
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass

        def test_slow_end(tpu_world):
            if tpu_world.ordinal == 1:
                threading.Thread(target=compute).start()

        def test_daemon_thread(tpu_world):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        """,
        "--tpu-grace=0.3",
        *SHOW_ALL,
    )
    rest = "did not end after the body (live threads:"

    assert {
        "test_thread": f"FAILED LINGERED: ordinal 1 {rest} 'loader')",
        "test_feeder": f"FAILED LINGERED: ordinals 0-1 {rest} 'QueueFeederThread')",
        "test_slow_end": "PASSED",
        "test_daemon_thread": "PASSED",
    } == summary(result)
    assert 20 > result.duration


def test_first_failure_while_others_wait(run_on_ordinals: RunOnOrdinals) -> None:
    """When an ordinal fails, those that wait for it are stopped at once, and the report is about the cause."""
    result = run_on_ordinals(
        """
        import time
        import pytest
        import torch
        import torch_xla.core.xla_model as xm

        pytestmark = pytest.mark.tpu_multi_process

        @pytest.fixture(autouse=True)
        def took(request):
            began = time.monotonic()
            yield
            print(f"{request.node.name} took {time.monotonic() - began:.2f}")

        def test_rendezvous(tpu_world):
            if tpu_world.ordinal == 1:
                raise ValueError("cause")
            tpu_world.rendezvous("never complete")

        def test_collective(tpu_world):
            if tpu_world.ordinal == 1:
                raise ValueError("cause")
            xm.all_reduce("sum", torch.ones(2, device=tpu_world.device)).cpu()

        def test_collective_after_some(tpu_world):
            for step in range(3):
                xm.all_reduce("sum", torch.ones(2, device=tpu_world.device)).cpu()
                assert (tpu_world.ordinal, step) != (1, 1), "cause"
        """,
        "--tpu-grace=20",
        "-s",
        *SHOW_ALL,
        cores=3,
    )
    took = [float(line.rpartition(" took ")[2]) for line in result.outlines if " took " in line]

    assert {
        "test_rendezvous": "FAILED RAISED: ordinal 1: ValueError: cause",
        "test_collective": "FAILED RAISED: ordinal 1: ValueError: cause",
        "test_collective_after_some": "FAILED RAISED: ordinal 1: AssertionError: cause",
    } == summary(result)
    assert 3 == len(took)
    # Well below the grace: nothing was waited for.
    assert 10 > max(took)
    result.stdout.fnmatch_lines(["ordinal * outcome *", "0 * stopped *", "1 * failed *<- first", "2 * stopped *"])


class TestExit:
    def test_returncode(self, run_on_ordinals: RunOnOrdinals) -> None:
        """`pytest.exit` on one ordinal ends the session, with its reason and return code."""
        result = run_on_ordinals(
            """
            import pytest

            def test_exits(tpu_world):
                if tpu_world.ordinal == 1:
                    pytest.exit("enough", returncode=7)
                tpu_world.rendezvous("never complete")

            def test_is_not_reached():
                raise AssertionError
            """
        )

        assert 7 == result.ret
        result.stdout.fnmatch_lines(["!* _pytest.outcomes.Exit: enough !*"])
        result.assert_outcomes()

    def test_without_returncode(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Without a return code it counts as interrupted."""
        result = run_on_ordinals(
            """
            import pytest

            def test_exits(tpu_world):
                pytest.exit("enough")
            """
        )

        assert pytest.ExitCode.INTERRUPTED == result.ret

    def test_keyboard_interrupt(self, pytester: pytest.Pytester) -> None:
        """An interrupt that the body raises itself ends the session as Ctrl-C does."""
        pytester.makepyfile(
            """
            def test_interrupts(tpu_world):
                if tpu_world.ordinal == 1:
                    raise KeyboardInterrupt
                tpu_world.rendezvous("never complete")

            def test_is_not_reached():
                raise AssertionError
            """
        )
        result = pytester.runpytest_inprocess("--tpu-cores=2", no_reraise_ctrlc=True)

        assert pytest.ExitCode.INTERRUPTED == result.ret
        result.stdout.fnmatch_lines(["!* KeyboardInterrupt: * in the test !*"])
        result.assert_outcomes()

    @pytest.mark.parametrize("end", ['pytest.exit("enough")', "raise KeyboardInterrupt"])
    def test_finishes_fixtures(self, pytester: pytest.Pytester, end: str) -> None:
        """What a fixture set up on an ordinal, or in an isolated process, is finished there before the session ends."""
        pytester.makepyfile(
            test_it=f"""
            from pathlib import Path
            import pytest
            import pytest_tpu

            @pytest.fixture
            def helper(tpu_world):
                yield
                Path(f"finished {{tpu_world.ordinal}}").touch()

            def test_on_ordinals(helper, tpu_world):
                tpu_world.rendezvous("both are set up")
                if tpu_world.ordinal == 1:
                    {end}
                tpu_world.rendezvous("never complete")

            @pytest.fixture
            def plain():
                yield
                Path("finished").touch()
                raise ValueError("hides nothing")

            @pytest_tpu.isolated
            def test_isolated(plain):
                {end}
            """
        )
        for name in ("test_on_ordinals", "test_isolated"):
            result = pytester.runpytest_inprocess("--tpu-cores=2", f"test_it.py::{name}", no_reraise_ctrlc=True)

            assert pytest.ExitCode.INTERRUPTED == result.ret
        assert ["finished", "finished 0", "finished 1"] == sorted(path.name for path in pytester.path.glob("finished*"))
