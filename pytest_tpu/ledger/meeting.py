"""How the ordinals of a group meet: everyone writes its call, waits for the others', and compares."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pytest_tpu.errors import MismatchError, WorldStopped
from pytest_tpu.ledger import encoding
from pytest_tpu.ledger.mismatch import mismatch
from pytest_tpu.model.ordinals import name_ordinals

if TYPE_CHECKING:
    from pytest_tpu.ledger.record import Record
    from pytest_tpu.model.place import Call

# How long a wait lasts before it looks up by itself: the longest that a stop, or a signal that slipped in
# (see Doorbell), can take to be seen. Eight ordinals that wait wake 160 times a second, which is no load.
_LOOK_UP: Final = 0.05


class _Series:
    """One group's calls, as this process numbers them."""

    __slots__ = ("key", "lock", "number", "slot", "slots")

    def __init__(self, key: int, slot: int) -> None:
        self.key = key
        self.slot = slot
        self.slots: dict[int, int] = {}
        self.number = 0
        # Reentrant, since a finalizer that runs while its thread waits may itself make a call: with a plain lock
        # that would be a deadlock that no one could explain.
        self.lock = threading.RLock()


class OrdinalMeetings:
    """The meetings of one ordinal; its threads share one order of calls per group.

    **Why two entries per group are enough.** An ordinal writes call n + 2 over its call n only after its call
    n + 1 was completed, that is, after every ordinal of the group has entered n + 1. To enter n + 1 an ordinal must
    have left n, and it leaves n only when it has read every entry of n. So nobody still needs what is overwritten,
    however far ahead the fast one is: one call at most.

    The exception is an ordinal whose wait was ended by an exception (interrupted, stopped) and which goes on to
    call again. It may overwrite what a slow one has not read; the slow one then finds a higher number in the place,
    and raises MismatchError saying so, since the ordinals' calls are out of step from there on.

    Args:
        ordinal: whose meetings these are.
        records: of all ordinals of the world.
        is_stopped: whether the world is being stopped.
    """

    def __init__(self, ordinal: int, records: Sequence[Record], is_stopped: Callable[[], bool]) -> None:
        self._ordinal = ordinal
        self._records = records
        self._is_stopped = is_stopped
        self._lock = threading.RLock()
        self._series: dict[tuple[int, ...], _Series] = {}
        self._inside: dict[int, encoding.Point] = {}
        self._entered = 0
        self.mismatch: MismatchError | None = None

    def meet(self, group: Sequence[int], call: Call) -> int:
        """Wait until every ordinal of `group` has entered its call of the same number, and compare them."""
        members = tuple(group)
        if self._ordinal not in members or list(members) != sorted(set(members)):
            raise ValueError(
                f"ordinal {self._ordinal} can't meet in the group {list(members)}: it must be in it, ascending"
            )
        series = self._find(members)
        text = str(call)
        with series.lock:
            series.number += 1
            number = series.number
            entry = encoding.Entry(number=number, fingerprint=encoding.fingerprint(call), text=text)
            with self._standing(call, text, members, number):
                self._publish(series, entry)
                entries = {ordinal: self._await(series, ordinal, number) for ordinal in members}
        self._compare(entries, number)
        return number

    def _find(self, members: tuple[int, ...]) -> _Series:
        with self._lock:
            series = self._series.get(members)
            if series is None:
                series = _Series(encoding.group_key(members), len(self._series))
                self._records[self._ordinal].take_slot(series.key, series.slot)
                self._series[members] = series
            return series

    def _publish(self, series: _Series, entry: encoding.Entry) -> None:
        mine = self._records[self._ordinal]
        mine.write(series.slot, entry)
        with self._lock:
            mine.bell.ring()

    def _await(self, series: _Series, ordinal: int, number: int) -> encoding.Entry:
        theirs = self._records[ordinal]
        while True:
            rings = theirs.bell.rings
            slot = series.slots.get(ordinal)
            if slot is None:
                slot = theirs.slot(series.key)
            if slot is not None:
                series.slots[ordinal] = slot
                entry = theirs.read(slot, number)
                if entry is not None:
                    return entry
            if self._is_stopped():
                raise WorldStopped("the world is being stopped")
            theirs.bell.wait(rings, _LOOK_UP)

    def _compare(self, entries: dict[int, encoding.Entry], number: int) -> None:
        ahead = [ordinal for ordinal, entry in entries.items() if entry.number != number]
        if ahead:
            later = entries[ahead[0]]
            raise self._noted(
                f"{name_ordinals(ahead)} left call #{number} of this group without completing it and went on "
                f"to #{later.number}, {later.text}; "
                f"{name_ordinals([self._ordinal])} called {entries[self._ordinal].text}"
            )
        text = mismatch(entries)
        if text is not None:
            raise self._noted(text)

    def _noted(self, text: str) -> MismatchError:
        error = MismatchError(text)
        self.mismatch = self.mismatch or error
        return error

    @contextmanager
    def _standing(self, call: Call, text: str, group: tuple[int, ...], sequence: int) -> Iterator[None]:
        """Show that this thread is inside, from now to the end of the context, however it ends."""

        def point(*, inside: bool) -> encoding.Point:
            return encoding.Point(
                kind=call.kind,
                tag=call.tag,
                sequence=sequence,
                group=group,
                inside=inside,
                since=time.monotonic(),
                call=text,
            )

        mine = self._records[self._ordinal]
        with self._lock:
            self._entered += 1
            number = self._entered
            self._inside[number] = point(inside=True)
            # The thread that waits longest stays the one that is shown: it is what the others wait for.
            mine.set_point(next(iter(self._inside.values())))
        try:
            yield
        finally:
            with self._lock:
                del self._inside[number]
                mine.set_point(next(iter(self._inside.values()), None) or point(inside=False))
