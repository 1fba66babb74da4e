"""Worlds that were never launched: states of ordinals from a few words. Times are in seconds after the launch."""

from __future__ import annotations

from pytest_tpu.diagnose.conclude import Watched
from pytest_tpu.model.verdict import OrdinalState, Outcome, Phase, Verdict, VerdictKind

LAUNCHED = 1000.0
"""Monotonic seconds at the launch."""


def runs(ordinal: int, *, phase: Phase = Phase.BODY) -> OrdinalState:
    """One that is in its body, or still on the way there."""
    return OrdinalState(ordinal=ordinal, pid=4100 + ordinal, phase=phase, phase_at=LAUNCHED)


def said(
    ordinal: int,
    outcome: Outcome,
    reason: str = "",
    *,
    at: float = 1.0,
    where: str = "",
    exit_code: int | None = 0,
    stopped: bool = False,
) -> OrdinalState:
    """One that gave its word, and has ended since, or (with None) has not."""
    raised = Phase.RAISED if outcome is Outcome.FAILED else Phase.RETURNED
    return OrdinalState(
        ordinal=ordinal,
        pid=4100 + ordinal,
        phase=raised if exit_code is None else Phase.ENDED,
        phase_at=LAUNCHED + at,
        outcome=outcome,
        reason=reason,
        where=where,
        exit_code=exit_code,
        exit_at=None if exit_code is None else LAUNCHED + at + 0.1,
        stopped=stopped,
    )


def died(ordinal: int, exit_code: int, *, at: float = 1.0, stopped: bool = False) -> OrdinalState:
    """One whose process ended without a word."""
    return OrdinalState(
        ordinal=ordinal,
        pid=4100 + ordinal,
        phase=Phase.ENDED,
        phase_at=LAUNCHED,
        exit_code=exit_code,
        exit_at=LAUNCHED + at,
        stopped=stopped,
    )


def watched(
    *states: OrdinalState, after: float = 5.0, waiting: tuple[int, ...] = (), idle: float | None = None
) -> Watched:
    """What the controller sees of them.

    Args:
        *states: in order.
        after: how long ago the launch was.
        waiting: those that wait for one whose body has ended.
        idle: how long no process has used the processor, or None.
    """
    now = LAUNCHED + after
    return Watched(
        states=states,
        waiting=frozenset(waiting),
        idle_since=None if idle is None else now - idle,
        started_at=LAUNCHED,
        now=now,
    )


def verdict(
    kind: VerdictKind, *states: OrdinalState, first: int | None = None, outcome: Outcome | None = None
) -> Verdict:
    """A conclusion about them."""
    return Verdict(
        kind=kind,
        headline=f"{kind.value}: in words",
        first=first,
        outcome=outcome,
        ordinals=states,
        elapsed=5.0,
        started_at=LAUNCHED,
    )
