from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_tpu import callables
from pytest_tpu.backend.cpu import CpuBackend
from pytest_tpu.errors import MismatchError, ResultError
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.verdict import LaunchError, VerdictKind

pytestmark = pytest.mark.process

Run = Callable[..., Any]


@pytest.fixture
def backend(torch_loaded: bool) -> Iterator[CpuBackend]:
    """An emulated host of two cores."""
    backend = CpuBackend(2)
    with backend.activate():
        yield backend


@pytest.fixture
def run(backend: CpuBackend) -> Run:
    """Run a function on both ordinals."""

    def on_both(fn: Callable[[], Any], timeout: float = 60.0, grace: float = 0.5) -> list[Any]:
        return callables.run(fn, cores=2, backend=backend, limits=Limits(timeout=timeout, grace=grace))

    return on_both


def ordinal() -> int:
    """The ordinal of the process that calls it."""
    import torch_xla.runtime as xr

    return int(xr.global_ordinal())


class UnpacksBadly:
    """What pickles and does not unpickle."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return int, ("x",)


class TestRun:
    def test_results(self, run: Run) -> None:
        """The values come in ordinal order."""
        assert [(0, "a"), (1, "a")] == run(lambda: (ordinal(), "a"))

    def test_cause(self, run: Run) -> None:
        """What an ordinal raised has that ordinal's traceback as its cause, from the first line of the function on."""

        def fail() -> None:
            if ordinal() == 1:
                raise KeyError("missing")

        with pytest.raises(KeyError, match="missing") as caught:
            run(fail)

        cause = str(caught.value.__cause__)
        assert re.match(r"\non ordinal 1:\nTraceback .*\n  File .*test_callables\.py\", line \d+, in fail\n", cause)

    def test_unpicklable(self, run: Run) -> None:
        """An exception that can't travel becomes a LaunchError with its type, its text and its traceback."""

        def fail() -> None:
            error = ValueError("holds a lock")
            error.lock = threading.Lock()  # type: ignore[attr-defined]
            raise error

        with pytest.raises(LaunchError, match="ValueError: holds a lock") as caught:
            run(fail)

        assert VerdictKind.AGREED is caught.value.verdict.kind
        assert "in fail\n    raise error\nValueError: holds a lock" in str(caught.value)

    def test_unpacks_badly(self, run: Run) -> None:
        """A result whose own way of unpickling fails is an error that names the ordinal."""
        with pytest.raises(ResultError, match=r"what ordinal 0 returned can't be unpickled: ValueError: invalid"):
            run(UnpacksBadly)

    def test_mismatch(self, run: Run) -> None:
        """Calls that don't match are raised as what they are."""

        def differ() -> None:
            import torch
            import torch_xla.core.xla_model as xm

            dtype = torch.float32 if ordinal() == 0 else torch.int32
            xm.all_reduce("sum", torch.ones(1, dtype=dtype, device="xla"))

        with pytest.raises(MismatchError, match=r"(?s)float32.*int32"):
            run(differ)

    def test_interrupt(self, run: Run) -> None:
        """An ordinal that is interrupted by its user interrupts the caller."""

        def interrupt() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(interrupt)

    def test_limit(self, run: Run) -> None:
        """The time limit ends a launch that never would, in bounded time, and the verdict says so."""
        began = time.monotonic()
        with pytest.raises(LaunchError) as caught:
            run(threading.Event().wait, timeout=0.5)

        assert VerdictKind.OVERDUE is caught.value.verdict.kind
        assert 10 > time.monotonic() - began

    def test_output(self, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
        """Each line that an ordinal writes has the ordinal in front, one without an end too."""

        def write() -> None:
            sys.stdout.write(f"one {ordinal()}\ntwo")
            sys.stderr.write("three\n")

        run(write)
        out, err = capsys.readouterr()

        assert ["[ordinal 0] one 0", "[ordinal 0] two", "[ordinal 1] one 1", "[ordinal 1] two"] == sorted(
            out.splitlines()
        )
        assert ["[ordinal 0] three", "[ordinal 1] three"] == sorted(err.splitlines())


class TestLauncher:
    def test_by_ordinal(self, backend: CpuBackend) -> None:
        """A program's own launch gets the results by ordinal."""
        launcher = callables.Launcher(backend=backend, cores=2, limits=Limits())

        assert {0: 0, 1: 1} == launcher(ordinal, "spawn")

    def test_refused(self, backend: CpuBackend) -> None:
        """A launch that is not possible now is refused before anything is started."""

        def refuse() -> None:
            raise LaunchError.refused("not now")

        launcher = callables.Launcher(backend=backend, cores=2, limits=Limits(), refuse=refuse)

        with pytest.raises(LaunchError, match=r"^REFUSED: not now$"):
            launcher(lambda: pytest.fail("started"), "spawn")
