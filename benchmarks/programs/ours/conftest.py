"""Write what pytest reports as the durations of each test, its three phases together, to the file SECONDS_FILE."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class Recorder:
    """Adds the phases up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the sums, in the order of the tests."""
        Path(os.environ["SECONDS_FILE"]).write_text(json.dumps(list(self.seconds.values())), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record where it is asked for."""
    if "SECONDS_FILE" in os.environ:
        config.pluginmanager.register(Recorder())
