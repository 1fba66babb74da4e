"""Runs a pytest item inside an ordinal, by pytest's own hooks, and ships what happened."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from pytest_tpu import private
from pytest_tpu.errors import MismatchError, WorldStopped
from pytest_tpu.model.messages import Exited, Finished
from pytest_tpu.model.reported import PhaseReported, Recorded, Reported, Subtest, plain_fields, plain_properties
from pytest_tpu.model.verdict import Outcome
from pytest_tpu.ordinal.frames import end_at_the_call, user_line
from pytest_tpu.process.output import OutputFiles

When = Literal["setup", "call", "teardown"]


class _Catcher:
    """Hears of reports instead of pytest's own plugins: subtests log theirs from within the body."""

    def __init__(self, config: pytest.Config, send: Callable[[Any], None]) -> None:
        self._config = config
        self._send = send
        self._failed = 0
        self.sections: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Ship the report of a subtest."""
        self._failed += report.failed
        self._send(Subtest(data=serialized(self._config, report)))

    def add_report_section(self, when: str, key: str, content: str) -> None:  # noqa: ARG002 - as on items
        """Hear of a section instead of the item: those of pytest itself are what the controller reads from files."""
        if key not in ("stdout", "stderr", "log"):
            self.sections.append((key, content))

    def judge(self, report: pytest.TestReport) -> None:
        """Fail a test whose subtests failed: pytest does so where it shows reports, which is not here.

        Not in the hook that makes reports: subtests that come after a failed one, or are around it, make theirs by it.
        """
        if self._failed and report.passed:
            report.outcome = "failed"
            report.longrepr = f"contains {self._failed} failed subtest{'s' if self._failed > 1 else ''}"

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Keep pytest-timeout out of ordinals: the controller holds the limit."""
        return True

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> bool:
        """There is no timer."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One item, about to run in a forked process.

    Args:
        item: as the controller collected and, in part, set it up.
        runtest: the item's own way to run, which the controller has replaced on the item.
        setup: likewise; None where the controller has done it.
        teardown: likewise; None where the controller will do it.
        deferred: the fixtures that the controller left to the ordinals.
        recorded: where warnings are recorded, in a child too.
    """

    item: pytest.Item
    runtest: Callable[[], None]
    setup: Callable[[], None] | None = None
    teardown: Callable[[], None] | None = None
    deferred: Sequence[str] = ()
    recorded: Sequence[warnings.WarningMessage] = ()

    def run(self, output: OutputFiles, send: Callable[[Any], None]) -> Finished | Exited:
        """Run it; returns what the engine is to be told."""
        item = self.item
        private.empty_finalizers(item.session)
        private.restart_capture(item.config, output.take_over)
        private.divert_terminal(item.config)
        private.divert_logging(item.config, output.write)
        catcher = _Catcher(item.config, send)
        private.log_to(item.config, catcher)
        item.runtest = self._runtest  # type: ignore[method-assign]
        item.add_report_section = catcher.add_report_section  # type: ignore[method-assign]
        before = len(self.recorded)
        try:
            phases = self._phases(send, catcher)
        except pytest.exit.Exception as error:
            return Exited(at=time.monotonic(), reason=str(error.msg), returncode=error.returncode)
        except KeyboardInterrupt:
            return Exited(
                at=time.monotonic(), reason="KeyboardInterrupt in the test", returncode=None, interrupted=True
            )
        reported = Reported(
            warnings=tuple(Recorded.of(warning) for warning in self.recorded[before:]),
            properties=plain_properties(item.user_properties),
            sections=tuple(catcher.sections),
        )
        return _finished(phases, reported)

    def _runtest(self) -> None:
        for name in self.deferred:
            private.fixture_value(self.item, name)
        self.runtest()

    def _phases(self, send: Callable[[Any], None], catcher: _Catcher) -> list[_Phase]:
        phases: list[_Phase] = []

        def run(when: When, act: Callable[[], None]) -> None:
            phase = _run_phase(self.item, when, act)
            if when == "call":
                catcher.judge(phase.report)
            phases.append(phase)
            send(PhaseReported(data=serialized(self.item.config, phase.report)))

        try:
            if self.setup is not None:
                run("setup", self.setup)
            if not phases or phases[0].report.passed:
                run("call", lambda: self.item.ihook.pytest_runtest_call(item=self.item))
        except (pytest.exit.Exception, KeyboardInterrupt):
            # Pytest finishes fixtures at the end of the session then; here the process ends before that. What goes
            # wrong in them would hide who asked for the end.
            with suppress(BaseException):
                self._finish()
            raise
        run("teardown", self._finish)
        return phases

    def _finish(self) -> None:
        try:
            private.run_finalizers(self.item.session)
        finally:
            if self.teardown is not None:
                self.teardown()


