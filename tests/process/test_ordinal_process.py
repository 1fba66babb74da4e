from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_tpu.model.verdict import UNKNOWN_END
from pytest_tpu.process.held import INTERRUPT, HeldSignals
from pytest_tpu.process.ordinal_process import Gate, OrdinalProcess
from pytest_tpu.process.output import OutputFiles

pytestmark = pytest.mark.process

Send = Callable[[Any], None]
Start = Callable[[Callable[[Send], Any]], OrdinalProcess]


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is opened at the end of the test."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def start(gate: Gate) -> Iterator[Start]:
    """Start a process that runs a body."""
    started = []

    def start_one(body: Callable[[Send], Any]) -> OrdinalProcess:
        def run(output: OutputFiles, send: Send) -> None:
            body(send)

        with HeldSignals() as held:
            started.append(OrdinalProcess(0, run, gate, held))
        return started[-1]

    yield start_one
    for process in started:
        process.close()


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for a condition, within a bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come true in time"
        time.sleep(0.01)


def messages(process: OrdinalProcess, count: int) -> list[Any]:
    """Wait for so many messages."""
    got: list[Any] = []

    def enough() -> bool:
        got.extend(process.reader.receive())
        return len(got) >= count

    wait_for(enough)
    return got


def ended(process: OrdinalProcess) -> int | None:
    """Wait for the end of a process, and give its exit code."""
    wait_for(process.poll)
    return process.exit_code


class TestEnd:
    def test_waits_at_the_gate(self, start: Start, gate: Gate) -> None:
        """A process whose body has ended stays until the gate opens, and then ends well."""
        process = start(lambda send: send("done"))

        assert ["done"] == messages(process, 1)
        assert not process.poll()
        gate.open()
        assert 0 == ended(process)

    def test_non_daemon_thread(self, start: Start, gate: Gate) -> None:
        """It ends as a Python process does: what a thread has still to do is waited for."""

        def body(send: Send) -> None:
            def after() -> None:
                threading.main_thread().join()
                send("from the thread")

            threading.Thread(target=after).start()

        process = start(body)
        gate.open()

        assert ["from the thread"] == messages(process, 1)
        assert 0 == ended(process)

    @pytest.mark.parametrize(
        ("code", "body"),
        [
            (3, lambda send: os._exit(3)),
            (-signal.SIGKILL, lambda send: os.kill(os.getpid(), signal.SIGKILL)),
            (-signal.SIGSEGV, lambda send: ctypes.string_at(0)),
            (1, lambda send: 1 / 0),
        ],
        ids=["exit", "kill", "crash", "exception"],
    )
    def test_exit_code(self, start: Start, code: int, body: Callable[[Send], Any]) -> None:
        """Every end has its code."""
        assert code == ended(start(body))

    def test_reaped_by_another(self, start: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        """One whose exit code somebody else took has ended, and its number, maybe another's by now, gets no signal."""
        process = start(lambda send: None)
        gate.open()
        os.waitpid(process.pid, 0)
        sent: list[int] = []
        monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(pid))
        monkeypatch.setattr(os, "killpg", lambda pid, number: sent.append(pid))
        process.signal(signal.SIGTERM, group=True)

        assert UNKNOWN_END == ended(process)
        assert [] == sent

    def test_what_it_left(self, start: Start, gate: Gate) -> None:
        """What it started is ended when it has ended."""
        process = start(lambda send: send(subprocess.Popen(["sleep", "60"]).pid))
        (child,) = messages(process, 1)
        gate.open()

        assert 0 == ended(process)
        wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


class TestOutput:
    def test_descriptors(self, start: Start, gate: Gate) -> None:
        """Everything that is written, by Python, by descriptor or by a program, is in the process's own files."""

        def body(send: Send) -> None:
            sys.stdout.write("by Python\n")
            os.write(1, b"by descriptor\n")
            subprocess.run(["echo", "by a program"], check=True)
            sys.__stderr__.write("to stderr\n")  # type: ignore[union-attr]

        process = start(body)
        gate.open()
        ended(process)

        assert "by Python\nby descriptor\nby a program\n" == process.output.text("stdout")
        assert "to stderr\n" == process.output.text("stderr")

    def test_lines(self) -> None:
        """Lines are given once, whole, and at the end also the one that has no end."""
        output = OutputFiles()
        output.write("stdout", "one\ntw")
        first = output.new_lines("stdout")
        output.write("stdout", "o\nthree")

        assert ["one"] == first
        assert ["two"] == output.new_lines("stdout")
        assert ["three"] == output.new_lines("stdout", rest=True)
        assert [] == output.new_lines("stdout", rest=True)
        output.close()

    def test_crash(self, start: Start) -> None:
        """A crash leaves its Python stacks in the standard error of the process."""
        process = start(lambda send: ctypes.string_at(0))
        ended(process)

        assert "Fatal Python error: Segmentation fault" in process.output.text("stderr")
        assert "test_ordinal_process.py" in process.output.text("stderr")


