from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_tpu.diagnose.conclude import conclude, must_stop
from pytest_tpu.diagnose.stall import Patience, Stall, find_stall, patience_of
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.position import Position
from pytest_tpu.model.verdict import OrdinalState, Outcome, VerdictKind
from tests.fakes import LAUNCHED, died, runs, said, watched

WORLD = (0, 1, 2)
NOW = LAUNCHED + 5


def waits(ordinal: int, *missing: int, since: float = 2.0, group: tuple[int, ...] = WORLD, number: int = 1) -> Position:
    """One that has been inside an all_reduce since then, for which the missing have not come."""
    return Position(
        ordinal=ordinal,
        kind="all_reduce",
        sequence=number,
        group=group,
        inside=True,
        since=LAUNCHED + since,
        missing=missing,
    )


def found(
    states: tuple[OrdinalState, ...],
    *positions: Position,
    patience: float | None = None,
    active_at: dict[int, float] | None = None,
) -> str | None:
    """The headline of the stall that is found, or None."""
    patient = Patience(seconds=patience, limit="a limit")
    stall = find_stall(positions, states, now=NOW, patience=patient, active_at=active_at or {})
    return None if stall is None else stall.headline


class TestProof:
    @pytest.mark.parametrize(
        ("ending", "gone"),
        [
            ("which returned 4 s ago", said(2, Outcome.PASSED, exit_code=None)),
            ("which returned 4 s ago", said(2, Outcome.XPASSED, "not yet", exit_code=None)),
            ("which was skipped (no data) 4 s ago", said(2, Outcome.SKIPPED, "no data", exit_code=None)),
            ("which called pytest.xfail (a bug) 4 s ago", said(2, Outcome.GAVE_UP, "a bug", exit_code=None)),
        ],
    )
    def test_one_has_left(self, ending: str, gone: OrdinalState) -> None:
        """An ordinal that has left its body can't come, whatever the time limit: the headline says how it left."""
        headline = found((runs(0), runs(1), gone), waits(0, 2), waits(1, 2), Position(ordinal=2))

        assert f"all_reduce #1 entered by ordinals 0-1, never by 2, {ending}" == headline

    def test_one_has_left_and_one_is_late(self) -> None:
        """Once one can't come, the others get a moment to arrive, and are then named as absent too."""
        states = (runs(0), runs(1), said(2, Outcome.PASSED, exit_code=None))

        assert found(states, waits(0, 1, 2, since=4.6)) is None
        assert ("all_reduce #1 entered by ordinal 0, never by 1-2, of which 2 returned 4 s ago") == found(
            states, waits(0, 1, 2, since=4.5)
        )

    def test_one_has_left_and_one_computes(self) -> None:
        """Once one can't come, nobody waits for what another computes: it would be in vain."""
        states = (runs(0), runs(1), said(2, Outcome.PASSED, exit_code=None))

        assert "all_reduce #1 entered by ordinal 0, never by 1-2, of which 2 returned 4 s ago" == found(
            states, waits(0, 1, 2, since=4.5), active_at={1: NOW}
        )


class TestNoProof:
    @pytest.mark.parametrize(
        "last",
        [
            pytest.param(runs(2), id="it still runs"),
            pytest.param(
                replace(said(2, Outcome.PASSED, exit_code=None), threads=("loader",)), id="a thread of it still runs"
            ),
            pytest.param(said(2, Outcome.FAILED, exit_code=None), id="it raised, which is the verdict by itself"),
            pytest.param(died(2, -9), id="it died, which is the verdict by itself"),
        ],
    )
    def test_it_may_come_or_explains_itself(self, last: OrdinalState) -> None:
        """No stall is called one while the absent may come, or where its own end says more."""
        assert found((runs(0), runs(1), last), waits(0, 2), waits(1, 2)) is None

    def test_all_have_come(self) -> None:
        """A call that everybody has entered is complete, though some have not noticed yet."""
        states = (runs(0), runs(1), said(2, Outcome.PASSED, exit_code=None))

        assert found(states, waits(0), waits(1), Position(ordinal=2)) is None

    def test_the_writer_is_inside(self) -> None:
        """One that is inside and about to write its entry is not absent."""
        states = (runs(0), runs(1), runs(2))

        assert found(states, waits(0, 2), waits(1, 2), waits(2, 2), patience=1) is None

    def test_another_group(self) -> None:
        """An ordinal that has returned is not missed by groups it does not belong to."""
        states = (runs(0), runs(1), said(2, Outcome.PASSED, exit_code=None))

        assert found(states, waits(0, 1, group=(0, 1))) is None


