"""One item in, its reports out: what the pytest process does for a test that runs on ordinals or isolated."""

from __future__ import annotations

import inspect
import sys
import time
import unittest
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_tpu import callables, private, reports
from pytest_tpu.backend import Backend
from pytest_tpu.collection import Wanted
from pytest_tpu.errors import BackendError, UnsupportedError
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.place import Place
from pytest_tpu.model.reported import Subtest
from pytest_tpu.model.settings import LaunchKind, Settings
from pytest_tpu.model.verdict import LaunchError, Outcome, VerdictKind
from pytest_tpu.ordinal.session import Session
from pytest_tpu.process.output import OutputFiles
from pytest_tpu.run import WORLD, Run
from pytest_tpu.supervise import Ended, Launch, supervise


@dataclass(kw_only=True)
class Adopted:
    """An item whose phases are ours.

    Args:
        run: of the session.
        kind: whether its body runs on every ordinal, or all of it in one process.
        cores: of the world, or of the host that the process sees.
        limits: of the launch.
        runtest: the item's own phase, replaced on the item.
        setup: likewise.
        teardown: likewise.
        warnings: what was warned of since the test began.
    """

    run: Run
    kind: LaunchKind
    cores: int
    limits: Limits
    runtest: Callable[[], None]
    setup: Callable[[], None]
    teardown: Callable[[], None]
    warnings: list[warnings.WarningMessage] = field(default_factory=list)


ADOPTED = pytest.StashKey[Adopted]()
"""On an item of ours."""

SUBSTITUTES = pytest.StashKey["dict[str, reports.Substitute]"]()
"""On an item of ours: by phase, what the report is to say; filled by the launch."""


class Controller:
    """The plugin that is registered where a run has items of ours; without any, none of this is imported."""

    def __init__(self, run: Run, items: Sequence[tuple[pytest.Item, Wanted]]) -> None:
        for item, wanted in items:
            if SUBSTITUTES in item.stash:
                # Plugins that repeat tests may list an item more than once.
                continue
            if wanted.refusal is not None:
                _refuse(item, wanted.refusal, run.settings)
            elif wanted.kind is not None:
                _adopt(item, wanted, wanted.kind, run)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record what a test of ours warns of, for its ordinals to ship."""
        with _recording(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let the report say what the ordinals said.

        Registered after pytest's own plugins, this wrapper stands outside the one that judges xfail, and inside those
        (tryfirst) that keep or delete tmp_path by the outcome.
        """
        report = yield
        substitute_report(item, call, report)
        return report


def _adopt(item: pytest.Item, wanted: Wanted, kind: LaunchKind, run: Run) -> None:
    adopted = Adopted(
        run=run,
        kind=kind,
        cores=wanted.cores,
        limits=wanted.limits,
        runtest=item.runtest,
        setup=item.setup,
        teardown=item.teardown,
    )
    item.stash[ADOPTED] = adopted
    item.stash[SUBSTITUTES] = {}
    _replace_phases(item, adopted)


def _refuse(item: pytest.Item, why: str, settings: Settings) -> None:
    if not settings.require:
        item.add_marker(pytest.mark.skip(reason=why))
        return

    error = LaunchError.refused(why)

    def fail() -> None:
        raise error

    # No mark excuses what is required.
    item.stash[SUBSTITUTES] = {"call": reports.merged(error.verdict, {}, _where(item))}
    # Nothing of it is set up: its fixtures may need what is missing.
    item.setup = lambda: None  # type: ignore[method-assign]
    item.teardown = lambda: None  # type: ignore[method-assign]
    item.runtest = fail  # type: ignore[method-assign]


def _replace_phases(item: pytest.Item, adopted: Adopted) -> None:
    """Replace what pytest calls; its hooks around it, and the plugins in them, stay as they are."""
    if adopted.kind is LaunchKind.MULTI_PROCESS:
        deferred = private.needs_fixture(item, "tpu_world")
        names: list[str] = getattr(item, "fixturenames", [])
        # A body that asks for the world late gets the one that was there before the fork, and its directory.
        names = [name for name in dict.fromkeys([*names, "tpu_world"]) if name not in deferred]
        item.fixturenames = names  # type: ignore[attr-defined]
        item.runtest = lambda: run_on_ordinals(item, adopted, deferred)  # type: ignore[method-assign]
    else:
        item.setup = lambda: run_isolated(item, adopted)  # type: ignore[method-assign]
        item.runtest = lambda: _end_phase(item, "call")  # type: ignore[method-assign]
        item.teardown = lambda: _end_phase(item, "teardown")  # type: ignore[method-assign]


