from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

# Every process of interest writes its number into the folder `pids`, under a name that says what it is.
PRELUDE = """
    import os, signal, time
    from pathlib import Path
    import pytest
    import pytest_tpu

    # Where these tests run in the background, SIGINT is ignored, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    FOLDER = Path(__file__).parent / "pids"

    def note(name):
        (FOLDER / f"{name}.new").write_text(str(os.getpid()))
        (FOLDER / f"{name}.new").rename(FOLDER / name)
"""
WAITS = """
    def test_waits(tpu_world):
        note(f"ordinal{tpu_world.ordinal}")
        if tpu_world.ordinal:
            tpu_world.rendezvous("never complete")
        time.sleep(60)
"""
ISOLATED = """
    def waits(index):
        note(f"ordinal{index}")
        time.sleep(60)

    @pytest_tpu.isolated
    def test_launches():
        import torch_xla
        note("isolated")
        torch_xla.launch(waits)
"""
LOADERS = """
    from torch.utils.data import DataLoader

    class Slow:
        def __init__(self, ordinal):
            self.ordinal = ordinal

        def __len__(self):
            return 2

        def __getitem__(self, index):
            note(f"worker{2 * self.ordinal + index}")
            time.sleep(60)

    def test_loads(tpu_world):
        note(f"ordinal{tpu_world.ordinal}")
        for batch in DataLoader(Slow(tpu_world.ordinal), num_workers=2):
            pass
"""


class Killable:
    """A run of pytest in a process of its own, and the processes under it that noted their numbers."""

    def __init__(self, folder: Path, source: str, *args: str) -> None:
        self._pids = folder / "pids"
        self._pids.mkdir()
        lines = (PRELUDE + source).splitlines()
        (folder / "test_it.py").write_text("\n".join(line.removeprefix("    ") for line in lines))
        command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", "--tpu-cores=8", *args]
        with (folder / "output.txt").open("w") as output:
            self._process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        self.output = folder / "output.txt"

    @property
    def pid(self) -> int:
        """The number of pytest's process."""
        return self._process.pid

    def noted(self, *names: str) -> list[psutil.Process]:
        """Wait for processes to note their numbers."""

        def have_come() -> bool:
            assert self._process.poll() is None, self.output.read_text()
            return all((self._pids / name).exists() for name in names)

        wait_until(have_come, 60)
        return [psutil.Process(int((self._pids / name).read_text())) for name in names]

    def wait(self, seconds: float) -> int:
        """Wait for pytest to end, and give its status."""
        return self._process.wait(seconds)

    def clean_up(self) -> None:
        """End what a failing test has left."""
        self._process.kill()
        self._process.wait(10)
        for file in self._pids.iterdir():
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)


Start = Callable[..., Killable]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a run that can be killed."""
    runs = []

    def start_run(source: str, *args: str) -> Killable:
        runs.append(Killable(tmp_path, source, *args))
        return runs[-1]

    yield start_run
    for run in runs:
        run.clean_up()


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, within a bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come true in time"
        time.sleep(0.02)


def living(processes: list[psutil.Process]) -> list[int]:
    """Those that run still; one that nobody has reaped yet does not."""
    numbers = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                numbers.append(process.pid)
    return numbers


ORDINALS = tuple(f"ordinal{number}" for number in range(8))
WORKERS = tuple(f"worker{number}" for number in range(16))


@pytest.mark.parametrize(
    ("source", "names"),
    [(WAITS, ORDINALS), (ISOLATED, ("isolated", *ORDINALS)), (LOADERS, (*ORDINALS, *WORKERS))],
    ids=["ordinals", "isolated", "loaders"],
)
def test_pytest_is_killed(start: Start, source: str, names: tuple[str, ...]) -> None:
    """Two seconds after pytest was killed, none of its ordinals is left, nor what they started."""
    run = start(source)
    processes = run.noted(*names)
    assert len(names) == len(living(processes))
    os.kill(run.pid, signal.SIGKILL)

    wait_until(lambda: not living(processes), 2)


def test_worker_is_killed(start: Start) -> None:
    """Two seconds after an xdist worker was killed none of its ordinals is left, and the session goes on to its end."""
    run = start(WAITS + "\n\n    def test_other():\n        pass\n", "-n1")
    processes = run.noted(*ORDINALS)
    worker = processes[0].ppid()
    assert run.pid == psutil.Process(worker).ppid()
    os.kill(worker, signal.SIGKILL)

    wait_until(lambda: not living(processes), 2)
    assert pytest.ExitCode.TESTS_FAILED == run.wait(60)
    text = run.output.read_text()
    assert "worker 'gw0' crashed while running 'test_it.py::test_waits'" in text
    assert "1 failed, 1 passed" in text


def test_pytest_is_interrupted(start: Start) -> None:
    """Ctrl-C ends a launch and the session, and leaves nothing."""
    run = start(WAITS)
    processes = run.noted(*ORDINALS)
    os.kill(run.pid, signal.SIGINT)

    assert pytest.ExitCode.INTERRUPTED == run.wait(20)
    assert [] == living(processes)
    assert "!! KeyboardInterrupt !!" in run.output.read_text()