class TestPatience:
    def test_nobody_does_anything(self) -> None:
        """Where all run, the longest wait decides."""
        states = (runs(0), runs(1), runs(2))

        assert found(states, waits(0, 2, since=3.1), patience=2) is None
        assert "all_reduce #1 entered by ordinal 0, never by 2, 2 s without progress (a limit)" == found(
            states, waits(0, 2, since=3), patience=2
        )

    def test_the_absent_one_computes(self) -> None:
        """An ordinal that uses the processor makes the others wait for it rightly: it may be compiling."""
        states = (runs(0), runs(1), runs(2))

        assert found(states, waits(0, 2), patience=2, active_at={2: NOW - 1.9}) is None
        assert found(states, waits(0, 2), patience=2, active_at={2: NOW - 2, 1: NOW}) is not None

    def test_the_one_that_began_first(self) -> None:
        """Of two calls that stall, the one with the longest wait is told."""
        states = (runs(0), runs(1), runs(2))

        assert "all_reduce #7 entered by ordinal 1, never by 2, 4 s without progress (a limit)" == found(
            states, waits(0, 2, since=2), waits(1, 2, since=1, group=(1, 2), number=7), patience=2
        )


class TestVerdict:
    STALL = Stall(absent=(1,), headline="all_reduce #1 entered by ordinal 0, never by 1, in words")

    def test_it_ends_the_world(self) -> None:
        """A world with a stall is stopped, and the verdict says so; the absent one is marked."""
        seen = replace(watched(said(0, Outcome.STOPPED, stopped=True), said(1, Outcome.PASSED)), stall=self.STALL)
        verdict = conclude(seen, Limits(), overdue=False)

        assert must_stop(replace(watched(runs(0), runs(1)), stall=self.STALL), Limits())
        assert VerdictKind.STALLED is verdict.kind
        assert f"STALLED: {self.STALL.headline}" == verdict.headline
        assert 1 == verdict.first

    def test_what_was_raised_comes_first(self) -> None:
        """An exception explains more than the wait that follows from it."""
        seen = replace(watched(said(0, Outcome.STOPPED, stopped=True), said(1, Outcome.FAILED, "x")), stall=self.STALL)

        assert VerdictKind.RAISED is conclude(seen, Limits(), overdue=False).kind

    def test_it_explains_the_limit(self) -> None:
        """Where the time limit passed while some waited for an absent one, that is the verdict."""
        seen = replace(watched(said(0, Outcome.STOPPED, stopped=True)), stall=self.STALL)

        assert VerdictKind.STALLED is conclude(seen, Limits(), overdue=True).kind


@pytest.mark.parametrize(
    ("expected", "overdue", "stall_timeout"),
    [
        (Patience(seconds=60.0, limit="stall timeout 60 s"), False, 60.0),
        (Patience(seconds=None, limit="stall timeout 0 s"), False, 0.0),
        (Patience(seconds=0.0, limit="time limit 300 s"), True, 60.0),
    ],
)
def test_which_limit(expected: Patience, overdue: bool, stall_timeout: float) -> None:
    """The headline names the limit that ended the wait, so that the user knows which one to raise."""
    assert expected == patience_of(Limits(timeout=300, stall_timeout=stall_timeout), overdue=overdue)
