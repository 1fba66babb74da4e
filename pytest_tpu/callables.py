"""Runs a callable on the ordinals of a fresh world: for `tpu_launch`, and for programs that launch by themselves."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_tpu.backend import Backend
from pytest_tpu.diagnose.table import table
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.messages import Exited, Launches
from pytest_tpu.model.place import Place
from pytest_tpu.model.verdict import LaunchError, VerdictKind
from pytest_tpu.ordinal import call
from pytest_tpu.ordinal.pickling import Shared
from pytest_tpu.process.output import OutputFiles
from pytest_tpu.supervise import Ended, Launch, supervise


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """The isolated test that this process is.

    Args:
        deadline: when its time is over, monotonic seconds; None if it has no limit.
        send: tells the controller.
    """

    deadline: float | None
    send: Callable[[Any], None]


_outer: Outer | None = None


def stay_within(outer: Outer) -> None:
    """Have all launches of this process end with the time of the test that it is."""
    global _outer  # noqa: PLW0603 - the process is one test
    _outer = outer


def run(fn: Callable[[], Any], *, cores: int, backend: Backend, limits: Limits) -> list[Any]:
    """Call `fn` on `cores` ordinals and bring back what they returned, in ordinal order.

    Args:
        fn: called without arguments; reaches the ordinals by fork, so that it need not be picklable.
        cores: the world size.
        backend: of this process; loaded here.
        limits: of the launch.

    Returns:
        One value for each ordinal; XLA tensors as CPU tensors.

    Raises:
        Exception: what an ordinal raised, with its traceback as the cause.
        LaunchError: any other end that is not a return on every ordinal.
    """
    # Whoever reads the report wants the line that launched, not the lines of ours below it.
    __tracebackhide__ = True
    if _outer is not None:
        _outer.send(Launches(at=time.monotonic()))
        if _outer.deadline is not None:
            limits = limits.within(_outer.deadline - time.monotonic())
    backend.load()
    shared = Shared()

    def work(_place: Place, _output: OutputFiles, _send: Callable[[Any], None]) -> Any:
        return call.run(fn, shared, backend.to_host)

    ended = supervise(Launch(cores=cores, work=work, limits=limits, on_output=show_output), backend)
    leave_if_asked(ended.exited)
    if not ended.verdict.passed:
        raise _error(ended, shared)
    return [shared.unpack_result(data.value, ordinal) for ordinal, data in enumerate(ended.data)]


def leave_if_asked(exited: Exited | None) -> None:
    """Do here what an ordinal asked for: end the session."""
    __tracebackhide__ = True
    if exited is None:
        return
    if exited.interrupted:
        raise KeyboardInterrupt(exited.reason)
    raise pytest.exit.Exception(exited.reason, exited.returncode)


def _error(ended: Ended, shared: Shared) -> BaseException:
    """What to raise for a launch that did not pass: the exception that speaks for it, or the verdict."""
    verdict = ended.verdict
    first = verdict.first or 0
    raised = ended.data[first]
    spoke = verdict.kind in (VerdictKind.RAISED, VerdictKind.AGREED, VerdictKind.MISMATCHED)
    text = f"{verdict.headline}\n\n{table(verdict)}"
    if not spoke or not isinstance(raised, call.Raised):
        return LaunchError(verdict, text)
    error = call.load_error(raised, first, shared)
    return error or LaunchError(verdict, f"{text}\n\non ordinal {first}:\n{raised.text}")


def show_output(ordinal: int, output: OutputFiles, rest: bool) -> None:
    """Write what an ordinal has written, whole lines with the ordinal in front, as they come."""
    for name in ("stdout", "stderr"):
        for line in output.new_lines(name, rest=rest):
            print(f"[ordinal {ordinal}] {line}", file=getattr(sys, name), flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """What `torch_xla.launch`, `xmp.spawn` and Lightning's launcher end in.

    Args:
        backend: of this process.
        cores: how many ordinals a launch has.
        limits: of each launch.
        refuse: raises if a launch is not possible in this process now.
    """

    backend: Backend
    cores: int
    limits: Limits
    refuse: Callable[[], None] = lambda: None

    def __call__(self, fn: Callable[[], Any], _start_method: str) -> dict[int, Any]:
        """Run `fn` on every ordinal; the results by ordinal."""
        __tracebackhide__ = True
        self.refuse()
        return dict(enumerate(run(fn, cores=self.cores, backend=self.backend, limits=self.limits)))
