"""What the tests of whole runs share: a run of pytest on a few emulated ordinals."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol

import pytest

import pytest_tpu


class RunOnOrdinals(Protocol):
    """The type of the fixture `run_on_ordinals`."""

    def __call__(self, source: str, *args: str, cores: int = 2, conftest: str = "") -> pytest.RunResult:
        """Write `source` as a file of tests and run it with the plugin on an emulated host."""
        ...


@pytest.fixture(scope="session", autouse=True)
def all_modules_loaded(torch_loaded: bool) -> None:
    """Import all of the package before pytester notes what is imported.

    It forgets what a run has imported, and the next run would import it again, beside what the package itself still
    refers to: two classes of one name.
    """
    if torch_loaded:
        for module in pkgutil.walk_packages(pytest_tpu.__path__, "pytest_tpu."):
            importlib.import_module(module.name)


@pytest.fixture
def run_on_ordinals(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> RunOnOrdinals:
    """Run a file of tests on a host of a few cores, in this process; lines of the summary are not cut."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(source: str, *args: str, cores: int = 2, conftest: str = "") -> pytest.RunResult:
        if conftest:
            pytester.makeconftest(conftest)
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_inprocess(f"--tpu-cores={cores}", *args)

    return run
