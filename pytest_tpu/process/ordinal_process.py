"""One forked process of a world."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar

from pytest_tpu.errors import WorldStopped
from pytest_tpu.model.verdict import UNKNOWN_END
from pytest_tpu.process.descendants import Descendant, Processes, kill, look, recent
from pytest_tpu.process.held import INTERRUPT, HeldSignals
from pytest_tpu.process.lifeline import children_die_too, die_with_parent, take_over_orphans
from pytest_tpu.process.output import OutputFiles
from pytest_tpu.wire import Reader, Writer

_SEEN_LATELY = 0.1
"""Seconds that a look at all processes serves for those of one world."""

REAP_BOUND = 10.0
"""Seconds to wait for the kernel after SIGKILL; a process in an uninterruptible call may take longer."""

Body = Callable[[OutputFiles, Callable[[Any], None]], None]
"""What runs in the process: it gets where its output goes, and how to send a message."""


class Gate:
    """Where ordinals wait after their body until all others have ended theirs.

    An ordinal that left early would close the sockets that the others still talk through. The controller holds the
    only write end: it opens the gate by closing it, and a controller that dies opens it too. Whatever else is forked,
    the ordinals of a launch of another thread included, must not keep that end.
    """

    _closed: ClassVar[set[Gate]] = set()
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self) -> None:
        with Gate._lock:
            self._exit, self._entry = os.pipe()
            Gate._closed.add(self)

    def inherit(self) -> None:
        """Keep, in a child, only the end that waits."""
        os.close(self._entry)

    def wait(self) -> None:
        """Wait, in an ordinal, until the gate is open."""
        os.read(self._exit, 1)

    def open(self) -> None:
        """Let all ordinals go; may be called more than once."""
        with Gate._lock:
            if self in Gate._closed:
                Gate._closed.remove(self)
                os.close(self._entry)
                os.close(self._exit)

    @property
    def is_open(self) -> bool:
        """Whether the ordinals may go."""
        return self not in Gate._closed

    @classmethod
    def before_fork(cls) -> None:
        """Let no gate be half made, or half open, in a child."""
        cls._lock.acquire()

    @classmethod
    def after_fork(cls) -> None:
        """Go on in the parent."""
        cls._lock.release()

    @classmethod
    def after_fork_in_child(cls) -> None:
        """Keep of all gates only the ends that wait."""
        for gate in cls._closed:
            gate.inherit()
        cls._closed.clear()
        cls._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=Gate.before_fork, after_in_parent=Gate.after_fork, after_in_child=Gate.after_fork_in_child
    )


class OrdinalProcess:
    """A process that runs `body`, waits at the gate, and ends as a Python process ends.

    The orderly end is multiprocessing's: finalizers, queue feeders and non-daemon threads are waited for, as they
    would be in a user's script. Not daemonic, since a body may start processes of its own (loader workers).
    """

    def __init__(self, ordinal: int, body: Body, gate: Gate, held: HeldSignals) -> None:
        self.ordinal = ordinal
        self.exit_code: int | None = None
        self.exit_at: float | None = None
        self._pidfd: int | None = None
        self._cpu_seen = 0
        self._noted: dict[tuple[int, int], Descendant] = {}
        self._stdin = sys.stdin
        self._silence = ExitStack()
        # What it needs is given up again if there is no more of it, or no process: nobody else could.
        with ExitStack() as undo:
            self.output = OutputFiles()
            undo.callback(self.output.close)
            receive, send = os.pipe()
            self.reader = Reader(receive)
            undo.callback(self.reader.close)

            def run() -> None:
                held.restore()
                self._silence.close()
                self.reader.close()
                self._run(body, gate, send)

            self._parent = os.getpid()
            self._process = multiprocessing.get_context("fork").Process(target=run, name=f"ordinal {ordinal}")
            try:
                self._start()
            finally:
                os.close(send)
            undo.pop_all()
        self.started_at = self._alive_at = time.monotonic()
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self._pidfd = os.pidfd_open(self.pid)

    def _start(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        _flush_native()
        # Python gives a forked child other random numbers, and a fixture that sets the seed would be without effect.
        self._random = random.getstate()
        # In the child multiprocessing closes what stands here, and a fixture may have put an answer there to be read.
        sys.stdin = None
        # Python 3.12 and later warn at each fork of a process with threads, and torch_xla always has some.
        self._silence.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            self._process.start()
        finally:
            self._silence.close()
            sys.stdin = self._stdin

    def _run(self, body: Body, gate: Gate, send: int) -> None:
        die_with_parent(self._parent)
        children_die_too()
        take_over_orphans()
        # A group of its own: the terminal's Ctrl-C reaches the controller alone, which then looks before it stops
        # the world, and what this process starts can be ended with it.
        os.setpgid(0, 0)
        self.output.redirect()
        sys.stdin = self._stdin
        random.setstate(self._random)
        # To this ordinal's own file: a crash prints its Python stacks there, and not over those of the others.
        faulthandler.enable(2)
        writer = Writer(send)
        # Interrupted outside what notes it (the device is being configured, say): there is nobody to tell.
        with suppress(WorldStopped):
            stop_by_signal(writer)
            body(self.output, writer.send)
            signal.signal(INTERRUPT, signal.SIG_IGN)
        gate.wait()
        _flush_native()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def wait_on(self) -> list[int]:
        """Descriptors that become readable when this process has something to say or has ended."""
        pipe = [] if self.reader.at_end else [self.reader.descriptor]
        return pipe if self._pidfd is None or self.exit_code is not None else [*pipe, self._pidfd]

    def poll(self) -> bool:
        """Whether it has ended; notes the exit code and ends what it left behind."""
        # Before the look: between the two it may end, and another ordinal raise because of it.
        now = time.monotonic()
        if self.exit_code is None and _has_ended(self.pid):
            self._end()
        elif self.exit_code is None:
            self._alive_at = now
        return self.exit_code is not None

    def _end(self) -> None:
        # Before it is reaped: until then its number can't be another process's.
        if not _is_reaped(self.pid):
            _signal_group(self.pid, signal.SIGKILL)
        kill(self._noted.values())
        self._process.join()
        if self._process.exitcode is None:
            # Nothing else makes multiprocessing let go of a process that was reaped by somebody else.
            self._process._popen.returncode = UNKNOWN_END  # type: ignore[attr-defined]  # noqa: SLF001
        self.exit_code = self._process.exitcode
        self.exit_at = self._alive_at

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the process, or to all that it started too."""
        if self.exit_code is not None or _is_reaped(self.pid):
            return
        if group:
            self.note(recent(_SEEN_LATELY))
            _signal_group(self.pid, number)
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def is_busy(self) -> bool:
        """Whether it or what it started has used the processor since the last call, or waits for one or for a disk.

        Then it is slow, not stuck.
        On a loaded machine a process that only wants to end may get no processor for longer than the grace.
        """
        own = look(self.pid)
        started = self.note(recent(_SEEN_LATELY))
        try:
            tasks = [task.read_bytes() for task in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        except (FileNotFoundError, ProcessLookupError):
            # A thread has ended meanwhile.
            return True
        # The name of the program comes before the last parenthesis, and may contain anything.
        states = {task.rpartition(b")")[2].split()[0].decode() for task in tasks} | {seen.state for seen in started}
        used = sum(seen.used for seen in (own, *started) if seen is not None)
        advanced = used > self._cpu_seen
        self._cpu_seen = used
        return advanced or not states.isdisjoint("RD")

    def note(self, processes: Processes) -> list[Descendant]:
        """Note what it has started, to be ended when it has ended itself: nothing shows any more whose it was then.

        Returns:
            What there is now, also what has ended and waits to be reaped.
        """
        if self.exit_code is not None or _is_reaped(self.pid):
            return []
        started = processes.below(self.pid)
        self._noted.update({(seen.pid, seen.born): seen for seen in started})
        return started

    def close(self) -> None:
        """Release what belongs to the process, which is killed and reaped if it has not ended."""
        if self.exit_code is None:
            self.signal(signal.SIGKILL, group=True)
            self._process.join(REAP_BOUND)
            self.poll()
        self.reader.close()
        self.output.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        with suppress(ValueError):
            self._process.close()


def stop_by_signal(writer: Writer) -> None:
    """Make INTERRUPT raise WorldStopped in this process's main thread, once, and not in the middle of a message."""

    def stop(*_: object) -> None:
        signal.signal(INTERRUPT, signal.SIG_IGN)
        writer.interrupt(WorldStopped("the controller stopped the world"))

    if threading.current_thread() is not threading.main_thread():
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {INTERRUPT})
    signal.signal(INTERRUPT, stop)


def _flush_native() -> None:
    """Write out what C code has printed: before a fork, or each child has it too; before an end without `exit`."""
    ctypes.CDLL(None).fflush(None)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _is_reaped(pid: int) -> bool:
    """Whether its number may be another process's by now, since somebody else took its exit code."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
