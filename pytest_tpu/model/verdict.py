"""The one conclusion about a launch, and what it was drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pytest_tpu.errors import TpuError

UNKNOWN_END: Final = 256
"""The exit code of a process whose own is lost: something else took it. No process has this one."""


class VerdictKind(Enum):
    """What kind of end a launch had: exactly one, that of the first event in time."""

    AGREED = "AGREED"
    """Every ordinal reported the same outcome: passed, skipped, xfailed or failed alike."""
    RAISED = "RAISED"
    """The body of one or more ordinals raised; the first in time is the headline. An xfail mark may excuse it."""
    DIVERGED = "DIVERGED"
    """All reported, and the outcomes differ otherwise: some skipped, some passed."""
    STALLED = "STALLED"
    """Some wait in a collective that can't be completed: others returned, were skipped, or never came."""
    MISMATCHED = "MISMATCHED"
    """The ordinals called different collectives under the same number."""
    LOST = "LOST"
    """An ordinal process ended without a report, or not cleanly after it."""
    OVERDUE = "OVERDUE"
    """The time limit passed."""
    LINGERED = "LINGERED"
    """The bodies have returned and a process does not end."""
    REFUSED = "REFUSED"
    """The world never became ready."""


class Phase(Enum):
    """Where in its life an ordinal is."""

    STARTING = "starting"
    BODY = "body"
    RETURNED = "returned"
    RAISED = "raised"
    ENDED = "ended"


class Outcome(Enum):
    """What an ordinal's own word about its body was."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    """It raised, and an xfail mark (with its `raises`) expected that."""
    GAVE_UP = "called xfail"
    """Its body called `pytest.xfail`."""
    XPASSED = "xpassed"
    MISMATCHED = "mismatched"
    REFUSED = "refused"
    STOPPED = "stopped"
    """It was interrupted by the controller, so that its word does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinalState:
    """All that is known of one ordinal at one moment.

    Args:
        ordinal: its number.
        pid: its process.
        phase: where in its life it is.
        phase_at: since when, monotonic seconds.
        outcome: its own word, once given.
        reason: that word's one line, for example ``"AssertionError: assert 3 == 2"``.
        where: the user's line that belongs to it, for example ``"test_step.py:41"``.
        exit_code: of the ended process, negative for a signal, UNKNOWN_END if it is lost; None while it runs.
        exit_at: when it was last seen alive before its end, monotonic seconds: others that raise just after that
            rather follow from its death than cause it.
        stopped: whether the controller had begun to end it before it ended.
        threads: the other Python threads that lived when it gave its word.
        processes: what it had started and still lived when the controller began to stop it, as ``"sleep (4711)"``.
    """

    ordinal: int
    pid: int
    phase: Phase = Phase.STARTING
    phase_at: float = 0.0
    outcome: Outcome | None = None
    reason: str = ""
    where: str = ""
    exit_code: int | None = None
    exit_at: float | None = None
    stopped: bool = False
    threads: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion about one launch.

    Args:
        kind: which of the kinds.
        headline: one line that is enough in pytest's short summary.
        first: the ordinal of the first event, or None where all are alike.
        outcome: the common outcome of AGREED ordinals; XFAILED for a RAISED that an xfail mark excuses; else None.
        ordinals: the states that it was drawn from, in ordinal order.
        elapsed: seconds from the launch to the conclusion.
        started_at: monotonic seconds.
        noun: what one process is called: ``"ordinal"``, or ``"isolated process"``.
    """

    kind: VerdictKind
    headline: str
    first: int | None
    outcome: Outcome | None
    ordinals: tuple[OrdinalState, ...]
    elapsed: float
    started_at: float
    noun: str = "ordinal"

    @property
    def excused(self) -> bool:
        """Whether an xfail mark expected what was raised, on every ordinal that raised."""
        return self.kind is VerdictKind.RAISED and self.outcome is Outcome.XFAILED

    @property
    def passed(self) -> bool:
        """Whether every ordinal passed and ended cleanly."""
        return self.kind is VerdictKind.AGREED and self.outcome is Outcome.PASSED


class LaunchError(TpuError):
    """A launch did not pass; it carries the verdict, and its text is headline and table.

    An exception that the body of an ordinal raised comes as itself where it can travel; you get this one for all
    other ends: a process that died, a limit that passed, outcomes that differ, an exception that can't be pickled.
    """

    # The public name, which leaves more room for the headline in pytest's short summary.
    __module__ = "pytest_tpu"

    def __init__(self, verdict: Verdict, text: str) -> None:
        super().__init__(text)
        self.verdict = verdict

    @classmethod
    def refused(cls, why: str) -> LaunchError:
        """A launch that was never begun."""
        headline = f"REFUSED: {why}"
        verdict = Verdict(
            kind=VerdictKind.REFUSED,
            headline=headline,
            first=None,
            outcome=None,
            ordinals=(),
            elapsed=0.0,
            started_at=0.0,
        )
        return cls(verdict, headline)
