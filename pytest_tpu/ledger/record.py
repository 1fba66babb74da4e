"""One ordinal's part of the shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_tpu.errors import TpuError
from pytest_tpu.ledger import encoding
from pytest_tpu.ledger.doorbell import Doorbell

_PAGE: Final = 4096

# The writer may finish two positions while a reader copies one. A reader that sees that happen this often has met
# a writer that does nothing else; it takes the position as unknown rather than wait.
_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Offsets inside one record, all multiples of 8.

    The bell (4 bytes) stands at 0, the version of the point at 8.
    """

    size: int
    slots: int
    points: int
    point: int
    keys: int
    entries: int
    stride: int


def layout(size: int) -> Layout:
    """Lay out a record of a world of that size."""
    # A slot per group that an ordinal is ever in. Meshes need a handful, point-to-point pairs one per partner.
    slots = 256 + 2 * size
    point = encoding.point_size(size)
    points = 64
    keys = points + 2 * point
    entries = keys + 8 * slots
    stride = entries + 2 * encoding.ENTRY_SIZE * slots
    return Layout(
        size=size,
        slots=slots,
        points=points,
        point=point,
        keys=keys,
        entries=entries,
        stride=(stride + _PAGE - 1) // _PAGE * _PAGE,
    )


class Record:
    """One ordinal's part of the ledger. Its own process writes it, everyone reads it.

    Reading never waits for the writer, who may be frozen or dead in the middle of a write: everything that is
    longer than a machine word carries a check, and is written beside the last complete one, not over it.
    """

    __slots__ = ("_data", "_keys", "_layout", "_words", "bell")

    def __init__(self, data: memoryview, shape: Layout, *, futex: bool) -> None:
        self._data = data
        self._layout = shape
        # An item of a "Q" view is stored by one 8-byte move, so no reader sees half a word; a slice of bytes gives no
        # such promise.
        self._words = data[: shape.points].cast("Q")
        self._keys = data[shape.keys : shape.entries].cast("Q")
        self.bell = Doorbell(data, 0, futex=futex)

    def set_point(self, point: encoding.Point) -> None:
        """Say at which meeting point the ordinal is; only one thread at a time may."""
        version = self._words[1] + 1
        start = self._layout.points + version % 2 * self._layout.point
        data = encoding.pack_point(point, self._layout.size)
        self._data[start : start + len(data)] = data
        self._words[1] = version

    def point(self) -> encoding.Point | None:
        """At which meeting point the ordinal is; None if it has entered none."""
        for _ in range(_ATTEMPTS):
            version = self._words[1]
            if not version:
                return None
            start = self._layout.points + version % 2 * self._layout.point
            point = encoding.unpack_point(bytes(self._data[start : start + self._layout.point]), self._layout.size)
            if point is not None and self._words[1] - version < 2:
                return point
        return None

    def slot(self, key: int) -> int | None:
        """Find the slot of a group in someone's record; None if that ordinal has not used the group yet."""
        for slot, taken in enumerate(self._keys):
            if taken == key:
                return slot
            if not taken:
                return None
        return None

    def take_slot(self, key: int, slot: int) -> None:
        """Give the group the next free slot; slots are taken in order and never given back."""
        if slot >= self._layout.slots:
            raise TpuError(f"this ordinal is in more than {self._layout.slots} groups; the ledger has no room for more")
        self._keys[slot] = key

    def write(self, slot: int, entry: encoding.Entry) -> None:
        """Put an entry beside the one before it, the number last."""
        data = encoding.pack_entry(entry)
        start = self._start(slot, entry.number)
        self._data[start + 8 : start + len(data)] = data[8:]
        self._data[start : start + 8] = data[:8]

    def read(self, slot: int, number: int) -> encoding.Entry | None:
        """Read the entry of that number; None while it is not there, or not whole.

        May be an entry of a higher number: see `OrdinalMeetings`.
        """
        start = self._start(slot, number)
        if encoding.entry_number(self._data[start : start + 8]) < number:
            return None
        return encoding.unpack_entry(bytes(self._data[start : start + encoding.ENTRY_SIZE]))

    def _start(self, slot: int, number: int) -> int:
        return self._layout.entries + (2 * slot + number % 2) * encoding.ENTRY_SIZE

    def release(self) -> None:
        """Let go of the memory; the record can't be used any more."""
        del self.bell
        self._words.release()
        self._keys.release()