def run_on_ordinals(item: pytest.Item, adopted: Adopted, deferred: Sequence[str]) -> None:
    """Run the body of `item` on every ordinal of a fresh world; in the place of the item's own `runtest`."""
    item.stash[SUBSTITUTES].clear()
    backend = _ready(item, adopted, "call")
    assert backend is not None
    session = Session(item=item, runtest=adopted.runtest, deferred=deferred, recorded=adopted.warnings)

    def work(place: Place, output: OutputFiles, send: Callable[[Any], None]) -> Any:
        if WORLD in item.stash:
            item.stash[WORLD].bind(place.ordinal, place.size, backend)
        return session.run(output, send)

    ended, phases = _launch(item, adopted, work, alone=False)
    substitute = reports.merged(ended.verdict, phases, _where(item))
    item.stash[SUBSTITUTES]["call"] = substitute
    if substitute.skip_reason is not None:
        raise private.SkippedElsewhere(substitute.skip_reason)
    if not substitute.plain_pass:
        raise LaunchError(ended.verdict, ended.verdict.headline)


def run_isolated(item: pytest.Item, adopted: Adopted) -> None:
    """Run all of `item` in one process; in the place of its `setup`, so that each phase can report as itself later."""
    item.stash[SUBSTITUTES].clear()
    backend = _ready(item, adopted, "setup")
    session = Session(
        item=item,
        runtest=adopted.runtest,
        setup=adopted.setup,
        teardown=adopted.teardown,
        recorded=adopted.warnings,
    )

    began = time.monotonic()

    def work(_place: Place, output: OutputFiles, send: Callable[[Any], None]) -> Any:
        deadline = began + adopted.limits.timeout if adopted.limits.timeout else None
        callables.stay_within(callables.Outer(deadline=deadline, send=send))
        if backend is not None:
            adopted.run.guard.stand_down()
            backend.set_launcher(callables.Launcher(backend=backend, cores=adopted.cores, limits=adopted.limits))
        return session.run(output, send)

    ended, phases = _launch(item, adopted, work, alone=True)
    _note_phases(item, ended, phases.get(0, []))
    _end_phase(item, "setup")


def _note_phases(item: pytest.Item, ended: Ended, phases: Sequence[pytest.TestReport]) -> None:
    """Give each phase of the controller the report of the same phase in the process."""
    said = {str(phase.when): reports.of_report(phase, with_duration=True) for phase in phases}
    item.stash[SUBSTITUTES].update(said)
    if ended.verdict.kind not in (VerdictKind.AGREED, VerdictKind.RAISED, VerdictKind.MISMATCHED):
        # It did not come to its end: the phase that it was in is the first without a report of its own; what a phase
        # says that the controller interrupted is not its own.
        stopped = ended.verdict.ordinals[0].outcome is Outcome.STOPPED
        done = [name for name, own in said.items() if own.outcome == "passed" or not stopped]
        when = next((name for name in ("setup", "call") if name not in done), "teardown")
        item.stash[SUBSTITUTES][when] = reports.merged(ended.verdict, {}, _where(item))


def _end_phase(item: pytest.Item, when: str) -> None:
    """Make what happened in the process real here: what follows in pytest depends on it."""
    substitute = item.stash[SUBSTITUTES].get(when)
    if substitute is None or substitute.plain_pass:
        return
    if substitute.skip_reason is not None:
        raise private.SkippedElsewhere(substitute.skip_reason)
    raise _IsolatedPhase(f"{when} in the isolated process")


class _IsolatedPhase(Exception):
    """Stands in for what a phase raised in the isolated process; the report shows the original."""


@contextmanager
def _recording(item: pytest.Item) -> Iterator[None]:
    """Record warnings just inside of where pytest does, and hand them to those who hear of them as pytest does.

    Pytest's own record can't be reached, and one that began on the ordinal would stand before recwarn, which began in
    the controller.
    """
    adopted = item.stash.get(ADOPTED, None)
    if adopted is None or not item.config.pluginmanager.hasplugin("warnings"):
        yield
        return
    with warnings.catch_warnings(record=True) as adopted.warnings:
        try:
            yield
        finally:
            for message in adopted.warnings:
                item.ihook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": message, "nodeid": item.nodeid, "when": "runtest", "location": None}
                )


