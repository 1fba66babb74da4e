"""From the states of the ordinals to 'stop now' and to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tpu.diagnose.stall import Stall
from pytest_tpu.diagnose.words import process_end, seconds
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.ordinals import name_ordinals
from pytest_tpu.model.position import Position
from pytest_tpu.model.verdict import UNKNOWN_END, OrdinalState, Outcome, Phase, Verdict, VerdictKind

_RAISED = {Outcome.FAILED, Outcome.MISMATCHED, Outcome.REFUSED, Outcome.XFAILED}
_LEFT_WELL = {Outcome.PASSED, Outcome.SKIPPED, Outcome.GAVE_UP, Outcome.XPASSED}

_LEAST_PATIENCE = 0.5
"""Seconds that a process may do nothing while it ends, even without any grace: less is what a machine has of itself."""

_DYING = 0.1
"""Seconds by which others may notice a death (its sockets close) before it shows as one: what they raise follows from
it, while an exception, whose process stays until all have ended, is no cause of a death."""


_NAMED = 4
"""Threads or processes that a headline names: it is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the controller sees at one moment.

    Args:
        states: of all ordinals, in order.
        waiting: the ordinals that wait in a collective for one whose body has ended.
        idle_since: since when the processes that have yet to end use no processor; None while one does.
        started_at: when the launch began, monotonic seconds.
        now: monotonic seconds.
        stall: a collective that can't be completed, if there is one.
    """

    states: tuple[OrdinalState, ...]
    waiting: frozenset[int] = frozenset()
    idle_since: float | None = None
    started_at: float
    now: float
    stall: Stall | None = None


def waiting_for_ended(positions: Sequence[Position], states: Sequence[OrdinalState]) -> frozenset[int]:
    """The ordinals that are inside a collective which also needs one whose body has ended."""
    return frozenset(
        position.ordinal
        for position in positions
        if position.inside and any(states[member].outcome is not None for member in position.group)
    )


def must_stop(watched: Watched, limits: Limits) -> bool:
    """Whether the world has to be stopped now, since it can't end well, or not in time."""
    if limits.timeout and watched.now - watched.started_at >= limits.timeout:
        return True
    if watched.stall is not None or any(state.phase is Phase.ENDED and _lost(state) for state in watched.states):
        return True
    living = [state for state in watched.states if state.outcome is None]
    if not living:
        patience = max(limits.grace, _LEAST_PATIENCE)
        return watched.idle_since is not None and watched.now - watched.idle_since >= patience
    return _failed_and_waited_for(watched, living, limits.grace)


def _failed_and_waited_for(watched: Watched, living: list[OrdinalState], grace: float) -> bool:
    """After a failure the others may say their own word, but not wait for the one that failed."""
    failed = [state.phase_at for state in watched.states if state.outcome in _RAISED]
    if not failed:
        return False
    return all(state.ordinal in watched.waiting for state in living) or watched.now - min(failed) >= grace


def conclude(watched: Watched, limits: Limits, *, overdue: bool, noun: str = "ordinal") -> Verdict:
    """Draw the verdict from an ended world.

    Args:
        watched: the last states.
        limits: that held.
        overdue: whether the time limit was what ended it.
        noun: what one process is called in the text.
    """
    states = watched.states
    kind, first, headline = _first_event(states, noun) or _without_event(watched, limits, overdue, noun)
    outcome = states[0].outcome if kind is VerdictKind.AGREED else None
    if kind is VerdictKind.RAISED and first is not None and _is_excused(states):
        outcome = Outcome.XFAILED
    return Verdict(
        kind=kind,
        headline=f"{kind.value}: {headline}",
        first=first,
        outcome=outcome,
        ordinals=states,
        elapsed=watched.now - watched.started_at,
        started_at=watched.started_at,
        noun=noun,
    )


_Conclusion = tuple[VerdictKind, "int | None", str]


def _first_event(states: Sequence[OrdinalState], noun: str) -> _Conclusion | None:
    """The first of: a body that raised, a process that died, a call that did not match."""
    events = sorted(
        [(state.phase_at, state.ordinal, _raised) for state in states if state.outcome in _RAISED]
        + [((state.exit_at or 0.0) - _DYING, state.ordinal, _died) for state in states if _lost(state)],
        key=lambda event: event[:2],
    )
    if not events:
        return None
    # What was expected explains nothing where something else went wrong too: a death, its own included.
    unexpected = [event for event in events if event[2] is _died or states[event[1]].outcome is not Outcome.XFAILED]
    if not unexpected and _has_lingered(states):
        return _lingered(states, noun)
    _, ordinal, conclusion = (unexpected or events)[0]
    return conclusion(states, states[ordinal], noun)


def _without_event(watched: Watched, limits: Limits, overdue: bool, noun: str) -> _Conclusion:
    if watched.stall is not None:
        return VerdictKind.STALLED, watched.stall.absent[0], watched.stall.headline
    if overdue:
        return _at_the_limit(watched.states, limits, noun)
    return _after_the_end(watched.states, noun)


def _has_lingered(states: Sequence[OrdinalState]) -> bool:
    """Whether all gave their word, and one had to be stopped nevertheless.

    Where one was stopped in its body, those that wait for it at the gate are stopped with it, and say nothing by that.
    """
    if any(state.outcome in (None, Outcome.STOPPED) for state in states):
        return False
    return any(state.stopped for state in states)


