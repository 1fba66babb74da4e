from __future__ import annotations

import errno
import itertools
import mmap
import multiprocessing
import multiprocessing.popen_fork
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_tpu.errors import BackendError
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.messages import Exited, Finished
from pytest_tpu.model.place import Place
from pytest_tpu.model.verdict import UNKNOWN_END, LaunchError, Outcome, VerdictKind
from pytest_tpu.process.output import OutputFiles
from pytest_tpu.supervise import Ended, Launch, Work, supervise

pytestmark = pytest.mark.process

QUICK = Limits(timeout=20, grace=0.2)
Act = Callable[[int], Any]


def working(act: Act) -> Work:
    """Make the work of an ordinal of what it does with its number; what that returns is its data."""

    def work(place: Place, output: OutputFiles, send: Callable[[Any], None]) -> Finished:
        return Finished(at=time.monotonic(), outcome=Outcome.PASSED, data=act(place.ordinal))

    return work


def launch(act: Act, *, cores: int = 2, limits: Limits = QUICK, **more: Any) -> Ended:
    """Run a world that has no backend."""
    return supervise(Launch(cores=cores, work=working(act), limits=limits, **more), None)


def sleep(ordinal: int) -> None:
    """Do nothing for longer than any test takes."""
    time.sleep(60)


def descriptors() -> set[str]:
    """The open descriptors of this process, with what they are open on."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:
            # The one that lists them.
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    """Hold every launch to leaving no descriptor, no shared memory and no process behind, not even for a moment."""
    before = descriptors(), set(Path("/dev/shm").glob("*tpu*"))
    yield

    assert before == (descriptors(), set(Path("/dev/shm").glob("*tpu*")))
    assert [] == multiprocessing.active_children()


class TestAgreement:
    def test_data(self) -> None:
        """What the ordinals bring home stands in their order."""
        ended = launch(lambda ordinal: ordinal * 10, cores=3)

        assert (VerdictKind.AGREED, Outcome.PASSED) == (ended.verdict.kind, ended.verdict.outcome)
        assert (0, 10, 20) == ended.data

    def test_messages(self) -> None:
        """Messages that are larger than a pipe arrive whole and in the order they were sent, with their ordinal."""
        got: dict[int, list[tuple[int, int]]] = {0: [], 1: []}

        def work(place: Place, output: OutputFiles, send: Callable[[Any], None]) -> Finished:
            for number in range(3):
                send((number, bytes(1_000_000)))
            return Finished(at=time.monotonic(), outcome=Outcome.PASSED)

        def on_message(ordinal: int, message: Any) -> None:
            got[ordinal].append((message[0], len(message[1])))

        ended = supervise(Launch(cores=2, work=work, limits=QUICK, on_message=on_message), None)

        assert ended.verdict.passed
        assert {0: [(n, 1_000_000) for n in range(3)], 1: [(n, 1_000_000) for n in range(3)]} == got

    def test_early_ones_wait(self, tmp_path: Path) -> None:
        """No process ends before the bodies of all have: the others may still talk through its sockets."""

        def act(ordinal: int) -> bool:
            if ordinal == 0:
                (tmp_path / "early").write_text(str(os.getpid()))
                return True
            wait_for((tmp_path / "early").exists)
            early = int((tmp_path / "early").read_text())
            # Long enough for a process that does not wait to be gone.
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                if psutil.Process(early).status() == psutil.STATUS_ZOMBIE:
                    return False
                time.sleep(0.01)
            return True

        assert (True, True) == launch(act).data

    def test_alone(self) -> None:
        """A process of its own is one, whatever its host has, and is called what it is."""
        ended = launch(lambda ordinal: ordinal, cores=8, alone=True, noun="isolated process")

        assert (0,) == ended.data
        assert "AGREED: isolated process passed" == ended.verdict.headline


class TestEnds:
    def test_lost(self) -> None:
        """The output of a process that was killed is kept, and the others are stopped without delay."""

        def act(ordinal: int) -> None:
            os.write(1, f"I am {ordinal}\n".encode())
            if ordinal == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

        began = time.monotonic()
        ended = launch(act)

        assert VerdictKind.LOST is ended.verdict.kind
        assert 1 == ended.verdict.first
        assert "I am 1\n" == ended.outputs[1]["stdout"]
        assert 10 > time.monotonic() - began

    def test_overdue(self) -> None:
        """The limit ends a world."""
        ended = launch(sleep, limits=Limits(timeout=0.3, grace=0.2))

        assert VerdictKind.OVERDUE is ended.verdict.kind
        assert all(state.stopped for state in ended.verdict.ordinals)

    def test_no_limit(self) -> None:
        """No limit is none: the world runs to its end."""
        assert launch(lambda _: time.sleep(0.2), limits=Limits(timeout=0, grace=0.1)).verdict.passed

    @pytest.mark.parametrize("last", [True, False], ids=["last word", "before"])
    def test_unsendable(self, last: bool) -> None:
        """An ordinal that can't send what it has to tell has failed, for that reason."""

        def work(place: Place, output: OutputFiles, send: Callable[[Any], None]) -> Finished:
            if not last:
                send(threading.Lock())
            return Finished(at=time.monotonic(), outcome=Outcome.PASSED, data=threading.Lock())

        verdict = supervise(Launch(cores=1, work=work, limits=QUICK), None).verdict
        what = "Finished" if last else "lock"

        assert (VerdictKind.AGREED, Outcome.FAILED) == (verdict.kind, verdict.outcome)
        assert f"ordinal 0 failed: {what} can't be sent from an ordinal: TypeError: " in verdict.headline

    def test_exit(self) -> None:
        """One that asks to leave stops all at once."""

        def work(place: Place, output: OutputFiles, send: Callable[[Any], None]) -> Exited:
            if place.ordinal == 0:
                time.sleep(60)
            return Exited(at=time.monotonic(), reason="enough", returncode=3)

        ended = supervise(Launch(cores=2, work=work, limits=QUICK), None)

        assert ended.exited is not None
        assert ("enough", 3) == (ended.exited.reason, ended.exited.returncode)

    def test_what_it_started(self, tmp_path: Path) -> None:
        """What an ordinal has started ends with it, whether it was stopped or has ended well."""

        def act(ordinal: int) -> None:
            process = subprocess.Popen(["sleep", "60"])
            (tmp_path / str(ordinal)).write_text(str(process.pid))

        assert launch(act).verdict.passed
        for ordinal in range(2):
            wait_for_end(int((tmp_path / str(ordinal)).read_text()))