class TestSignals:
    def test_interrupt(self, start: Start, gate: Gate) -> None:
        """The interrupt leaves the body, once, and leaves no trace in its output."""

        def body(send: Send) -> None:
            send("ready")
            time.sleep(60)

        process = start(body)
        messages(process, 1)
        process.signal(INTERRUPT)
        process.signal(INTERRUPT)
        gate.open()

        assert 0 == ended(process)
        assert "" == process.output.text("stderr")

    def test_interrupt_can_be_caught(self, start: Start, gate: Gate) -> None:
        """A second interrupt does not disturb what the body does to leave."""

        def body(send: Send) -> None:
            send("ready")
            try:
                time.sleep(60)
            finally:
                send("leaving")
                deadline = time.monotonic() + 0.3
                while time.monotonic() < deadline:
                    time.sleep(0.01)
                send("left")

        process = start(body)
        messages(process, 1)
        process.signal(INTERRUPT)
        assert ["leaving"] == messages(process, 1)
        process.signal(INTERRUPT)

        assert ["left"] == messages(process, 1)
        gate.open()
        assert 0 == ended(process)

    def test_ctrl_c(self, start: Start) -> None:
        """It has a process group of its own, which the terminal's Ctrl-C does not reach."""
        process = start(lambda send: send(os.getpgid(0)))

        assert [process.pid] == messages(process, 1)

    @pytest.mark.parametrize("number", [signal.SIGALRM, INTERRUPT], ids=["alarm", "interrupt"])
    def test_held(self, number: signal.Signals) -> None:
        """Signals that come while they are held have their effect at the end, and the handlers are as before."""
        came: list[int] = []
        before = signal.signal(number, lambda number, frame: came.append(number))
        try:
            handler = signal.getsignal(number)
            with HeldSignals():
                signal.raise_signal(number)
                during = list(came)

            assert ([], [number]) == (during, came)
            assert handler is signal.getsignal(number)
        finally:
            signal.signal(number, before)


class TestBusy:
    def test_computes(self, start: Start) -> None:
        """One that computes is busy, one that waits is not."""

        def spin(send: Send) -> None:
            while True:
                pass

        computes, waits = start(spin), start(lambda send: None)
        wait_for(lambda: not waits.is_busy())

        assert computes.is_busy()

    def test_thread_computes(self, start: Start) -> None:
        """A thread that computes makes its process busy while the main thread waits."""

        def body(send: Send) -> None:
            def spin() -> None:
                while True:
                    pass

            threading.Thread(target=spin, daemon=True).start()
            threading.Event().wait()

        process = start(body)
        wait_for(process.is_busy)
        looks = [process.is_busy() for _ in range(5)]

        assert [True] * 5 == looks

    def test_child_computes(self, start: Start) -> None:
        """What it started, and what that started, make it busy while it waits for them."""
        spin = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
        program = f"{sys.executable} -c '{spin}' & wait"
        process = start(lambda send: subprocess.run(["sh", "-c", program], check=False))
        wait_for(lambda: len(psutil.Process(process.pid).children(recursive=True)) == 2)
        (computes,) = psutil.Process(process.pid).children()[0].children()
        looks = []
        for _ in range(5):
            used = computes.cpu_times().user
            wait_for(lambda used=used: computes.cpu_times().user > used + 0.05)  # type: ignore[misc]
            looks.append(process.is_busy())

        assert [True] * 5 == looks

    def test_child_waits(self, start: Start) -> None:
        """A child that waits too makes nothing busy."""
        process = start(lambda send: subprocess.run(["sleep", "60"], check=False))

        wait_for(lambda: not process.is_busy())


def test_fork_is_silent(start: Start, gate: Gate) -> None:
    """A fork in a process with threads gives no warning, not even where warnings are errors."""
    thread = threading.Event()
    other = threading.Thread(target=thread.wait)
    other.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            process = start(lambda send: send("forked"))
        assert ["forked"] == messages(process, 1)
    finally:
        thread.set()
        other.join()


class TestLifeline:
    def test_children(self, start: Start, tmp_path: Path) -> None:
        """What an ordinal forks dies with it, and what that forks; but not when a mere thread of it ends."""

        def fork(name: str, further: Callable[[], None] | None = None) -> None:
            if os.fork() == 0:
                if further is not None:
                    further()
                (tmp_path / f"{name}.new").write_text(str(os.getpid()))
                (tmp_path / f"{name}.new").rename(tmp_path / name)
                time.sleep(60)
                os._exit(0)

        def body(send: Send) -> None:
            thread = threading.Thread(target=fork, args=("by a thread",))
            thread.start()
            thread.join()
            fork("child", lambda: fork("grandchild"))
            send("forked")
            time.sleep(60)

        process = start(body)
        names = ("child", "grandchild", "by a thread")
        wait_for(lambda: all((tmp_path / name).exists() for name in names))
        pids = {name: int((tmp_path / name).read_text()) for name in names}
        assert all(map(psutil.pid_exists, pids.values()))
        # Not the group, which is what the controller ends: here it is the controller that dies first.
        os.kill(process.pid, signal.SIGKILL)

        for name in ("child", "grandchild"):
            pid = pids[name]
            wait_for(lambda pid=pid: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)  # type: ignore[misc]
        assert psutil.Process(pids["by a thread"]).status() != psutil.STATUS_ZOMBIE
        ended(process)
