"""The shared memory itself: its layout, and reading it."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pytest_tpu.ledger import encoding
from pytest_tpu.ledger.meeting import OrdinalMeetings
from pytest_tpu.ledger.record import Record, layout
from pytest_tpu.model.position import Position

if TYPE_CHECKING:
    from pytest_tpu.model.place import Meetings

_HEADER: Final = 64


class Ledger:
    """Anonymous shared memory, made before the fork: it has no name and no file, so nothing can be left behind."""

    def __init__(self, size: int, memory: mmap.mmap, *, futex: bool = True) -> None:
        self.size = size
        self._memory = memory
        self._view = memoryview(memory)
        shape = layout(size)
        starts = [_HEADER + ordinal * shape.stride for ordinal in range(size)]
        self._parts = [self._view[start : start + shape.stride] for start in starts]
        self._records = tuple(Record(part, shape, futex=futex) for part in self._parts)
        self._meetings: dict[int, OrdinalMeetings] = {}

    @classmethod
    def create(cls, size: int, *, futex: bool = True) -> Ledger:
        """Make the ledger of a world of `size` ordinals; pages are real only once they are written.

        Args:
            size: the number of ordinals.
            futex: False waits by sleeping, as on machines whose futex we don't know; for tests.
        """
        return cls(size, mmap.mmap(-1, _HEADER + size * layout(size).stride), futex=futex)

    def meetings(self, ordinal: int) -> Meetings:
        """Give the meetings of an ordinal, always the same ones; only its own process may use them."""
        if ordinal not in self._meetings:
            self._meetings[ordinal] = OrdinalMeetings(ordinal, self._records, self.is_stopped)
        return self._meetings[ordinal]

    def snapshot(self) -> tuple[Position, ...]:
        """Read every ordinal's position; never waits, whatever the ordinals do."""
        points = [record.point() for record in self._records]
        # Looked up once for each call, not once for each of those who wait in it.
        calls = {(point.group, point.sequence) for point in points if point is not None and point.inside}
        missing = {(group, number): self._missing(group, number) for group, number in calls}
        return tuple(_position(ordinal, point, missing) for ordinal, point in enumerate(points))

    def stop(self) -> None:
        """End every wait, now and from now on, by `WorldStopped`.

        For whoever stops the world. A signal alone does not reach a thread that waits while the main thread is in
        native code: autograd runs a backward collective on such a thread, and Python handles signals on the main
        thread only.
        """
        self._view[0] = 1
        for record in self._records:
            record.bell.wake()

    def is_stopped(self) -> bool:
        """Whether someone stopped the world."""
        return bool(self._view[0])

    def close(self) -> None:
        """Give the memory back; the ledger can't be used any more."""
        self._meetings.clear()
        for record in self._records:
            record.release()
        self._records = ()
        for part in self._parts:
            part.release()
        self._view.release()
        self._memory.close()

    def _missing(self, group: tuple[int, ...], number: int) -> tuple[int, ...]:
        """Who has not entered a call; to have entered a later one of the group is to have entered this one."""
        key = encoding.group_key(group)
        return tuple(member for member in group if not self._has_entered(member, key, number))

    def _has_entered(self, ordinal: int, key: int, number: int) -> bool:
        slot = self._records[ordinal].slot(key)
        return slot is not None and self._records[ordinal].read(slot, number) is not None


def _position(
    ordinal: int, point: encoding.Point | None, missing: Mapping[tuple[tuple[int, ...], int], tuple[int, ...]]
) -> Position:
    if point is None:
        return Position(ordinal=ordinal)
    return Position(
        ordinal=ordinal,
        kind=point.kind,
        tag=point.tag,
        sequence=point.sequence,
        group=point.group,
        inside=point.inside,
        since=point.since,
        call=point.call,
        missing=missing[point.group, point.sequence] if point.inside else (),
    )