@dataclass(frozen=True, slots=True)
class _Phase:
    report: pytest.TestReport
    error: BaseException | None
    where: str
    at: float


def _run_phase(item: pytest.Item, when: When, act: Callable[[], None]) -> _Phase:
    reraise = (pytest.exit.Exception, KeyboardInterrupt)
    call = pytest.CallInfo.from_call(act, when=when, reraise=reraise)
    at = time.monotonic()
    if call.excinfo is not None:
        end_at_the_call(call.excinfo.value)
    if call.excinfo is not None and isinstance(call.excinfo.value, WorldStopped):
        report = _stopped(item, when)
    else:
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    where = "" if call.excinfo is None else user_line(call.excinfo.tb, item.config.rootpath)
    return _Phase(report, None if call.excinfo is None else call.excinfo.value, where, at)


def _stopped(item: pytest.Item, when: When) -> pytest.TestReport:
    """A report without a traceback: it would explain nothing, and eight processes that format one are slow."""
    report = pytest.TestReport.from_item_and_call(item, pytest.CallInfo.from_call(lambda: None, when=when))
    report.outcome = "failed"
    report.longrepr = "stopped by the controller"
    return report


def _finished(phases: Sequence[_Phase], reported: Reported) -> Finished:
    """Draw this ordinal's own word from its reports."""
    deciding = _deciding(phases)
    outcome = _outcome(deciding)
    return Finished(
        at=deciding.at,
        outcome=outcome,
        reason=_reason(deciding, outcome),
        where=deciding.where,
        data=reported,
    )


def _deciding(phases: Sequence[_Phase]) -> _Phase:
    """The first that is not a plain pass; where that is no failure, a failure after it: pytest would report both."""
    first = next((phase for phase in phases if _outcome(phase) is not Outcome.PASSED), phases[0])
    if _outcome(first) is Outcome.STOPPED:
        return first
    return next((phase for phase in phases if _outcome(phase) in (Outcome.FAILED, Outcome.MISMATCHED)), first)


def _outcome(phase: _Phase) -> Outcome:
    report = phase.report
    if isinstance(phase.error, WorldStopped):
        return Outcome.STOPPED
    if isinstance(phase.error, MismatchError):
        return Outcome.MISMATCHED
    if isinstance(phase.error, pytest.xfail.Exception) and report.skipped:
        return Outcome.GAVE_UP
    if report.skipped:
        return Outcome.XFAILED if hasattr(report, "wasxfail") else Outcome.SKIPPED
    if report.failed:
        return Outcome.XPASSED if _passed_strictly(phase) else Outcome.FAILED
    return Outcome.XPASSED if hasattr(report, "wasxfail") else Outcome.PASSED


def _passed_strictly(phase: _Phase) -> bool:
    """Whether a strict xfail mark made a failure out of a body that raised nothing."""
    return phase.error is None and str(phase.report.longrepr).startswith("[XPASS(strict)]")


def _reason(phase: _Phase, outcome: Outcome) -> str:
    report = phase.report
    if outcome in (Outcome.XFAILED, Outcome.GAVE_UP, Outcome.XPASSED):
        return str(getattr(report, "wasxfail", report.longrepr))
    if outcome is Outcome.SKIPPED and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    if outcome is Outcome.MISMATCHED:
        return str(phase.error)
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr or "") if crash is None else str(crash.message)
    prefix = "" if report.when == "call" else f"{report.when}: "
    return prefix + (text.strip().splitlines() or [""])[0]


def serialized(config: pytest.Config, report: pytest.TestReport) -> dict[str, Any]:
    """Turn a report into plain values, by pytest's own hook; what others have put on it and isn't plain stays here."""
    data: dict[str, Any] = config.hook.pytest_report_to_serializable(config=config, report=report)
    data["user_properties"] = plain_properties(report.user_properties)
    return plain_fields(data)
