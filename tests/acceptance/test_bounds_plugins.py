from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals


def test_reruns(run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
    """With pytest-rerunfailures a test that failed on one ordinal runs again, in a world of its own."""
    pytest.importorskip("pytest_rerunfailures")
    result = run_on_ordinals(
        """
        import os, signal
        from pathlib import Path
        import pytest

        pytestmark = pytest.mark.tpu_multi_process

        @pytest.fixture
        def name(request):
            return request.node.name

        def tries(name, world):
            file = Path(f"tries_{name}_{world.ordinal}")
            with file.open("a") as opened:
                opened.write("x")
            return len(file.read_text())

        def test_second_time(name, tpu_world):
            assert tries(name, tpu_world) == 2 or tpu_world.ordinal == 0

        def test_killed_at_first(name, tpu_world):
            if tries(name, tpu_world) == 1 and tpu_world.ordinal == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        def test_never(name, tpu_world):
            tries(name, tpu_world)
            assert tpu_world.ordinal != 1

        @pytest.mark.flaky(reruns=1)
        def test_never_by_mark(tpu_world):
            pytest.skip("here") if tpu_world.ordinal else None

        def test_passes_at_once(tpu_world):
            tpu_world.rendezvous("complete")
        """,
        "--reruns=2",
        *SHOW_ALL,
    )
    failed = "RAISED: ordinal 1: assert 1 != 1"
    diverged = "DIVERGED: ordinal 0 passed, ordinal 1 skipped (here)"

    assert {
        "test_second_time": "PASSED",
        "test_killed_at_first": "PASSED",
        "test_never": f"FAILED {failed}",
        "test_never_by_mark": f"FAILED {diverged}",
        "test_passes_at_once": "PASSED",
    } == summary(result)
    assert 5 == result.parseoutcomes()["rerun"]
    assert "xxx" == (pytester.path / "tries_test_never_1").read_text()


TIMERS = """
    import signal, threading
    import pytest

    pytestmark = pytest.mark.tpu_multi_process

    def test_no_timer(tpu_world):
        assert (0.0, 0.0) == signal.getitimer(signal.ITIMER_REAL)
        assert ["MainThread"] == [thread.name for thread in threading.enumerate()]
"""
SLEEPS = """
    import os, time
    from pathlib import Path
    import pytest
    import torch_xla

    pytestmark = pytest.mark.tpu_multi_process

    def test_sleeps(tpu_world):
        Path(f"pid{tpu_world.ordinal}").write_text(str(os.getpid()))
        time.sleep(60)

    def test_passes(tpu_world):
        tpu_world.rendezvous("complete")
"""


@pytest.mark.parametrize("only", ["false", "true"], ids=["all of the test", "func_only"])
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_timeout_arms_no_ordinal(run_on_ordinals: RunOnOrdinals, method: str, only: str) -> None:
    """The timer of pytest-timeout runs in the controller alone."""
    options = ["--timeout=60", f"--timeout-method={method}", "-o", f"timeout_func_only={only}"]

    assert {"test_no_timer": "PASSED"} == summary(run_on_ordinals(TIMERS, *options, *SHOW_ALL))


@pytest.mark.parametrize("only", ["false", "true"], ids=["all of the test", "func_only"])
def test_timeout_by_signal(run_on_ordinals: RunOnOrdinals, only: str) -> None:
    """When the timer fires in the controller the test fails with its words, the world ends, and the session goes on."""
    result = run_on_ordinals(SLEEPS, "--timeout=1", "-o", f"timeout_func_only={only}", "--tpu-grace=0.3", *SHOW_ALL)

    assert {"test_sleeps": "FAILED Failed: Timeout (>1.0s) from pytest-timeout.", "test_passes": "PASSED"} == summary(
        result
    )


def test_timeout_by_thread(pytester: pytest.Pytester) -> None:
    """When pytest-timeout ends the process itself, no ordinal outlives it."""
    pytester.makepyfile(SLEEPS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--tpu-cores=2",
        "--timeout=2",
        "--timeout-method=thread",
    ]
    done = subprocess.run(command, cwd=pytester.path, capture_output=True, timeout=60, check=False)
    pids = [int((pytester.path / f"pid{ordinal}").read_text()) for ordinal in range(2)]

    assert 1 == done.returncode
    assert b"Timeout" in done.stderr + done.stdout
    deadline = time.monotonic() + 2
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process runs still; one that nobody has reaped does not."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


OF_BOTH_KINDS = """
    import pytest
    import pytest_tpu

    def test_passes(tpu_world):
        assert 2 == tpu_world.size

    @pytest_tpu.isolated
    def test_isolated():
        pass

    def test_skips(tpu_world):
        pytest.skip("not here")

    @pytest_tpu.isolated
    def test_isolated_skips():
        pytest.skip("not here")

    @pytest.fixture
    def skipping():
        pytest.skip("not here")

    @pytest_tpu.isolated
    def test_isolated_skips_in_a_fixture(skipping):
        pass

    def test_fails(tpu_world):
        assert not tpu_world.ordinal
"""


def test_listed_twice(run_on_ordinals: RunOnOrdinals) -> None:
    """A test that a plugin put on the list twice runs twice, each time in a world of its own."""
    result = run_on_ordinals(
        OF_BOTH_KINDS,
        "-k",
        "test_passes or test_isolated",
        *SHOW_ALL,
        conftest="def pytest_collection_modifyitems(items): items *= 2",
    )

    result.assert_outcomes(passed=4, skipped=4)


def test_skips_interest_no_debugger(run_on_ordinals: RunOnOrdinals) -> None:
    """A skip is none of the exceptions at which --pdb opens a prompt, and a failure is one."""
    conftest = """
        def pytest_exception_interact(node):
            print("a prompt for", node.name)
    """
    result = run_on_ordinals(OF_BOTH_KINDS, "-s", *SHOW_ALL, conftest=conftest)

    result.assert_outcomes(passed=2, skipped=3, failed=1)
    prompts = [line.partition("a prompt for ")[2] for line in result.outlines if "a prompt for" in line]
    assert ["test_fails"] == prompts
    assert {"SKIPPED Skipped: not here"} == {line for line in summary(result).values() if line.startswith("SKIPPED")}


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan"])
@pytest.mark.parametrize("isolate", [(), ("--tpu-isolate",)], ids=["marked", "all"])
def test_setup_only(run_on_ordinals: RunOnOrdinals, option: str, isolate: tuple[str, ...]) -> None:
    """Where pytest runs no bodies, none of those of marked or isolated tests run."""
    result = run_on_ordinals(
        """
        import pytest
        import pytest_tpu

        @pytest.fixture
        def number():
            return 1

        @pytest_tpu.isolated
        def test_isolated(number):
            raise AssertionError

        def test_plain(number):
            raise AssertionError

        def test_on_ordinals(tpu_world, number):
            raise AssertionError
        """,
        option,
        *isolate,
    )

    result.assert_outcomes()
    assert pytest.ExitCode.OK == result.ret
    assert 3 == result.stdout.str().count("SETUP    F number")