def substitute_report(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Let the report of a phase say what the ordinals said, unless more than that went wrong here."""
    substitutes = item.stash.get(SUBSTITUTES, None)
    if substitutes is None or hasattr(report, "context"):
        return
    substitute = substitutes.get(report.when)
    if substitute is not None and (substitute.outcome == "failed" or not _failed_here(call)):
        substitute.apply(report)


def _failed_here(call: pytest.CallInfo[None]) -> bool:
    """Whether something other than what the ordinals said ended the phase: a plugin, a thread of the controller."""
    return call.excinfo is not None and not isinstance(
        call.excinfo.value, (LaunchError, _IsolatedPhase, private.SkippedElsewhere)
    )


def _ready(item: pytest.Item, adopted: Adopted, when: str) -> Backend | None:
    """Check that a launch is possible, and load what its processes need; the failure is one that no xfail excuses."""
    try:
        if adopted.kind is LaunchKind.MULTI_PROCESS:
            _require_synchronous(item)
        adopted.run.guard.refuse()
        if adopted.run.backend is not None:
            adopted.run.backend.load()
    except (BackendError, UnsupportedError) as error:
        raise _refused(item, when, LaunchError.refused(str(error))) from None
    except LaunchError as error:
        raise _refused(item, when, error) from None
    return adopted.run.backend


def _refused(item: pytest.Item, when: str, error: LaunchError) -> LaunchError:
    item.stash[SUBSTITUTES][when] = reports.merged(error.verdict, {}, _where(item))
    return error


def _require_synchronous(item: pytest.Item) -> None:
    function = getattr(item, "obj", None)
    if (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)) and not _brings_its_loop(item):
        raise UnsupportedError(
            f"{item.name} is a coroutine, and its event loop belongs to pytest's process, where ordinals can't share"
            " it: use @pytest_tpu.isolated, or run a loop inside a plain test function"
        )


def _brings_its_loop(item: pytest.Item) -> bool:
    """Whether its class makes an event loop where it runs, and ends it there."""
    cls = getattr(item, "cls", None)
    return isinstance(cls, type) and issubclass(cls, unittest.IsolatedAsyncioTestCase)


def _where(item: pytest.Item) -> tuple[str, int]:
    path, line, _ = item.reportinfo()
    return str(path), (line or 0) + 1


def _launch(
    item: pytest.Item, adopted: Adopted, work: Any, *, alone: bool
) -> tuple[Ended, dict[int, list[pytest.TestReport]]]:
    """Launch, and bring home all but the outcome: output, properties, warnings, subtests, `pytest.exit`."""
    phases: dict[int, list[pytest.TestReport]] = {}
    subtests: list[tuple[int, pytest.TestReport]] = []

    def on_message(ordinal: int, message: Any) -> None:
        report = reports.deserialized(item.config, message.data)
        if isinstance(message, Subtest):
            subtests.append((ordinal, report))
        else:
            phases.setdefault(ordinal, []).append(report)

    _prepare_fork(item)
    properties = len(item.user_properties)
    launch = Launch(
        cores=adopted.cores,
        work=work,
        limits=adopted.limits,
        alone=alone,
        noun="isolated process" if alone else "ordinal",
        on_message=on_message,
        on_output=_LiveOutput(item.config, alone).show,
    )
    try:
        ended = supervise(launch, adopted.run.backend)
    except LaunchError as error:
        raise _refused(item, "setup" if alone else "call", error) from None
    for key, text in reports.sections(ended.outputs, ended.data, alone):
        item.add_report_section("call", key, text)
    item.user_properties.extend(reports.merged_properties(properties, ended.data))
    adopted.warnings += [warning.message() for warning in reports.merged_warnings(ended.data)]
    # Past the capture: the terminal's letter for each would be taken for output of the test.
    with private.uncaptured(item.config):
        for report in reports.merged_subtests(subtests, alone):
            item.ihook.pytest_runtest_logreport(report=report)
    callables.leave_if_asked(ended.exited)
    return ended, phases


def _prepare_fork(item: pytest.Item) -> None:
    """Do once what each ordinal would otherwise do for itself."""
    factory = getattr(item.config, "_tmp_path_factory", None)
    if factory is not None:
        factory.getbasetemp()


class _LiveOutput:
    """Shows the lines of ordinals as they come: with `-s`, and live logs."""

    def __init__(self, config: pytest.Config, alone: bool) -> None:
        self._config = config
        self._alone = alone
        uncaptured = config.getoption("capture", "fd") in ("no", "tee-sys")
        self._streams = ("stdout", "stderr", "live") if uncaptured else ("live",)

    def show(self, ordinal: int, output: OutputFiles, rest: bool) -> None:
        """Write the new lines of one ordinal, with the ordinal in front."""
        for name in self._streams:
            for line in output.new_lines(name, rest=rest):
                self._write(line if self._alone else f"[ordinal {ordinal}] {line}")

    def _write(self, line: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None:
            sys.stderr.write(f"{line}\n")
            return
        with private.uncaptured(self._config):
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()
