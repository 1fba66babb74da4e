"""What an ordinal tells the controller, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_tpu.model.verdict import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Emitted when the device is configured and the world is entered, before the body.

    Args:
        at: monotonic seconds.
    """

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Emitted once, when the body and what belongs to it have ended; the process then waits for the others.

    Args:
        at: monotonic seconds.
        outcome: the ordinal's own word.
        reason: one line about it, ``""`` if passed.
        where: the user's line, ``""`` if unknown.
        data: what the kind of launch needs (reports, a pickled result): plain values only.
        threads: the names of the other Python threads that still live: they may call collectives, and keep the process.
    """

    at: float
    outcome: Outcome
    reason: str = ""
    where: str = ""
    data: Any = None
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """Emitted instead of Finished when the body called `pytest.exit` or was interrupted by the user's own hand.

    Args:
        at: monotonic seconds.
        reason: the text given.
        returncode: the exit status asked for, or None.
        interrupted: whether it was a KeyboardInterrupt.
    """

    at: float
    reason: str
    returncode: int | None
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Emitted by an isolated test when it launches ordinals: they end at its limit, and it has to tell their verdict.

    Args:
        at: monotonic seconds.
    """

    at: float


Message = Ready | Finished | Exited | Launches
