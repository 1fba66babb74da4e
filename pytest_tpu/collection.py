"""What happens to tests when they are collected: parametrization over cores, and refusal of bad markers."""

from __future__ import annotations

import pytest

from pytest_tpu.errors import SettingError
from pytest_tpu.markers import core_ids, launch_of, world_sizes
from pytest_tpu.run import Run


def parametrize(metafunc: pytest.Metafunc, run: Run) -> None:
    """Run a test that asks for several world sizes with each of them: `cores=(1, 8)`, or the fixture `tpu_cores`."""
    try:
        marked = launch_of(metafunc.definition)
    except SettingError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    several = marked.cores if marked is not None else None
    uses_fixture = "tpu_cores" in metafunc.fixturenames
    if not uses_fixture and (several is None or len(several) == 1):
        return
    sizes = world_sizes(several if several is not None else (1, None), run.cores)
    if not uses_fixture:
        metafunc.fixturenames.append("tpu_cores")
    metafunc.parametrize("tpu_cores", sizes, ids=core_ids(sizes))


def judged(report: pytest.CollectReport) -> pytest.CollectReport:
    """Make an error of one sentence of a collector's report if a marker of its tests is wrong."""
    for node in report.result or ():
        if isinstance(node, pytest.Item):
            try:
                launch_of(node)
            except SettingError as error:
                report.outcome = "failed"
                report.longrepr = str(error)
                report.result = []
                break
    return report
