"""What the tests of the package have beyond the guard of the whole repository."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pytest_tpu.options import OPTIONS

ROOT = Path(__file__).parents[1]

# What every run of pytest that is a test begins with. Where pytest-asyncio is loaded and not set up, it warns.
ADDOPTS = "-p no:asyncio"


@pytest.fixture(scope="session", autouse=True)
def runs_of_pytest() -> Iterator[None]:
    """Prepare the environment of the runs of pytest that are tests.

    The settings of the run that tests us are kept from them, and where the package is not installed, as in a bare
    checkout, its plugin is named to them.
    """
    with pytest.MonkeyPatch.context() as patch:
        for option in OPTIONS:
            patch.delenv(option.variable, raising=False)
        patch.setenv("PYTEST_ADDOPTS", ADDOPTS)
        if not entry_points(group="pytest11", name="tpu"):
            patch.setenv("PYTEST_PLUGINS", "pytest_tpu.plugin")
            patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The one of the whole repository; pytest's own discards PYTEST_ADDOPTS, so that it is set anew."""
    monkeypatch.setenv("PYTEST_ADDOPTS", ADDOPTS)
    return pytester


@pytest.fixture(autouse=True)
def environment_unchanged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold tests with processes, and of whole runs, to the promise that every undo is complete.

    What torch sets when it is first imported stays set for good, and is no promise of ours.
    """
    if "unit" in request.path.parts:
        yield
        return
    before, loaded = _environment(), "torch" in sys.modules
    yield

    if loaded == ("torch" in sys.modules):
        assert before == _environment()


def _environment() -> dict[str, str]:
    """The environment without the variable in which pytest notes what it does."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
