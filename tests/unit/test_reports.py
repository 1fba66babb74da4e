from __future__ import annotations

from typing import Any, Literal

import pytest
from _pytest.subtests import SubtestContext, SubtestReport

from pytest_tpu import reports
from pytest_tpu.model.reported import Recorded, Reported
from pytest_tpu.model.verdict import LaunchError, Outcome, Verdict, VerdictKind
from tests.fakes import died, said, verdict

WHERE = ("/project/test_a.py", 7)
Word = Literal["passed", "failed", "skipped"]


def failure(text: str) -> Any:
    """How pytest shows an exception."""
    try:
        raise ValueError(text)
    except ValueError:
        return pytest.ExceptionInfo.from_current().getrepr()


def report(word: Word, longrepr: Any = None, *, when: Any = "call", wasxfail: str | None = None) -> pytest.TestReport:
    """One phase of one ordinal."""
    made = pytest.TestReport("test_a.py::test", ("test_a.py", 6, "test"), {}, word, longrepr, when, duration=1.5)
    if wasxfail is not None:
        made.wasxfail = wasxfail
    return made


PASS = report("passed")
ENDS_WELL = report("passed", when="teardown")
TWO = (said(0, Outcome.PASSED), said(1, Outcome.FAILED, "ValueError: x"))


def merged(judged: Verdict, phases: dict[int, list[pytest.TestReport]]) -> reports.Substitute:
    """Merge them for a test that stands in a file."""
    return reports.merged(judged, phases, WHERE)


class TestMerged:
    def test_pass(self) -> None:
        """What all ordinals passed is a plain pass."""
        states = (said(0, Outcome.PASSED), said(1, Outcome.PASSED))
        agreed = verdict(VerdictKind.AGREED, *states, outcome=Outcome.PASSED)

        assert merged(agreed, {0: [PASS, ENDS_WELL], 1: [PASS, ENDS_WELL]}).plain_pass

    @pytest.mark.parametrize(
        ("outcome", "own"),
        [
            (Outcome.SKIPPED, report("skipped", ("/project/test_a.py", 9, "Skipped: why"))),
            (Outcome.XFAILED, report("skipped", "ValueError", wasxfail="known")),
            (Outcome.GAVE_UP, report("skipped", "known", wasxfail="reason: known")),
            (Outcome.XPASSED, report("passed", wasxfail="known")),
            (Outcome.XPASSED, report("failed", "[XPASS(strict)] known")),
        ],
        ids=["skipped", "xfailed", "called xfail", "xpassed", "xpassed strictly"],
    )
    def test_agreement(self, outcome: Outcome, own: pytest.TestReport) -> None:
        """What all ordinals say alike is what pytest says, untouched."""
        states = (said(0, outcome, "why"), said(1, outcome, "why"))
        substitute = merged(
            verdict(VerdictKind.AGREED, *states, outcome=outcome), {0: [own, ENDS_WELL], 1: [own, ENDS_WELL]}
        )

        assert not substitute.plain_pass
        assert (own.outcome, own.longrepr) == (substitute.outcome, substitute.longrepr)
        assert getattr(own, "wasxfail", None) == substitute.wasxfail

    def test_raised(self) -> None:
        """The first cause is shown as pytest shows it, under our headline, with the table of ordinals after it."""
        other, first = report("failed", failure("other")), report("failed", failure("cause"))
        substitute = merged(verdict(VerdictKind.RAISED, *TWO, first=1), {0: [other], 1: [first]})
        lines = str(substitute.longrepr).splitlines()

        assert "failed" == substitute.outcome
        assert "RAISED: in words" == substitute.longrepr.reprcrash.message
        assert "E           ValueError: cause" in lines
        assert not any("other" in line for line in lines)
        assert any("RAISED: in words" in line for line in lines)
        assert "ordinal  pid   outcome  after  process  reason" in lines

    def test_excused(self) -> None:
        """What an xfail mark expected of those that raised is the word of the whole."""
        own = report("skipped", failure("cause"), wasxfail="known")
        excused = verdict(VerdictKind.RAISED, *TWO, first=1, outcome=Outcome.XFAILED)
        substitute = merged(excused, {0: [PASS], 1: [own]})

        assert ("skipped", "known") == (substitute.outcome, substitute.wasxfail)

    @pytest.mark.parametrize(
        "kind", [VerdictKind.DIVERGED, VerdictKind.LOST, VerdictKind.OVERDUE, VerdictKind.LINGERED]
    )
    def test_no_report_speaks(self, kind: VerdictKind) -> None:
        """Where no report of an ordinal is the cause, there is the headline and the table, at the place of the test."""
        expected = report("skipped", "ValueError", wasxfail="known")
        substitute = merged(verdict(kind, *TWO, first=1), {0: [expected], 1: [expected]})
        lines = str(substitute.longrepr).splitlines()

        assert ("failed", None) == (substitute.outcome, substitute.wasxfail)
        assert [f"{kind.value}: in words", "", "ordinal  pid   outcome  after  process  reason"] == lines[:3]
        crash = substitute.longrepr.reprcrash
        assert (*WHERE, f"{kind.value}: in words") == (crash.path, crash.lineno, crash.message)

    def test_refused(self) -> None:
        """A launch that never began has no table."""
        substitute = merged(LaunchError.refused("no device").verdict, {})

        assert "REFUSED: no device" == str(substitute.longrepr).strip()

    def test_killed_before_any_report(self) -> None:
        """A verdict that speaks of an ordinal without a report is told in our words."""
        states = (died(0, -9), said(1, Outcome.FAILED))
        substitute = merged(verdict(VerdictKind.RAISED, *states, first=0), {1: [PASS]})

        assert "failed" == substitute.outcome
        assert "RAISED: in words" == substitute.longrepr.reprcrash.message

    def test_failure_without_traceback(self) -> None:
        """A failure that is a mere text gets a headline too."""
        own = report("failed", "a sentence")
        substitute = merged(verdict(VerdictKind.RAISED, *TWO, first=1), {1: [own]})

        assert "a sentence" in str(substitute.longrepr)
        assert "RAISED: in words" == substitute.longrepr.reprcrash.message

    def test_alone(self) -> None:
        """A failure of the only process is pytest's own, without a table."""
        own = report("failed", failure("cause"))
        raised = verdict(VerdictKind.RAISED, said(0, Outcome.FAILED), first=0)

        assert own.longrepr is merged(raised, {0: [own]}).longrepr

    def test_teardown(self) -> None:
        """A failure in teardown speaks before a skip of the body."""
        phases = {1: [report("skipped", ("f", 1, "why")), report("failed", failure("torn"), when="teardown")]}

        assert "ValueError: torn" in str(merged(verdict(VerdictKind.RAISED, *TWO, first=1), phases).longrepr)


