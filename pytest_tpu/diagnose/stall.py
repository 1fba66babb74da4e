"""From positions to a stall: a collective that some have entered, and that can't be completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_tpu.diagnose.words import seconds
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.ordinals import join_ordinals, name_ordinals
from pytest_tpu.model.position import Position
from pytest_tpu.model.verdict import OrdinalState, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A collective that can't be completed.

    Args:
        absent: those that have not entered it, ascending.
        headline: it in words.
    """

    absent: tuple[int, ...]
    headline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long ordinals may wait for one that runs and does nothing.

    Args:
        seconds: None for ever.
        limit: the limit that says so, in words.
    """

    seconds: float | None
    limit: str


def patience_of(limits: Limits, *, overdue: bool) -> Patience:
    """The stall time-out decides; once the time limit has passed, every wait is too long."""
    if overdue:
        return Patience(seconds=0.0, limit=f"time limit {seconds(limits.timeout)}")
    return Patience(seconds=limits.stall_timeout or None, limit=f"stall timeout {seconds(limits.stall_timeout)}")


_SETTLING = 0.5
"""Seconds for those on their way to arrive, once it is proved that one can't: the headline is about the others then."""

_GONE = {
    Outcome.PASSED: "returned",
    Outcome.XPASSED: "returned",
    Outcome.SKIPPED: "was skipped",
    Outcome.GAVE_UP: "called pytest.xfail",
}
"""Ends of a body that are no error by themselves, as the headline says them."""


def find_stall(
    positions: Sequence[Position],
    states: Sequence[OrdinalState],
    *,
    now: float,
    patience: Patience,
    active_at: Mapping[int, float],
) -> Stall | None:
    """Find the stall that began first.

    That an ordinal has returned is a proof: it can't come any more. It is none while other threads of its process
    live, which may issue the call. Of one that runs, nothing is known but that it has not come yet: there, patience
    decides, and an ordinal that uses the processor (it may compile for minutes) makes the others wait for it rightly.

    Args:
        positions: of all ordinals, read after the states.
        states: of all ordinals.
        now: monotonic seconds.
        patience: how long one may wait for those that run and do nothing.
        active_at: by ordinal, when it was last seen to use the processor.
    """
    incomplete = [position for position in positions if position.inside and position.missing]
    for position in sorted(incomplete, key=lambda position: position.since):
        waiting = [p.ordinal for p in incomplete if (p.group, p.sequence) == (position.group, position.sequence)]
        # One that is about to write its entry is inside already.
        absent = tuple(member for member in position.missing if member not in waiting)
        gone = [states[member] for member in absent if _is_gone(states[member])]
        since = max([position.since, *(active_at.get(member, 0.0) for member in absent)])
        # Whatever the others compute meanwhile: without the one that is gone it is in vain.
        settled = now - max([position.since, *(state.phase_at for state in gone)]) >= _SETTLING
        proved = gone and (settled or len(gone) == len(absent))
        if proved or (absent and patience.seconds is not None and now - since >= patience.seconds):
            headline = _headline(position, waiting, absent, gone, now=now, patience=patience)
            return Stall(absent=absent, headline=headline)
    return None


def _is_gone(state: OrdinalState) -> bool:
    return state.outcome in _GONE and not state.threads


def _headline(
    position: Position,
    waiting: Sequence[int],
    absent: Sequence[int],
    gone: Sequence[OrdinalState],
    *,
    now: float,
    patience: Patience,
) -> str:
    tag = f" {position.tag!r}" if position.tag else ""
    what = f"{position.kind}{tag} #{position.sequence}"
    entered = f"{what} entered by {name_ordinals(waiting)}, never by {join_ordinals(absent)}"
    if not gone:
        return f"{entered}, {seconds(now - position.since)} without progress ({patience.limit})"
    first = gone[0]
    assert first.outcome is not None
    who = "which" if len(absent) == 1 else f"of which {first.ordinal}"
    why = f" ({first.reason})" if first.reason and first.outcome is not Outcome.XPASSED else ""
    return f"{entered}, {who} {_GONE[first.outcome]}{why} {seconds(max(0.0, now - first.phase_at))} ago"
