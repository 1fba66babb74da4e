"""Forked processes for the tests of backends: bounded, and gone when the test is."""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_tpu.model.place import Call, Place

if TYPE_CHECKING:
    from pytest_tpu.backend import Backend
    from pytest_tpu.errors import MismatchError

PR_SET_PDEATHSIG = 1


class UncheckedMeetings:
    """Meetings that let every call pass: these tests are about answers."""

    def __init__(self) -> None:
        self._count = 0
        self.mismatch: MismatchError | None = None

    def meet(self, group: Sequence[int], call: Call) -> int:
        """Count the call."""
        self._count += 1
        return self._count


@dataclass
class Fork:
    """A forked process that returns a value."""

    fn: Callable[[], Any]
    pid: int = 0
    pipe: int = -1
    data: bytearray = field(default_factory=bytearray)

    def start(self) -> None:
        """Fork; the new process runs the function and ends."""
        self.pipe, write = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # torch_xla has threads; Python 3.12 and later warn at the fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            self._run(parent, write)
        os.close(write)

    def _run(self, parent: int, write: int) -> NoReturn:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            if os.getppid() == parent:
                try:
                    sent = pickle.dumps((True, self.fn()))
                except BaseException:
                    sent = pickle.dumps((False, traceback.format_exc()))
                with os.fdopen(write, "wb") as pipe:
                    pipe.write(sent)
                sys.stdout.flush()
                sys.stderr.flush()
        finally:
            os._exit(0)

    def result(self, deadline: float) -> Any:
        """Wait for the value until the deadline; raises AssertionError with what the process raised."""
        while True:
            ready, _, _ = select.select([self.pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"process {self.pid} did not answer in time")
            chunk = os.read(self.pipe, 1 << 16)
            if not chunk:
                break
            self.data += chunk
        assert self.data, f"process {self.pid} ended without an answer"
        good, value = pickle.loads(bytes(self.data))
        assert good, f"in the forked process:\n{value}"
        return value

    def end(self) -> None:
        """Leave nothing behind."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.pipe)


def run_forked(*fns: Callable[[], Any], seconds: float = 60.0) -> list[Any]:
    """Run each function in a process of its own, at the same time; return their values."""
    forks: list[Fork] = []
    deadline = time.monotonic() + seconds
    try:
        for fn in fns:
            forks.append(Fork(fn))
            forks[-1].start()
        return [fork.result(deadline) for fork in forks]
    finally:
        for fork in forks:
            fork.end()


def run_world(backend: Backend, cores: int, fn: Callable[[], Any], seconds: float = 60.0) -> list[Any]:
    """Run `fn` on every ordinal of a world; return their values in ordinal order."""
    with backend.plan(cores) as plan:

        def ordinal_process(ordinal: int) -> Callable[[], Any]:
            def run() -> Any:
                backend.enter(Place(ordinal=ordinal, size=cores, meetings=UncheckedMeetings(), plan=plan))
                return backend.to_host(fn())

            return run

        return run_forked(*(ordinal_process(ordinal) for ordinal in range(cores)), seconds=seconds)


def launcher(backend: Backend, cores: int) -> Callable[..., dict[int, Any]]:
    """Launch as the engine will, by `run_world`."""

    def launch(fn: Callable[[], Any], start_method: str) -> dict[int, Any]:
        return dict(enumerate(run_world(backend, cores, fn)))

    return launch
