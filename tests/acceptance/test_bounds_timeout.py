from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psutil

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    import pytest

    from tests.acceptance.conftest import RunOnOrdinals

STUCK = """
    import ctypes, os, signal, subprocess, threading, time
    from pathlib import Path
    import pytest

    pytestmark = pytest.mark.tpu_multi_process

    @pytest.fixture(autouse=True)
    def took(request):
        began = time.monotonic()
        yield
        print(f"{request.node.name} took {time.monotonic() - began:.2f}")

    def lock_twice(library):
        # Unlike sleep, it goes on after a signal.
        mutex = ctypes.create_string_buffer(64)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)

    def test_sleeps(tpu_world):
        if tpu_world.ordinal == 1:
            time.sleep(60)

    def test_rendezvous_on_one(tpu_world):
        if tpu_world.ordinal == 1:
            time.sleep(60)
        tpu_world.rendezvous("never complete")

    def test_spins(tpu_world):
        while True:
            pass

    def test_swallows_everything(tpu_world):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass

    @pytest.mark.xfail
    def test_turns_the_interrupt_into_an_error(tpu_world):
        try:
            time.sleep(60)
        except BaseException:
            raise ValueError("not the cause")

    def test_turns_the_interrupt_into_a_pass(tpu_world):
        try:
            time.sleep(60)
        except BaseException:
            pass

    def test_holds_the_gil(tpu_world):
        if tpu_world.ordinal == 1:
            lock_twice(ctypes.PyDLL(None))

    def test_native(tpu_world):
        lock_twice(ctypes.CDLL(None))

    def test_stopped(tpu_world):
        if tpu_world.ordinal == 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    def test_all_stopped(tpu_world):
        os.kill(os.getpid(), signal.SIGSTOP)

    def test_with_a_process_of_its_own(tpu_world):
        process = subprocess.Popen(["sleep", "60"])
        Path(f"child{tpu_world.ordinal}").write_text(str(process.pid))
        process.wait()

    def test_passes_after_all_that(tpu_world):
        tpu_world.rendezvous("complete")
"""


def times(result: pytest.RunResult) -> dict[str, float]:
    """What each test took, as it printed it."""
    return {name: float(took) for name, took in re.findall(r"(test_\w+) took ([\d.]+)", result.stdout.str())}


def test_ends_everything(run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
    """The time limit ends a world whatever its ordinals do, names those that were late, and the session goes on."""
    # Long enough for ordinals to be in their bodies by then on a loaded machine too.
    result = run_on_ordinals(STUCK, "--tpu-timeout=3", "--tpu-grace=0.3", "-s", *SHOW_ALL)
    one = "FAILED OVERDUE: ordinal 1 not finished within 3 s"
    both = "FAILED OVERDUE: all 2 ordinals not finished within 3 s"

    lines = summary(result)

    assert {
        "test_sleeps": f"{one}, in test_it.py:21",
        "test_turns_the_interrupt_into_a_pass": both,
        "test_swallows_everything": both,
        "test_turns_the_interrupt_into_an_error": f"{both}, in test_it.py:45",
        "test_holds_the_gil": one,
        "test_native": both,
        "test_stopped": one,
        "test_all_stopped": both,
        "test_with_a_process_of_its_own": f"{both}, in test_it.py:70",
        "test_passes_after_all_that": "PASSED",
    } == {name: line for name, line in lines.items() if name not in ("test_spins", "test_rendezvous_on_one")}
    assert lines["test_spins"].startswith(both)
    # The limit passed while one waited for the other.
    assert re.fullmatch(
        r"FAILED STALLED: rendezvous '.+' #1 entered by ordinal 0, never by 1, "
        r"[\d.]+ s without progress \(time limit 3 s\)",
        lines["test_rendezvous_on_one"],
    )
    took = times(result)
    assert 12 == len(took)
    # The limit, three signals, and what a loaded machine needs.
    assert 8 > max(took.values())
    for ordinal in range(2):
        child = int((pytester.path / f"child{ordinal}").read_text())
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_whose_limit(run_on_ordinals: RunOnOrdinals) -> None:
    """A marker has the word over the option, and 0 means none."""
    result = run_on_ordinals(
        """
        import time
        import pytest
        import pytest_tpu

        def takes_longer_than_the_option():
            end = time.monotonic() + 0.7
            while time.monotonic() < end:
                time.sleep(0.01)

        @pytest_tpu.multi_process
        def test_option():
            takes_longer_than_the_option()

        @pytest_tpu.multi_process(timeout=60)
        def test_longer():
            takes_longer_than_the_option()

        @pytest_tpu.multi_process(timeout=0)
        def test_none():
            takes_longer_than_the_option()

        @pytest_tpu.multi_process(timeout=0.3)
        def test_shorter():
            takes_longer_than_the_option()

        @pytest_tpu.isolated
        def test_isolated():
            takes_longer_than_the_option()

        @pytest_tpu.isolated(timeout=0)
        def test_isolated_without():
            takes_longer_than_the_option()
        """,
        "--tpu-timeout=0.5",
        "--tpu-grace=0.3",
        *SHOW_ALL,
    )
    lines = summary(result)

    assert {"test_longer": "PASSED", "test_none": "PASSED", "test_isolated_without": "PASSED"} == {
        name: line for name, line in lines.items() if line == "PASSED"
    }
    # On a loaded machine a limit as short as these may pass before an ordinal is in its body.
    late = r"FAILED OVERDUE: {} not (started|finished) within {} s\b"
    assert re.match(late.format("all 2 ordinals", "0.50"), lines["test_option"])
    assert re.match(late.format("all 2 ordinals", "0.30"), lines["test_shorter"])
    assert re.match(late.format("isolated process", "0.50"), lines["test_isolated"])
