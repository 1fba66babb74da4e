from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals


def test_ordinals(run_on_ordinals: RunOnOrdinals) -> None:
    """An xfail mark excuses neither collectives that differ, nor what a process does after it raised as expected."""
    result = run_on_ordinals(
        """
        import os, threading
        import pytest
        import torch
        import torch_xla.core.xla_model as xm

        pytestmark = [pytest.mark.tpu_multi_process, pytest.mark.xfail]

        def test_raises():
            assert False

        def test_mismatches(tpu_world):
            ones = torch.ones(2, device=tpu_world.device)
            if tpu_world.ordinal:
                xm.all_gather(ones)
            else:
                xm.all_reduce(xm.REDUCE_SUM, ones)

        def leave():
            threading.main_thread().join()
            os._exit(3)

        def test_leaves_badly(tpu_world):
            if tpu_world.ordinal:
                threading.Thread(target=leave).start()
            assert False

        def test_lingers(tpu_world):
            if tpu_world.ordinal:
                threading.Thread(target=threading.Event().wait, name="loader").start()
            assert False
        """,
        "--tpu-grace=0.3",
        *SHOW_ALL,
    )
    found = summary(result)

    assert "XFAIL" == found["test_raises"]
    assert found["test_mismatches"].startswith("FAILED MISMATCHED: ")
    assert "FAILED LOST: ordinal 1: exit code 3, after it had reported xfailed" == found["test_leaves_badly"]
    assert found["test_lingers"].startswith("FAILED LINGERED: ordinal 1 did not end after the body")


def test_machine(run_on_ordinals: RunOnOrdinals) -> None:
    """A launch for which the machine has no process left fails by name, and no xfail mark excuses it."""
    conftest = """
        import errno, os
        import pytest

        fork = os.fork

        def fails():
            raise OSError(errno.EAGAIN, "no more processes")

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol():
            os.fork = fails
            try:
                return (yield)
            finally:
                os.fork = fork
    """
    result = run_on_ordinals(
        """
        import pytest
        import pytest_tpu

        pytestmark = pytest.mark.xfail

        @pytest_tpu.multi_process
        def test_on_ordinals():
            assert False

        @pytest_tpu.isolated
        def test_isolated():
            assert False

        def test_launch(tpu_launch):
            tpu_launch(print)
        """,
        *SHOW_ALL,
        conftest=conftest,
    )
    refused = f"REFUSED: the processes can't be started: [Errno {errno.EAGAIN}] no more processes"

    assert {
        "test_on_ordinals": f"FAILED {refused}",
        "test_isolated": f"ERROR {refused}",
        "test_launch": f"FAILED pytest_tpu.LaunchError: {refused}",
    } == summary(result)


@pytest.mark.parametrize("options", [(), ("--tpu-isolate",)], ids=["here", "isolated"])
def test_launches(run_on_ordinals: RunOnOrdinals, options: tuple[str, ...]) -> None:
    """What a test launches itself is excused by an xfail mark if a body raised, and by none if the world fell apart."""
    result = run_on_ordinals(
        """
        import os, signal
        import pytest
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.runtime as xr

        pytestmark = pytest.mark.xfail

        def raises(*_):
            raise KeyError("known")

        def dies(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        def mismatches(*_):
            ones = torch.ones(2, device=torch_xla.device())
            if xr.global_ordinal():
                xm.all_gather(ones)
            else:
                xm.all_reduce(xm.REDUCE_SUM, ones)

        def test_raises(tpu_launch):
            tpu_launch(raises)

        def test_dies(tpu_launch):
            tpu_launch(dies)

        def test_dies_as_programs_do():
            torch_xla.launch(dies)

        def test_mismatches(tpu_launch):
            tpu_launch(mismatches)

        @pytest.fixture
        def model(tpu_launch):
            tpu_launch(dies)

        def test_dies_in_a_fixture(model):
            pass
        """,
        *options,
        *SHOW_ALL,
    )
    words = {name: line.partition(":")[0] for name, line in summary(result).items()}

    assert words.pop("test_raises").startswith("XFAIL")
    assert {
        "test_dies": "FAILED pytest_tpu.LaunchError",
        "test_dies_as_programs_do": "FAILED pytest_tpu.LaunchError",
        "test_mismatches": "FAILED pytest_tpu.errors.MismatchError",
        "test_dies_in_a_fixture": "ERROR pytest_tpu.LaunchError",
    } == words
