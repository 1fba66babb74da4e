"""What the tests of the package have beyond the guard of the whole repository."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from pytest_tpu.options import OPTIONS


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside() -> Iterator[None]:
    """Keep the settings of the run that tests us away from the runs that are tests."""
    with pytest.MonkeyPatch.context() as patch:
        for option in OPTIONS:
            patch.delenv(option.variable, raising=False)
        yield


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