def detached(directory: Path, name: object, program: str = "exec sleep 60") -> None:
    """Start a program in a session of its own, which ends with no group; its number is in a file."""
    text = f"echo $$ > {directory}/{name}.new; mv {directory}/{name}.new {directory}/{name}; {program}"
    subprocess.Popen(["sh", "-c", text], start_new_session=True)
    wait_for((directory / str(name)).exists)


class TestDetached:
    """What has a session of its own is not in the group of the ordinal that started it."""

    def test_end(self, tmp_path: Path) -> None:
        """It ends with an ordinal that ends well."""
        assert launch(lambda ordinal: detached(tmp_path, ordinal)).verdict.passed
        for ordinal in range(2):
            wait_for_end(int((tmp_path / str(ordinal)).read_text()))

    def test_stopped(self, tmp_path: Path) -> None:
        """It ends with an ordinal that is stopped."""

        def act(ordinal: int) -> None:
            detached(tmp_path, ordinal)
            time.sleep(60)

        assert VerdictKind.OVERDUE is launch(act, limits=Limits(timeout=1, grace=0.2)).verdict.kind
        for ordinal in range(2):
            wait_for_end(int((tmp_path / str(ordinal)).read_text()))

    def test_orphan(self, tmp_path: Path) -> None:
        """It is found also where the process in between has ended, as that of a daemon does."""

        def act(ordinal: int) -> None:
            inner = f"echo \\$\\$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/daemon; exec sleep 60"
            subprocess.run(["sh", "-c", f'setsid sh -c "{inner}" &'], check=True)
            wait_for((tmp_path / "daemon").exists)

        assert launch(act, cores=1).verdict.passed
        wait_for_end(int((tmp_path / "daemon").read_text()))

    def test_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It ends with an ordinal that dies, if it was there for a while."""
        monkeypatch.setattr("pytest_tpu.supervise._NOTED_EVERY", 0)
        looks = itertools.count()

        def act(ordinal: int) -> None:
            detached(tmp_path, "child")
            wait_for((tmp_path / "seen").exists)
            os.kill(os.getpid(), signal.SIGKILL)

        def look(ordinal: int, output: OutputFiles, rest: bool) -> None:
            # The second time, since between the two it was looked for.
            if (tmp_path / "child").exists() and next(looks):
                (tmp_path / "seen").touch()

        assert VerdictKind.LOST is launch(act, cores=1, on_output=look).verdict.kind
        wait_for_end(int((tmp_path / "child").read_text()))


class TestLingering:
    def test_child_computes(self) -> None:
        """A process that waits for a child to finish its work is slow, and not stuck."""

        def compute() -> None:
            end = time.process_time() + 1
            while time.process_time() < end:
                pass

        def act(ordinal: int) -> None:
            multiprocessing.get_context("fork").Process(target=compute).start()

        assert launch(act, cores=1).verdict.passed

    def test_child_waits(self) -> None:
        """One that waits for a child which does nothing lingers, and the headline names that child."""

        def act(ordinal: int) -> int | None:
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            child.start()
            return child.pid

        ended = launch(act, cores=1)

        assert VerdictKind.LINGERED is ended.verdict.kind
        assert ended.verdict.headline.endswith(f" ({ended.data[0]}))")
        assert "did not end after the body (live processes: " in ended.verdict.headline


class NoPlan:
    """A backend that has nothing to share among ordinals."""

    def plan(self, cores: int) -> Any:
        """Refuse."""
        raise BackendError("no port is left")


def fails_at(number: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that works until its call of this number, from 1, where the machine has no more."""
    calls = itertools.count(1)

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            raise OSError(errno.EAGAIN, "no more of it")
        return original(*args, **kwargs)

    return call


