"""From what the ordinals shipped to the one report of the item, its sections and its properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_tpu import private
from pytest_tpu.diagnose.table import table
from pytest_tpu.model.ordinals import name_ordinals
from pytest_tpu.model.reported import Reported
from pytest_tpu.model.verdict import Outcome, Verdict, VerdictKind

_TITLE = 200
"""Characters of a headline that head a section: it stands in the failure itself and in the summary whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """What the report of one phase of the controller is to say instead.

    Args:
        outcome: passed, failed or skipped.
        longrepr: as pytest shows it.
        wasxfail: the reason of an xfail that holds, or None.
        duration: seconds, or None to keep the controller's.
    """

    outcome: str
    longrepr: Any
    wasxfail: str | None = None
    duration: float | None = None

    @property
    def plain_pass(self) -> bool:
        """Whether it is what the controller would report anyway."""
        return self.outcome == "passed" and self.wasxfail is None

    @property
    def skip_reason(self) -> str | None:
        """Why the body was skipped; None if it was not, or only by an xfail mark."""
        if self.outcome != "skipped" or self.wasxfail is not None:
            return None
        text = self.longrepr[2] if isinstance(self.longrepr, tuple) else self.longrepr
        return str(text).removeprefix("Skipped: ")

    def apply(self, report: pytest.TestReport) -> None:
        """Write it into pytest's report of that phase."""
        report.outcome = self.outcome  # type: ignore[assignment]
        report.longrepr = self.longrepr
        if self.wasxfail is not None:
            report.wasxfail = self.wasxfail
        elif hasattr(report, "wasxfail"):
            del report.wasxfail
        if self.duration is not None:
            report.duration = self.duration


def merged(verdict: Verdict, phases: Mapping[int, Sequence[pytest.TestReport]], where: tuple[str, int]) -> Substitute:
    """Make one report out of those of all ordinals.

    Args:
        verdict: of the launch.
        phases: by ordinal, the reports of the phases that ended there.
        where: path and line of the item, for ends that have no traceback.
    """
    report = _spoken_of(verdict, phases)
    if report is None:
        # A process that is no ordinal has no table of ordinals, and its headline says it all.
        several = verdict.ordinals and verdict.noun == "ordinal"
        text = f"{verdict.headline}\n\n{table(verdict)}" if several else verdict.headline
        return Substitute(outcome="failed", longrepr=private.text_repr(verdict.headline, text, *where))
    if verdict.excused or (verdict.kind is VerdictKind.AGREED and verdict.outcome is not Outcome.FAILED):
        return of_report(report)
    return Substitute(outcome="failed", longrepr=_with_table(report.longrepr, verdict, where))


def of_report(report: pytest.TestReport, *, with_duration: bool = False) -> Substitute:
    """Take a report over as it is."""
    return Substitute(
        outcome=report.outcome,
        longrepr=report.longrepr,
        wasxfail=getattr(report, "wasxfail", None),
        duration=report.duration if with_duration else None,
    )


def _spoken_of(verdict: Verdict, phases: Mapping[int, Sequence[pytest.TestReport]]) -> pytest.TestReport | None:
    """The report that the headline speaks of; none where a process died, a limit passed or outcomes differ."""
    if verdict.kind not in (VerdictKind.AGREED, VerdictKind.RAISED, VerdictKind.MISMATCHED):
        return None
    reports = phases.get(verdict.first or 0, ())
    if verdict.kind is VerdictKind.MISMATCHED and not any(report.failed for report in reports):
        return None  # The body caught the error: its reports know nothing of it.
    telling = [*(report for report in reports if report.failed), *(report for report in reports if report.skipped)]
    return next(iter([*telling, *reports]), None)


def deserialized(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    """Read what an ordinal serialized, by pytest's own hook."""
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=data)
    private.restore_context(report, data)
    return report


def _with_table(longrepr: Any, verdict: Verdict, where: tuple[str, int]) -> Any:
    if len(verdict.ordinals) == 1:
        return longrepr
    if not private.set_headline(longrepr, verdict.headline):
        longrepr = private.text_repr(verdict.headline, f"{longrepr}\n", *where)
    title = verdict.headline.splitlines()[0][:_TITLE]
    longrepr.addsection(title, table(verdict), "-")
    return longrepr


def sections(outputs: Iterable[dict[str, str]], data: Sequence[Any], alone: bool) -> list[tuple[str, str]]:
    """Name the output of each ordinal so that pytest shows it and JUnit takes it: a section of its own for each.

    Args:
        outputs: by ordinal, stream name to text.
        data: by ordinal, its `Reported` or None: it has the sections that the test itself added.
        alone: whether the process was none of several.
    """
    found = []
    for ordinal, (streams, reported) in enumerate(zip(outputs, data, strict=True)):
        suffix = "" if alone else f" (ordinal {ordinal})"
        found += [(f"{name}{suffix}", streams[name]) for name in ("stdout", "stderr", "log") if streams.get(name)]
        if isinstance(reported, Reported):
            found += [(f"{name}{suffix}", text) for name, text in reported.sections]
    return found


def merged_properties(before: int, data: Sequence[Any]) -> list[tuple[str, object]]:
    """Bring the properties that the ordinals recorded together: alike ones once, others with their ordinal.

    Args:
        before: how many the item had already.
        data: by ordinal, its `Reported` or None.
    """
    by_ordinal = {k: list(r.properties[before:]) for k, r in enumerate(data) if isinstance(r, Reported)}
    found = list(by_ordinal.values())
    if found and all(properties == found[0] for properties in found):
        return found[0]
    return [
        (f"{name} (ordinal {ordinal})", value)
        for ordinal, properties in by_ordinal.items()
        for name, value in properties
    ]


def merged_warnings(data: Sequence[Any]) -> list[Any]:
    """Each warning once, though all ordinals may have raised it."""
    found = [warning for reported in data if isinstance(reported, Reported) for warning in reported.warnings]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Key:
    message: str | None
    params: tuple[tuple[str, str], ...]


def merged_subtests(shipped: Sequence[tuple[int, pytest.TestReport]], alone: bool = False) -> list[pytest.TestReport]:
    """One report for each subtest: the first that did not pass speaks for it, and names the ordinals alike.

    Args:
        shipped: ordinal and report, in the order of arrival.
        alone: whether the process was none of several.
    """
    if alone:
        return [report for _, report in shipped]
    groups: dict[tuple[_Key, int], list[tuple[int, pytest.TestReport]]] = {}
    counts: dict[tuple[int, _Key], int] = {}
    for ordinal, report in shipped:
        key = _subtest_key(report)
        # A body may open the same subtest in a loop: the first of one ordinal belongs to the first of the others.
        counts[ordinal, key] = counts.get((ordinal, key), 0) + 1
        groups.setdefault((key, counts[ordinal, key]), []).append((ordinal, report))
    return [_spokesman(members) for members in groups.values()]


def _subtest_key(report: Any) -> _Key:
    return _Key(report.context.msg, tuple((name, str(value)) for name, value in report.context.kwargs.items()))


def _spokesman(members: Sequence[tuple[int, pytest.TestReport]]) -> pytest.TestReport:
    order = {"failed": 0, "skipped": 1, "passed": 2}
    speaker = min((report for _, report in members), key=lambda report: order[report.outcome])
    if speaker.failed:
        failed = [ordinal for ordinal, report in members if report.failed]
        crash = getattr(speaker.longrepr, "reprcrash", None)
        if crash is not None:
            crash.message = f"{name_ordinals(failed)}: {crash.message}"
    return speaker
