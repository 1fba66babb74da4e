"""What every test file of this repository has: pytester, torch before pytester, and nothing left behind."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytest_plugins = ["pytester"]

# Tests import what they share as `tests.…`. Last on the path, unlike with the ini entry `pythonpath`: the package that
# is tested is the installed one, where there is one, and not the folder that happens to lie here.
sys.path.append(str(Path(__file__).parent))


NEED_TORCH_XLA = ("process", "acceptance")
"""The folders of tests that mean nothing without torch_xla."""


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip the files of tests that need torch_xla where it does not exist."""
    needs = module_path.parent.name in NEED_TORCH_XLA
    return _Skipped.from_parent(parent, path=module_path) if needs and _missing() else None


class _Skipped(pytest.Module):
    """A file that is skipped as a whole and not even imported: it may use what only Linux has."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Say why there is nothing."""
        pytest.skip(_missing(), allow_module_level=True)


def _missing() -> str:
    """Why torch_xla can't be imported here; empty where it can."""
    # Imported here: above, a checkout that is not installed is not on the path yet.
    from pytest_tpu.backend import package
    from pytest_tpu.errors import MissingPackageError

    try:
        package.require()
    except MissingPackageError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def torch_loaded() -> bool:
    """Import torch and torch_xla where they are installed; says whether they are."""
    if importlib.util.find_spec("torch_xla") is None:
        return False
    importlib.import_module("torch_xla")
    return True


@pytest.fixture
def pytester(torch_loaded: bool, pytester: pytest.Pytester) -> pytest.Pytester:
    """Pytest's own, made when torch is there already.

    It restores `sys.modules` when a test ends, and torch can't be imported a second time in one process.
    """
    return pytester


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold tests to what the plugin promises: no process of its own and no changed signal handler outlive it.

    Unit tests start no process, and reading the process table would take longer than most of them.
    """
    if "unit" in request.path.parts:
        yield
        return
    handlers = _handlers()
    before = set(_children())
    yield
    left = [child for child in _children() if child not in before]
    _, alive = psutil.wait_procs(left, timeout=2)

    assert [] == [f"{child.pid} {' '.join(child.cmdline())}" for child in alive]
    assert handlers == _handlers()


def _children() -> list[psutil.Process]:
    """The processes under this one; multiprocessing's tracker is its own to end, with the process."""
    tracker = "multiprocessing.resource_tracker"
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if not any(tracker in word for word in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def _handlers() -> dict[int, object]:
    """The handlers that a test may not leave changed."""
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