class TestNotStarted:
    """What a launch that fails before its world is there leaves open shows in the fixture of all tests here."""

    def test_plan(self) -> None:
        """A backend that can't plan the launch is heard, and nothing was begun."""
        nothing: Any = NoPlan()

        with pytest.raises(LaunchError, match=r"^REFUSED: no port is left"):
            supervise(Launch(cores=2, work=working(sleep), limits=QUICK), nothing)

    def test_no_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without memory for the world there is no gate either."""
        monkeypatch.setattr(mmap, "mmap", fails_at(1, mmap.mmap))

        with pytest.raises(LaunchError, match=r"^REFUSED: the processes can't be started: .* no more of it"):
            launch(sleep)

    @pytest.mark.parametrize("number", [1, 2])
    def test_no_process(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fork that fails ends those that were started before it."""
        popen: Any = multiprocessing.popen_fork.Popen
        monkeypatch.setattr(popen, "_launch", fails_at(number, popen._launch))

        with pytest.raises(LaunchError, match=r"^REFUSED: the processes can't be started: .* no more of it"):
            launch(sleep)

    @pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("number", [1, 3, 5])
    def test_no_file(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where there are not enough files for the output, those that were opened are closed."""
        monkeypatch.setattr(tempfile, "TemporaryFile", fails_at(number, tempfile.TemporaryFile))

        with pytest.raises(LaunchError, match=r"^REFUSED: the processes can't be started: .* no more of it"):
            launch(sleep)

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_no_pipe(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where there is no pipe for the gate or for what an ordinal says, the rest is given up."""
        monkeypatch.setattr("pytest_tpu.process.ordinal_process.os.pipe", fails_at(number, os.pipe))

        with pytest.raises(LaunchError, match=r"^REFUSED: the processes can't be started: .* no more of it"):
            launch(sleep)


class Interrupted(BaseException):
    """Raised by a handler, as Ctrl-C or the limit of another plugin is."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """Let SIGALRM raise."""

    def raise_it(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, raise_it)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
class TestInterrupted:
    def test_while_forking(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A signal that comes between a fork and its being noted stops the world as any other."""
        fork = multiprocessing.popen_fork.Popen._launch  # type: ignore[attr-defined]

        def fork_and_alarm(self: Any, process: Any) -> None:
            fork(self, process)
            signal.raise_signal(signal.SIGALRM)

        monkeypatch.setattr(multiprocessing.popen_fork.Popen, "_launch", fork_and_alarm)

        with pytest.raises(Interrupted):
            launch(sleep)

    def test_handlers_of_ordinals(self) -> None:
        """An ordinal has the handlers that its parent had."""

        def act(ordinal: int) -> bool:
            try:
                signal.raise_signal(signal.SIGALRM)
            except Interrupted:
                return True
            return False

        assert (True, True) == launch(act).data

    def test_while_watching(self) -> None:
        """An exception in the middle of a launch passes through, and nothing of the world is left."""

        def look(ordinal: int, output: OutputFiles, rest: bool) -> None:
            raise Interrupted

        with pytest.raises(Interrupted):
            launch(sleep, on_output=look)

    def test_while_stopping(self) -> None:
        """A second exception while the world is being stopped kills the rest of it."""

        def stubborn(ordinal: int) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    continue

        looks = iter(range(100))

        def look(ordinal: int, output: OutputFiles, rest: bool) -> None:
            if next(looks) > 4:
                raise Interrupted

        began = time.monotonic()
        with pytest.raises(Interrupted):
            launch(stubborn, limits=Limits(timeout=20, grace=60), on_output=look)

        assert 20 > time.monotonic() - began

    def test_from_another_thread(self) -> None:
        """A launch from a thread works, where signals are not ours to hold."""
        ended: list[Ended] = []
        thread = threading.Thread(target=lambda: ended.append(launch(lambda ordinal: ordinal)))
        thread.start()
        thread.join(20)

        assert (0, 1) == ended[0].data


class TestIgnoredChildren:
    """A shell or an entry point may start pytest with SIGCHLD ignored: the kernel then forgets how a child ended."""

    @pytest.fixture(autouse=True)
    def ignored(self) -> Iterator[None]:
        """Ignore the end of children."""
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        yield
        signal.signal(signal.SIGCHLD, before)

    def test_main_thread(self) -> None:
        """A launch is as any other, and leaves the disposition as it was."""
        assert launch(lambda ordinal: ordinal).verdict.passed
        assert signal.SIG_IGN is signal.getsignal(signal.SIGCHLD)

    def test_another_thread(self) -> None:
        """Where the disposition can't be changed, the verdict says what is missing, without delay."""
        ended: list[Ended] = []
        thread = threading.Thread(target=lambda: ended.append(launch(lambda ordinal: ordinal)))
        thread.start()
        thread.join(20)
        verdict = ended[0].verdict

        assert VerdictKind.LOST is verdict.kind
        assert ": exit code lost (SIGCHLD is ignored, " in verdict.headline
        assert {UNKNOWN_END} == {state.exit_code for state in verdict.ordinals}


class TestTwoAtATime:
    def test_ends(self, tmp_path: Path) -> None:
        """A launch ends while one of another thread, begun after it, is still running."""

        def first(ordinal: int) -> None:
            wait_for((tmp_path / "second runs").exists)

        def second(ordinal: int) -> None:
            (tmp_path / "second runs").touch()
            wait_for((tmp_path / "first has ended").exists)

        ended: list[Ended] = []
        thread = threading.Thread(target=lambda: ended.append(launch(second)))

        def begin_second(ordinal: int, output: OutputFiles, rest: bool) -> None:
            if thread.ident is None:
                thread.start()

        ended.append(launch(first, on_output=begin_second))
        (tmp_path / "first has ended").touch()
        thread.join(20)

        assert [VerdictKind.AGREED, VerdictKind.AGREED] == [one.verdict.kind for one in ended]

    def test_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """While one launch forks, with the standard input put away, another waits."""
        popen: Any = multiprocessing.popen_fork.Popen
        original = popen._launch
        together, met = threading.Barrier(2), []

        def fork(self: Any, process: Any) -> None:
            with suppress(threading.BrokenBarrierError):
                together.wait(0.3)
                met.append(process.name)
            original(self, process)

        monkeypatch.setattr(popen, "_launch", fork)
        threads = [threading.Thread(target=launch, args=(lambda ordinal: None,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

        assert [] == met


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for a condition, within a bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come true in time"
        time.sleep(0.01)


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended, whoever is to reap it."""
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 5)
