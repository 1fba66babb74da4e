"""Collectives that only some ordinals reach, and those that all reach in the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

FAULTY = """
import time

import pytest
import pytest_tpu


@pytest_tpu.multi_process
def test_returned(tpu_world):
    if tpu_world.ordinal == 1:
        return
    tpu_world.rendezvous("never complete")


@pytest.mark.xfail(reason="excuses no stall")
@pytest_tpu.multi_process
def test_skipped(tpu_world):
    if tpu_world.ordinal == 1:
        pytest.skip("no shard")
    tpu_world.rendezvous("never complete")


@pytest_tpu.multi_process(stall_timeout=0.5)
def test_idle(tpu_world):
    if tpu_world.ordinal == 1:
        time.sleep(600)
    tpu_world.rendezvous("never complete")


@pytest_tpu.multi_process(timeout=2)
def test_at_the_limit(tpu_world):
    if tpu_world.ordinal == 1:
        time.sleep(600)
    tpu_world.rendezvous("never complete")
"""

HONEST = """
import threading
import time

import pytest_tpu


@pytest_tpu.multi_process(stall_timeout=0.5)
def test_computes_longer_than_the_others_may_wait(tpu_world):
    if tpu_world.ordinal == 1:
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            pass
    tpu_world.rendezvous("met")


@pytest_tpu.multi_process
def test_a_thread_comes_after_the_body(tpu_world):
    if tpu_world.ordinal == 1:
        came = threading.Event()

        def come_later():
            came.wait(1)
            tpu_world.rendezvous("met")

        threading.Thread(target=come_later).start()
        return
    tpu_world.rendezvous("met")


@pytest_tpu.multi_process
def test_leaves_after_the_last_meeting(tpu_world):
    for step in range(20):
        tpu_world.rendezvous(f"step {step}")
"""


def test_stalls_are_named(pytester: pytest.Pytester) -> None:
    """A collective that can't be completed ends the test long before the limit, and says who never came and why."""
    pytester.makepyfile(FAULTY)

    result = pytester.runpytest_inprocess("--tpu-cores=3", "-rf", "-vv")

    result.assert_outcomes(failed=4)
    headlines = dict(re.findall(r"^FAILED \S+::(\S+) - (STALLED: .*)", result.stdout.str(), re.MULTILINE))
    entered = r"STALLED: rendezvous 'never complete' #1 entered by ordinals 0, 2, never by 1, "
    assert re.match(rf"{entered}which returned [\d.]+ s ago", headlines["test_returned"])
    assert re.match(rf"{entered}which was skipped \(no shard\) [\d.]+ s ago", headlines["test_skipped"])
    assert re.match(rf"{entered}[\d.]+ s without progress \(stall timeout 0.50 s\)", headlines["test_idle"])
    assert re.match(rf"{entered}[\d.]+ s without progress \(time limit 2 s\)", headlines["test_at_the_limit"])


def test_tags_are_compared(pytester: pytest.Pytester) -> None:
    """Ordinals that meet at different tags fail there, with both tags and lines, and not where it shows later."""
    pytester.makepyfile(
        test_tags="""
        import pytest_tpu
        from torch_xla.core.xla_model import rendezvous


        @pytest_tpu.multi_process
        def test_skips_one(tpu_world):
            if tpu_world.ordinal != 1:
                rendezvous("best")
            rendezvous("end", b"payload" * tpu_world.ordinal)


        @pytest_tpu.multi_process
        def test_payloads(tpu_world):
            assert [b"", b"x", b"xx"] == rendezvous("end", b"x" * tpu_world.ordinal)
        """
    )

    result = pytester.runpytest_inprocess("--tpu-cores=3", "-rf", "-vv")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "0 * mismatched * in test_tags.py:8*",
            "1 * mismatched * in test_tags.py:9*",
            "FAILED * - MISMATCHED: ordinals 0, 2 called rendezvous 'best'; ordinal 1 called rendezvous 'end'",
        ]
    )


def test_a_caught_mismatch_is_no_pass(pytester: pytest.Pytester) -> None:
    """A body that catches the error of a collective that did not match fails all the same, and no mark excuses it."""
    pytester.makepyfile(
        """
        import pytest
        import pytest_tpu
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm


        def reduce():
            try:
                ordinal = torch_xla.runtime.global_ordinal()
                xm.all_reduce(xm.REDUCE_SUM, torch.ones(1 + ordinal, device=torch_xla.device()))
            except Exception:
                pass


        @pytest.mark.xfail
        @pytest_tpu.multi_process
        def test_body():
            reduce()


        def test_launched(tpu_launch):
            tpu_launch(reduce)
        """
    )

    result = pytester.runpytest_inprocess("--tpu-cores=2", "-rf", "-vv")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["FAILED *::test_body - MISMATCHED: *float32?1?*float32?2?*", "FAILED *::test_launched - *MISMATCHED: *"]
    )


def test_honest_programs_pass(pytester: pytest.Pytester) -> None:
    """Nobody is accused who computes, comes from a thread after its body, or leaves when all is done."""
    pytester.makepyfile(HONEST)

    result = pytester.runpytest_inprocess("--tpu-cores=3")

    result.assert_outcomes(passed=3)


def test_a_stall_in_a_launch_of_an_isolated_test(pytester: pytest.Pytester) -> None:
    """A launch inside an isolated test ends before the limit of that test, so that its own verdict is told."""
    pytester.makepyfile(
        """
        import time

        import pytest_tpu


        @pytest_tpu.isolated(timeout=4)
        def test_launches():
            import torch_xla
            import torch_xla.core.xla_model as xm

            def train(index):
                if index == 1:
                    time.sleep(600)
                xm.rendezvous("never complete")

            torch_xla.launch(train)
        """
    )

    result = pytester.runpytest_inprocess("--tpu-cores=3")

    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"E .*STALLED: rendezvous 'never complete' #1 entered by ordinals 0, 2, never by 1, .* without progress",
            r"E +1 .*in test_\w+\.py:13",
        ]
    )