class TestSubstitute:
    def test_apply(self) -> None:
        """The report of the controller says what the ordinals said; its own duration stays, unless there is one."""
        own = report("failed", "ours")
        reports.of_report(report("skipped", "theirs", wasxfail="known")).apply(own)

        assert ("skipped", "theirs", "known", 1.5) == (own.outcome, own.longrepr, own.wasxfail, own.duration)

    def test_no_mark_is_left(self) -> None:
        """What pytest made of a mark in the controller goes, where the ordinals did not say it."""
        own = report("skipped", "ours", wasxfail="known")
        reports.Substitute(outcome="failed", longrepr="theirs", duration=2.5).apply(own)

        assert ("failed", "theirs", 2.5) == (own.outcome, own.longrepr, own.duration)
        assert not hasattr(own, "wasxfail")


def reported(*properties: tuple[str, object], warned: str = "", sections: Any = ()) -> Reported:
    """What an ordinal ships beside its reports."""
    raised = Recorded(category=b"", category_name="Own", text=warned, filename="test_a.py", lineno=3)
    return Reported(properties=properties, warnings=(raised,) if warned else (), sections=sections)


def test_sections() -> None:
    """Each ordinal's output is a section of its own, empty ones are left out, and one process has no number."""
    outputs = [{"stdout": "a", "stderr": "", "log": "b", "live": "c"}, {"stdout": "", "stderr": "d", "log": ""}]
    data = [reported(sections=(("own", "e"),)), None]

    assert [
        ("stdout (ordinal 0)", "a"),
        ("log (ordinal 0)", "b"),
        ("own (ordinal 0)", "e"),
        ("stderr (ordinal 1)", "d"),
    ] == reports.sections(outputs, data, alone=False)
    assert [("stdout", "a"), ("log", "b"), ("own", "e")] == reports.sections(outputs[:1], data[:1], alone=True)


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        ([], []),
        ([], [None, None]),
        ([("a", 1)], [reported(("before", 0), ("a", 1)), reported(("before", 0), ("a", 1))]),
        ([("a", 1)], [None, reported(("before", 0), ("a", 1))]),
        (
            [("a (ordinal 0)", 1), ("a (ordinal 1)", 2)],
            [reported(("before", 0), ("a", 1)), reported(("before", 0), ("a", 2))],
        ),
        ([("a (ordinal 1)", 2)], [reported(("before", 0)), reported(("before", 0), ("a", 2))]),
    ],
    ids=["none", "lost", "alike", "one lost", "different", "on one"],
)
def test_properties(expected: list[tuple[str, object]], data: list[Reported | None]) -> None:
    """Properties that all ordinals record alike are there once, others with their ordinal."""
    assert expected == reports.merged_properties(1, data)


def test_warnings() -> None:
    """What several ordinals warn of alike is there once."""
    data = [reported(warned="one"), None, reported(warned="one"), reported(warned="two")]

    assert ["one", "two"] == [warning.text for warning in reports.merged_warnings(data)]


def subtest(word: Word, message: str, longrepr: Any = None, **params: object) -> SubtestReport:
    """One subtest of one ordinal."""
    return SubtestReport._new(report(word, longrepr), SubtestContext(msg=message, kwargs=params), None, None)


class TestSubtests:
    def test_alike(self) -> None:
        """A subtest that all ordinals pass is one."""
        shipped = [(ordinal, subtest("passed", "a", number=number)) for ordinal in range(2) for number in range(2)]

        assert 2 == len(reports.merged_subtests(shipped))

    def test_failed_on_some(self) -> None:
        """One that fails on some is a failure, and says on which."""
        shipped = [
            (0, subtest("passed", "a")),
            (1, subtest("failed", "a", failure("x"))),
            (2, subtest("failed", "a", failure("x"))),
        ]
        (merged_report,) = reports.merged_subtests(shipped)

        assert merged_report.failed
        assert "ordinals 1-2: ValueError: x" == merged_report.longrepr.reprcrash.message  # type: ignore[union-attr]

    def test_loop(self) -> None:
        """Subtests of one name in a loop are told apart by their order."""
        shipped: list[tuple[int, pytest.TestReport]] = [
            (0, subtest("passed", "a")),
            (0, subtest("failed", "a", failure("x"))),
            (1, subtest("passed", "a")),
            (1, subtest("passed", "a")),
        ]

        assert ["passed", "failed"] == [merged_report.outcome for merged_report in reports.merged_subtests(shipped)]

    def test_alone(self) -> None:
        """Those of an isolated test are left as they are."""
        own = subtest("failed", "a", failure("x"))

        assert [own] == reports.merged_subtests([(0, own)], alone=True)
        assert "ValueError: x" == own.longrepr.reprcrash.message  # type: ignore[union-attr]
