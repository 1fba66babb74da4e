"""What happens to tests when they are collected: parametrization over cores, refusal of bad markers, what is ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from pytest_tpu.errors import SettingError
from pytest_tpu.markers import apply, availability, core_ids, launch_of, world_sizes
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.settings import LaunchKind, MarkedLaunch
from pytest_tpu.options import isolates
from pytest_tpu.run import Run

_NEED_A_HOST = frozenset({"tpu_world", "tpu_cores", "tpu_launch"})
"""Fixtures of ours that mean nothing without cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be done with one item.

    Args:
        kind: whether its body runs on every ordinal or all of it in one process; None leaves it to pytest.
        cores: of the world, or of the host that the process sees.
        limits: of its launch.
        refusal: why it can't run here, or None.
    """

    kind: LaunchKind | None
    cores: int
    limits: Limits
    refusal: str | None


def ours(items: Sequence[pytest.Item], run: Run) -> list[tuple[pytest.Item, Wanted]]:
    """Find the items that ask for ordinals, for a process of their own, or for a host."""
    try:
        return [(item, wanted) for item in items if (wanted := _wanted(item, run)) is not None]
    except SettingError as error:
        # Added after the collection, where `judged` could not see it: by another plugin, or a conftest.
        raise pytest.UsageError(str(error)) from None


def _wanted(item: pytest.Item, run: Run) -> Wanted | None:
    marked = _marked(item)
    fixtures = frozenset(getattr(item, "fixturenames", ()))
    kind = marked.kind if marked is not None else None
    if marked is None and "tpu_world" in fixtures:
        kind = LaunchKind.MULTI_PROCESS
    elif marked is None and isolates(run.settings, item.iter_markers()):
        kind = LaunchKind.ISOLATED
    if kind is LaunchKind.ISOLATED and item.config.getoption("setuponly", False):
        # Its process would run the body too.
        kind = None
    needs_host = marked is not None or bool(fixtures & _NEED_A_HOST)
    if kind is None and not needs_host:
        return None
    cores = _cores(item, marked.cores if marked is not None else None)
    settings = apply(marked, run.settings)
    return Wanted(
        kind=kind,
        cores=cores or run.cores or 1,
        limits=settings.limits,
        refusal=availability(cores, run.host, run.settings, run.reason) if needs_host else None,
    )


def _marked(item: pytest.Item) -> MarkedLaunch | None:
    """Read the marker of an item; raises SettingError if it is wrong, or contradicts the fixtures."""
    marked = launch_of(item)
    if marked is not None and marked.kind is LaunchKind.ISOLATED and "tpu_world" in getattr(item, "fixturenames", ()):
        raise SettingError(
            f"{marked.kind.marker} on {item.nodeid} contradicts its fixture tpu_world: an isolated test is no ordinal"
            " and has no world; use pytest_tpu.multi_process, or launch inside the test"
        )
    return marked


def _cores(item: pytest.Item, marked: Sequence[int] | None) -> int | None:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if "tpu_cores" in parameters:
        return int(parameters["tpu_cores"])
    if marked is not None and len(marked) > 1:
        raise SettingError(f"cores={marked} on {item.nodeid} came too late to parametrize it: give one number")
    return marked[0] if marked else None


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
                _marked(node)
            except SettingError as error:
                report.outcome = "failed"
                report.longrepr = str(error)
                report.result = []
                break
    return report
