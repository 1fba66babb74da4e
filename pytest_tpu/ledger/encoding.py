"""The binary form of what a record holds; pure, so that torn and cut data can be tested by tables."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_tpu.model.place import Call

ENTRY_SIZE: Final = 512
POSITION_TEXTS: Final = 480

_ENTRY: Final = struct.Struct("=QQ16sH")  # number, check, fingerprint, length of the text
_ENTRY_TEXT: Final = ENTRY_SIZE - _ENTRY.size
_POSITION: Final = struct.Struct("=QQd?HHH")  # check, sequence, since, inside, lengths of kind, tag, call


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one ordinal says about one of its calls.

    Args:
        number: of the call within the group.
        fingerprint: of everything that must agree; equal calls have equal ones, whatever their length.
        text: the call as a person would write it, cut where it is too long.
    """

    number: int
    fingerprint: bytes
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The part of a position that the meeting itself knows."""

    kind: str
    tag: str
    sequence: int
    group: tuple[int, ...]
    inside: bool
    since: float
    call: str


def fingerprint(call: Call) -> bytes:
    """Digest everything that must agree.

    Python's own `hash` differs between processes; a length before each part keeps ("ab", "c") from ("a", "bc").
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (call.kind, call.tag, call.dtype, call.shape, call.reduction, call.detail):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("=Q", len(data)))
        digest.update(data)
    return digest.digest()


def group_key(group: Sequence[int]) -> int:
    """Name a group by a number that is never 0, which marks a free slot.

    64 bits of a digest: two of a world's groups fall together once in some 10**15 worlds.
    """
    data = struct.pack(f"={len(group)}I", *group)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1


def cut(text: str, limit: int) -> bytes:
    """Encode `text` in at most `limit` bytes; from a longer one the middle is left out.

    Both ends stay: the kind stands at the beginning, the details at the end. No character is cut in half.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data
    mark = "…".encode()
    tail = (limit - len(mark)) // 3
    head = limit - len(mark) - tail
    kept = data[:head].decode("utf-8", "ignore"), data[-tail:].decode("utf-8", "ignore")
    return kept[0].encode() + mark + kept[1].encode()


def pack_entry(entry: Entry) -> bytes:
    """Make the bytes of an entry, with a check that a torn or half-written one can't have."""
    text = cut(entry.text, _ENTRY_TEXT)
    check = _check(entry.number, entry.fingerprint, text)
    return _ENTRY.pack(entry.number, check, entry.fingerprint, len(text)) + text


def entry_number(data: memoryview) -> int:
    """Read only which call it is about; cheap, and enough to know that it is not there yet."""
    return int.from_bytes(data[:8], "little" if struct.pack("=H", 1)[0] else "big")


def unpack_entry(data: bytes) -> Entry | None:
    """Read an entry; None if it is torn."""
    number, check, digest, length = _ENTRY.unpack_from(data)
    text = data[_ENTRY.size : _ENTRY.size + length]
    if length > _ENTRY_TEXT or check != _check(number, digest, text):
        return None
    return Entry(number=number, fingerprint=digest, text=text.decode("utf-8", "replace"))


def point_size(world: int) -> int:
    """How many bytes a point takes in a world of that size; a multiple of 8."""
    return _POSITION.size + _mask_size(world) + POSITION_TEXTS + 7 & ~7


def pack_point(point: Point, world: int) -> bytes:
    """Make the bytes of a point."""
    texts = (cut(point.kind, 60), cut(point.tag, 120), cut(point.call, POSITION_TEXTS - 180))
    mask = sum(1 << ordinal for ordinal in point.group).to_bytes(_mask_size(world), "little")
    body = mask + b"".join(texts)
    rest = _POSITION.pack(0, point.sequence, point.since, point.inside, *map(len, texts))[8:] + body
    return struct.pack("=Q", _digest(rest)) + rest


def unpack_point(data: bytes, world: int) -> Point | None:
    """Read a point; None if it is torn or was never written."""
    check, sequence, since, inside, *lengths = _POSITION.unpack_from(data)
    start = _POSITION.size + _mask_size(world)
    end = start + sum(lengths)
    if end > len(data) or check != _digest(data[8:end]):
        return None
    mask = int.from_bytes(data[_POSITION.size : start], "little")
    texts = []
    for length in lengths:
        texts.append(data[start : start + length].decode("utf-8", "replace"))
        start += length
    kind, tag, call = texts
    group = tuple(ordinal for ordinal in range(world) if mask >> ordinal & 1)
    return Point(kind=kind, tag=tag, sequence=sequence, group=group, inside=inside, since=since, call=call)


def _mask_size(world: int) -> int:
    return (world + 7) // 8


def _check(number: int, digest: bytes, text: bytes) -> int:
    return _digest(struct.pack("=Q", number) + digest + text)


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
