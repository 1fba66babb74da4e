from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_tpu.diagnose.conclude import Watched, conclude, must_stop, waiting_for_ended
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.position import Position
from pytest_tpu.model.verdict import UNKNOWN_END, OrdinalState, Outcome, Phase, VerdictKind
from tests.fakes import died, runs, said, watched

PASSED, FAILED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED
XFAILED, XPASSED, GAVE_UP = Outcome.XFAILED, Outcome.XPASSED, Outcome.GAVE_UP
MISMATCHED, REFUSED, STOPPED = Outcome.MISMATCHED, Outcome.REFUSED, Outcome.STOPPED
LIMITS = Limits(timeout=60, grace=2)


class TestMustStop:
    @pytest.mark.parametrize(
        ("expected", "seen"),
        [
            pytest.param(False, watched(runs(0), runs(1)), id="all run"),
            pytest.param(False, watched(runs(0), said(1, PASSED)), id="one has passed"),
            pytest.param(False, watched(said(0, PASSED), said(1, PASSED)), id="all have passed"),
            pytest.param(False, watched(runs(0), after=59.9), id="before the limit"),
            pytest.param(True, watched(runs(0), after=60), id="at the limit"),
            pytest.param(True, watched(said(0, PASSED, exit_code=None), after=60), id="at the limit, all have passed"),
            pytest.param(True, watched(runs(0), died(1, -9)), id="one was killed"),
            pytest.param(True, watched(runs(0), died(1, 0)), id="one left without a word"),
            pytest.param(True, watched(runs(0), said(1, PASSED, exit_code=3)), id="one passed and left badly"),
            pytest.param(False, watched(runs(0), said(1, FAILED, at=3.1)), id="one failed just now"),
            pytest.param(True, watched(runs(0), said(1, FAILED, at=2.9)), id="one failed before the grace"),
            pytest.param(True, watched(runs(0), said(1, XFAILED, at=2.9)), id="one failed as expected before it"),
            pytest.param(True, watched(runs(0), said(1, REFUSED, at=2.9)), id="one could not start"),
            pytest.param(False, watched(runs(0), said(1, SKIPPED, at=1)), id="one skipped long ago"),
            pytest.param(
                True, watched(runs(0), said(1, FAILED, at=4.9), waiting=(0,)), id="all others wait for the failed one"
            ),
            pytest.param(
                False,
                watched(runs(0), said(1, FAILED, at=4.9), runs(2), waiting=(0,)),
                id="one of the others is on its way",
            ),
            pytest.param(False, watched(runs(0), said(1, PASSED), waiting=(0,)), id="others wait for one that passed"),
            pytest.param(False, watched(said(0, PASSED, exit_code=None), idle=None), id="ends busily"),
            pytest.param(False, watched(said(0, PASSED, exit_code=None), idle=1.9), id="idle within the grace"),
            pytest.param(True, watched(said(0, PASSED, exit_code=None), idle=2.0), id="idle beyond the grace"),
            pytest.param(False, watched(runs(0), idle=50), id="idle in its body"),
        ],
    )
    def test_table(self, expected: bool, seen: Watched) -> None:
        """A world is stopped when it can't end well, or not in time."""
        assert expected is must_stop(seen, LIMITS)

    def test_no_limit(self) -> None:
        """No limit is none."""
        assert not must_stop(watched(runs(0), after=1e6), Limits(timeout=0, grace=2))

    def test_no_grace(self) -> None:
        """Without grace a failure stops the others at once, and an end still may take its moment."""
        none = Limits(timeout=60, grace=0)

        assert must_stop(watched(runs(0), said(1, FAILED, at=5)), none)
        assert not must_stop(watched(said(0, PASSED, exit_code=None), idle=0.4), none)
        assert must_stop(watched(said(0, PASSED, exit_code=None), idle=0.6), none)


class TestWaitingForEnded:
    @pytest.mark.parametrize(
        ("expected", "positions"),
        [
            pytest.param({0}, [Position(ordinal=0, inside=True, group=(0, 1))], id="inside"),
            pytest.param(set(), [Position(ordinal=0, inside=False, group=(0, 1))], id="left"),
            pytest.param(set(), [Position(ordinal=0, inside=True, group=(0, 2))], id="in another group"),
            pytest.param(
                {0, 2},
                [
                    Position(ordinal=0, inside=True, group=(0, 1)),
                    Position(ordinal=1),
                    Position(ordinal=2, inside=True, group=(0, 1, 2)),
                ],
                id="several",
            ),
        ],
    )
    def test_table(self, expected: set[int], positions: list[Position]) -> None:
        """Who is inside a collective that needs one whose body has ended waits for nothing."""
        assert expected == waiting_for_ended(positions, [runs(0), said(1, FAILED, exit_code=None), runs(2)])