_LEFT_OTHERWISE = {Outcome.PASSED, Outcome.SKIPPED, Outcome.GAVE_UP}


def _is_excused(states: Sequence[OrdinalState]) -> bool:
    """Whether all that raised were expected to, and the others passed under the same mark or were stopped."""
    return all(state.outcome in (Outcome.XFAILED, Outcome.XPASSED, Outcome.STOPPED, None) for state in states)


def _raised(states: Sequence[OrdinalState], first: OrdinalState, noun: str) -> _Conclusion:
    if first.outcome is Outcome.MISMATCHED:
        return VerdictKind.MISMATCHED, first.ordinal, first.reason
    if first.outcome is Outcome.REFUSED:
        return VerdictKind.REFUSED, first.ordinal, first.reason
    # One line that fails with other numbers on each is one failure; two lines are two, and the first is the cause.
    alike = len({(state.outcome, state.where) for state in states}) == 1 and not any(_lost(state) for state in states)
    if alike and first.outcome is not None:
        same = len({state.reason for state in states}) == 1
        by = "" if same else f", first {_name(first, states, noun)}"
        return VerdictKind.AGREED, first.ordinal, f"{_all(states, noun)} {first.outcome.value}{by}: {first.reason}"
    if first.outcome is Outcome.XFAILED and any(state.outcome in _LEFT_OTHERWISE for state in states):
        return VerdictKind.DIVERGED, None, _division(states, noun)
    return VerdictKind.RAISED, first.ordinal, f"{_name(first, states, noun)}: {first.reason}"


def _died(states: Sequence[OrdinalState], first: OrdinalState, noun: str) -> _Conclusion:
    said = f"after it had reported {first.outcome.value}" if first.outcome else "without a report"
    assert first.exit_code is not None
    end = process_end(first.exit_code)
    if first.exit_code == UNKNOWN_END:
        end += " (SIGCHLD is ignored, or something else waited for the process)"
    return VerdictKind.LOST, first.ordinal, f"{_name(first, states, noun)}: {end}, {said}"


def _at_the_limit(states: Sequence[OrdinalState], limits: Limits, noun: str) -> _Conclusion:
    late = [state for state in states if state.outcome in (None, Outcome.STOPPED)]
    if not late:
        return _lingered(states, noun)
    phase = "started" if all(state.phase is Phase.STARTING for state in late) else "finished"
    names = _all(states, noun) if len(late) == len(states) else _those(late, states, noun)
    places = {state.where for state in late}
    where = f", in {late[0].where}" if len(places) == 1 and late[0].where else ""
    first = late[0].ordinal if len(late) == 1 else None
    return VerdictKind.OVERDUE, first, f"{names} not {phase} within {seconds(limits.timeout)}{where}"


def _after_the_end(states: Sequence[OrdinalState], noun: str) -> _Conclusion:
    if any(state.stopped and state.outcome in _LEFT_WELL for state in states):
        return _lingered(states, noun)
    outcomes = {state.outcome for state in states}
    if outcomes <= {None, Outcome.STOPPED}:
        # After `pytest.exit` on one of them: alike, and no agreement.
        return VerdictKind.LOST, None, f"{_all(states, noun)} stopped by the controller, without a report"
    outcome = states[0].outcome
    if outcome is not None and len(outcomes) == 1:
        reason = f": {states[0].reason}" if states[0].reason else ""
        return VerdictKind.AGREED, None, f"{_all(states, noun)} {outcome.value}{reason}"
    return VerdictKind.DIVERGED, None, _division(states, noun)


def _lingered(states: Sequence[OrdinalState], noun: str) -> _Conclusion:
    late = [state for state in states if state.stopped]
    names = _those(late, states, noun)
    threads = list(dict.fromkeys(repr(name) for state in late for name in state.threads))
    processes = [name for state in late for name in state.processes]
    found = {"live threads": threads, "live processes": processes}
    why = "; ".join(f"{what}: {_some(those)}" for what, those in found.items() if those) or "why is unknown"
    return VerdictKind.LINGERED, late[0].ordinal, f"{names} did not end after the body ({why})"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _division(states: Sequence[OrdinalState], noun: str) -> str:
    parts = []
    for outcome in dict.fromkeys(state.outcome for state in states):
        same = [state for state in states if state.outcome is outcome]
        reason = f" ({same[0].reason})" if same[0].reason else ""
        word = outcome.value if outcome else "gave no outcome"
        parts.append(f"{_those(same, states, noun)} {word}{reason}")
    return ", ".join(parts)


def _lost(state: OrdinalState) -> bool:
    """Whether the process ended without its word, or badly after it, by itself."""
    if state.exit_code is None or state.stopped:
        return False
    return state.outcome is None or state.exit_code != 0


def _name(state: OrdinalState, states: Sequence[OrdinalState], noun: str) -> str:
    return noun if len(states) == 1 and noun != "ordinal" else f"{noun} {state.ordinal}"


def _those(some: Sequence[OrdinalState], states: Sequence[OrdinalState], noun: str) -> str:
    return _name(some[0], states, noun) if len(states) == 1 else name_ordinals([state.ordinal for state in some], noun)


def _all(states: Sequence[OrdinalState], noun: str) -> str:
    if len(states) == 1:
        return _name(states[0], states, noun)
    return f"all {len(states)} {noun}s"
