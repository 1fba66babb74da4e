"""Where one ordinal is: the last meeting point that it entered, and whether it has left it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One ordinal's position, as it stood when the ledger was read.

    Args:
        ordinal: whose position it is.
        kind: of the meeting point, for example ``"all_reduce"``; ``""`` if it has entered none.
        tag: the name of a rendezvous, else ``""``.
        sequence: the number of the call within its group, from 1; 0 if it has entered none.
        group: the ordinals that meet there, ascending.
        inside: whether it has entered and not left. With several threads inside: the one that waits longest.
        since: when it entered, or left; as `time.monotonic` says it.
        call: the whole call as a person would write it; a very long one is cut.
        missing: of the group, those that had not entered the call yet; read after all the rest, and only if inside.
    """

    ordinal: int
    kind: str = ""
    tag: str = ""
    sequence: int = 0
    group: tuple[int, ...] = ()
    inside: bool = False
    since: float = 0.0
    call: str = ""
    missing: tuple[int, ...] = ()