# What the verdict is drawn from, and its headline; the ordinal of the first event, and the outcome.
Row = tuple[tuple[OrdinalState, ...], str, "int | None", "Outcome | None"]
TAKEN = "(SIGCHLD is ignored, or something else waited for the process)"
BOTH = "live threads: 'a'; live processes: x (1), y (2), z (3), x (1) and 2 more"
ENDS: dict[str, Row] = {
    "all pass": ((said(0, PASSED), said(1, PASSED)), "AGREED: all 2 ordinals passed", None, PASSED),
    "one of one": ((said(0, PASSED),), "AGREED: ordinal 0 passed", None, PASSED),
    "all skip": (
        (said(0, SKIPPED, "why"), said(1, SKIPPED, "why")),
        "AGREED: all 2 ordinals skipped: why",
        None,
        SKIPPED,
    ),
    "all xpass": (
        (said(0, XPASSED, "why"), said(1, XPASSED, "why")),
        "AGREED: all 2 ordinals xpassed: why",
        None,
        XPASSED,
    ),
    "all give up": (
        (said(0, GAVE_UP, "known"), said(1, GAVE_UP, "known")),
        "AGREED: all 2 ordinals called xfail: known",
        None,
        GAVE_UP,
    ),
    "all fail, in two places": (
        (said(0, FAILED, "assert 1", at=2, where="test_a.py:3"), said(1, FAILED, "assert 1", where="test_a.py:9")),
        "RAISED: ordinal 1: assert 1",
        1,
        None,
    ),
    "all fail alike": (
        (said(0, FAILED, "assert 1", at=2), said(1, FAILED, "assert 1", at=1)),
        "AGREED: all 2 ordinals failed: assert 1",
        1,
        FAILED,
    ),
    "all fail, each for its own reason": (
        (said(0, FAILED, "assert 1", at=2), said(1, FAILED, "assert 2", at=1)),
        "AGREED: all 2 ordinals failed, first ordinal 1: assert 2",
        1,
        FAILED,
    ),
    "all fail as expected": (
        (said(0, XFAILED, "known"), said(1, XFAILED, "known")),
        "AGREED: all 2 ordinals xfailed: known",
        0,
        XFAILED,
    ),
    "some skip": (
        (said(0, PASSED), said(1, SKIPPED, "why"), said(2, PASSED)),
        "DIVERGED: ordinals 0, 2 passed, ordinal 1 skipped (why)",
        None,
        None,
    ),
    "some give up": (
        (said(0, GAVE_UP, "known"), said(1, PASSED)),
        "DIVERGED: ordinal 0 called xfail (known), ordinal 1 passed",
        None,
        None,
    ),
    "some xpass, some skip": (
        (said(0, XPASSED), said(1, SKIPPED, "why")),
        "DIVERGED: ordinal 0 xpassed, ordinal 1 skipped (why)",
        None,
        None,
    ),
    "one raises": (
        (said(0, PASSED), said(1, FAILED, "ValueError: x"), said(2, SKIPPED, "why")),
        "RAISED: ordinal 1: ValueError: x",
        1,
        None,
    ),
    "the first in time": (
        (said(0, FAILED, "later", at=2), said(1, FAILED, "cause", at=1), said(2, PASSED)),
        "RAISED: ordinal 1: cause",
        1,
        None,
    ),
    "raised, and the others were stopped": (
        (said(0, STOPPED, at=3, stopped=True), said(1, FAILED, "cause"), died(2, -15, at=4, stopped=True)),
        "RAISED: ordinal 1: cause",
        1,
        None,
    ),
    "raised as expected, the others passed under the mark": (
        (said(0, XPASSED, "known"), said(1, XFAILED, "known")),
        "RAISED: ordinal 1: known",
        1,
        XFAILED,
    ),
    "raised as expected, the others were stopped": (
        (said(0, STOPPED, stopped=True), said(1, XFAILED, "known")),
        "RAISED: ordinal 1: known",
        1,
        XFAILED,
    ),
    "raised as expected, and something else besides": (
        (said(0, FAILED, "KeyError", at=2), said(1, XFAILED, "known", at=1)),
        "RAISED: ordinal 0: KeyError",
        0,
        None,
    ),
    "raised as expected, and one skipped": (
        (said(0, SKIPPED, "why"), said(1, XFAILED, "known")),
        "DIVERGED: ordinal 0 skipped (why), ordinal 1 xfailed (known)",
        None,
        None,
    ),
    "raised as expected, and one was killed": (
        (died(0, -9, at=2), said(1, XFAILED, "known", at=1)),
        "LOST: ordinal 0: killed by SIGKILL (9), without a report",
        0,
        None,
    ),
    "raised as expected, and left badly": (
        (said(0, XFAILED, "known", exit_code=-11),),
        "LOST: ordinal 0: killed by SIGSEGV (11), after it had reported xfailed",
        0,
        None,
    ),
    "raised as expected, and another one left badly": (
        (said(0, XFAILED, "known", at=1), said(1, XFAILED, "known", at=2, exit_code=3)),
        "LOST: ordinal 1: exit code 3, after it had reported xfailed",
        1,
        None,
    ),
    "raised as expected, and lingers": (
        (said(0, XFAILED, "known", exit_code=-15, stopped=True), said(1, XPASSED, "known")),
        "LINGERED: ordinal 0 did not end after the body (why is unknown)",
        0,
        None,
    ),
    "raised as expected, and waited for one that was stopped": (
        (said(0, XFAILED, "known", stopped=True), said(1, STOPPED, at=3, stopped=True)),
        "RAISED: ordinal 0: known",
        0,
        XFAILED,
    ),
    "killed": ((died(0, -11), said(1, PASSED)), "LOST: ordinal 0: killed by SIGSEGV (11), without a report", 0, None),
    "left": ((said(0, PASSED), died(1, 0)), "LOST: ordinal 1: exit code 0, without a report", 1, None),
    "nobody knows how it ended": (
        (said(0, PASSED), died(1, UNKNOWN_END)),
        f"LOST: ordinal 1: exit code lost {TAKEN}, without a report",
        1,
        None,
    ),
    "left badly after its word": (
        (said(0, PASSED), said(1, PASSED, exit_code=3)),
        "LOST: ordinal 1: exit code 3, after it had reported passed",
        1,
        None,
    ),
    "all fail alike, and one leaves badly": (
        (said(0, FAILED, "assert 1"), said(1, FAILED, "assert 1", exit_code=-6)),
        "RAISED: ordinal 0: assert 1",
        0,
        None,
    ),
    "killed before another raised": (
        (died(0, -9, at=1), said(1, FAILED, "Connection closed", at=2)),
        "LOST: ordinal 0: killed by SIGKILL (9), without a report",
        0,
        None,
    ),
    "killed, but seen a moment later than another raised because of it": (
        (died(0, -9, at=1.05), said(1, FAILED, "Connection closed", at=1)),
        "LOST: ordinal 0: killed by SIGKILL (9), without a report",
        0,
        None,
    ),
    "raised before another was killed": (
        (died(0, -9, at=2), said(1, FAILED, "cause", at=1)),
        "RAISED: ordinal 1: cause",
        1,
        None,
    ),
    "mismatched": (
        (said(0, MISMATCHED, "all_reduce here, all_gather there"), said(1, MISMATCHED, "the same", at=2)),
        "MISMATCHED: all_reduce here, all_gather there",
        0,
        None,
    ),
    "refused": ((said(0, REFUSED, "no device"), said(1, PASSED)), "REFUSED: no device", 0, None),
    "lingers": (
        (said(0, PASSED), said(1, PASSED, exit_code=-15, stopped=True)),
        "LINGERED: ordinal 1 did not end after the body (why is unknown)",
        1,
        None,
    ),
    "a thread lingers": (
        (replace(said(0, PASSED, exit_code=-15, stopped=True), threads=("loader",)), said(1, PASSED)),
        "LINGERED: ordinal 0 did not end after the body (live threads: 'loader')",
        0,
        None,
    ),
    "a process lingers": (
        (replace(said(0, PASSED, exit_code=-15, stopped=True), processes=("sleep (7)", "sh (8)")), said(1, PASSED)),
        "LINGERED: ordinal 0 did not end after the body (live processes: sleep (7), sh (8))",
        0,
        None,
    ),
    "many of both linger": (
        tuple(
            replace(said(k, PASSED, exit_code=-15, stopped=True), threads=("a",), processes=("x (1)", "y (2)", "z (3)"))
            for k in range(2)
        ),
        f"LINGERED: ordinals 0-1 did not end after the body ({BOTH})",
        0,
        None,
    ),
    "all linger": (
        (said(0, PASSED, exit_code=-15, stopped=True), said(1, SKIPPED, exit_code=-9, stopped=True)),
        "LINGERED: ordinals 0-1 did not end after the body (why is unknown)",
        0,
        None,
    ),
}
LATE: dict[str, Row] = {
    "one is late": (
        (said(0, PASSED), said(1, STOPPED, at=60, where="test_a.py:3", stopped=True)),
        "OVERDUE: ordinal 1 not finished within 60 s, in test_a.py:3",
        1,
        None,
    ),
    "all are late, in one line": (
        tuple(said(k, STOPPED, at=60, where="test_a.py:3", stopped=True) for k in range(2)),
        "OVERDUE: all 2 ordinals not finished within 60 s, in test_a.py:3",
        None,
        None,
    ),
    "some are late, in several lines": (
        (
            said(0, STOPPED, at=60, where="test_a.py:3", stopped=True),
            said(1, STOPPED, at=60, where="test_a.py:4", stopped=True),
            said(2, PASSED),
        ),
        "OVERDUE: ordinals 0-1 not finished within 60 s",
        None,
        None,
    ),
    "killed by us": ((died(0, -9, at=61, stopped=True),), "OVERDUE: ordinal 0 not finished within 60 s", 0, None),
    "raised before the limit": (
        (said(0, FAILED, "cause", at=1), said(1, STOPPED, at=60, stopped=True)),
        "RAISED: ordinal 0: cause",
        0,
        None,
    ),
    "all have finished": (
        (said(0, PASSED, exit_code=-9, stopped=True),),
        "LINGERED: ordinal 0 did not end after the body (why is unknown)",
        0,
        None,
    ),
}


class TestConclude:
    @pytest.mark.parametrize("name", ENDS)
    def test_ends(self, name: str) -> None:
        """The first event in time is the verdict, and its headline says all that is known of it."""
        states, headline, first, outcome = ENDS[name]
        verdict = conclude(watched(*states), LIMITS, overdue=False)

        assert (headline, first, outcome) == (verdict.headline, verdict.first, verdict.outcome)
        assert headline.partition(":")[0] == verdict.kind.value
        assert states == verdict.ordinals

    @pytest.mark.parametrize("name", LATE)
    def test_late(self, name: str) -> None:
        """What happened before the limit comes first; else the limit is the verdict, with those that were late."""
        states, headline, first, outcome = LATE[name]
        verdict = conclude(watched(*states, after=61), LIMITS, overdue=True)

        assert (headline, first, outcome) == (verdict.headline, verdict.first, verdict.outcome)

    def test_never_started(self) -> None:
        """A world that was not ready in time did not start, which is another fault than not to finish."""
        starting = OrdinalState(ordinal=0, pid=1, phase=Phase.STARTING, exit_code=None, stopped=True)
        verdict = conclude(watched(starting), LIMITS, overdue=True)

        assert "OVERDUE: ordinal 0 not started within 60 s" == verdict.headline

    def test_noun(self) -> None:
        """A process that is no ordinal has no number."""
        killed = conclude(watched(died(0, -9)), LIMITS, overdue=False, noun="isolated process")
        passed = conclude(watched(said(0, PASSED)), LIMITS, overdue=False, noun="isolated process")

        assert "LOST: isolated process: killed by SIGKILL (9), without a report" == killed.headline
        assert "AGREED: isolated process passed" == passed.headline

    @pytest.mark.parametrize("outcome", [STOPPED, None])
    def test_no_word_never_passes(self, outcome: Outcome | None) -> None:
        """Ordinals without a word of their own are no agreement, however alike they are."""
        states = [died(k, -9, stopped=True) if outcome is None else said(k, outcome, stopped=True) for k in range(2)]
        verdict = conclude(watched(*states), LIMITS, overdue=False)

        assert not verdict.passed
        assert not verdict.excused
        assert VerdictKind.AGREED is not verdict.kind
