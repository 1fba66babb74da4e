from __future__ import annotations

import dataclasses

import pytest

from pytest_tpu.ledger import encoding
from pytest_tpu.ledger.encoding import Entry, Point
from pytest_tpu.model.place import Call

CALL = Call(kind="all_reduce", dtype="float32", shape="4x2", reduction="sum")
ENTRY = Entry(number=7, fingerprint=encoding.fingerprint(CALL), text=str(CALL))
POINT = Point(kind="rendezvous", tag="save ü", sequence=12, group=(0, 2, 9), inside=True, since=41.25, call="r 's'(…)")


class TestFingerprint:
    @pytest.mark.parametrize("name", ["kind", "tag", "dtype", "shape", "reduction", "detail"])
    def test_every_part_counts(self, name: str) -> None:
        """Two calls that differ in one part have different fingerprints."""
        other = dataclasses.replace(CALL, **{name: "other"})

        assert encoding.fingerprint(CALL) != encoding.fingerprint(other)

    def test_parts_do_not_run_together(self) -> None:
        """What moves from the end of one part to the beginning of the next makes a difference."""
        assert encoding.fingerprint(Call(kind="ab", tag="c")) != encoding.fingerprint(Call(kind="a", tag="bc"))

    def test_equal_calls(self) -> None:
        """Equal calls have equal fingerprints."""
        assert encoding.fingerprint(CALL) == encoding.fingerprint(dataclasses.replace(CALL))


class TestEntry:
    def test_comes_back(self) -> None:
        """What is written is read."""
        assert ENTRY == encoding.unpack_entry(encoding.pack_entry(ENTRY))

    def test_number_is_read_alone(self) -> None:
        """The number can be read without the rest."""
        assert 7 == encoding.entry_number(memoryview(encoding.pack_entry(ENTRY)))

    def test_memory_never_written_is_no_entry(self) -> None:
        """Zeros are not taken for a call."""
        assert encoding.unpack_entry(bytes(encoding.ENTRY_SIZE)) is None

    def test_no_torn_write_is_read(self) -> None:
        """Wherever the writer stopped between two entries, the mixture is not taken for either."""
        old = encoding.pack_entry(ENTRY).ljust(encoding.ENTRY_SIZE, b"\0")
        later = Entry(number=9, fingerprint=encoding.fingerprint(Call(kind="all_gather")), text="all_gather(int8[3])")
        new = encoding.pack_entry(later)
        mixtures = [new[:at] + old[at:] for at in range(1, len(new))]
        mixtures += [old[:at] + new[at:] + old[len(new) :] for at in range(1, len(new))]

        assert {ENTRY, later, None} >= {encoding.unpack_entry(mixture) for mixture in mixtures}
        assert len(new) < sum(encoding.unpack_entry(mixture) is None for mixture in mixtures)

    def test_long_text_fits(self) -> None:
        """A call of any length fits into an entry, and its two ends stay readable."""
        entry = dataclasses.replace(ENTRY, text=f"all_reduce({'1x2,' * 5000}scale=2)")
        data = encoding.pack_entry(entry)
        back = encoding.unpack_entry(data)

        assert encoding.ENTRY_SIZE >= len(data)
        assert back is not None
        assert back.text.startswith("all_reduce(1x2,")
        assert back.text.endswith(",scale=2)")


class TestCut:
    @pytest.mark.parametrize("limit", range(10, 40))
    def test_no_half_character(self, limit: int) -> None:
        """A cut never leaves half of a character, and never exceeds its limit."""
        data = encoding.cut("äöü€𝄞" * 20, limit)

        assert limit >= len(data)
        assert "…" in data.decode()
        assert "" == data.decode().translate(str.maketrans("", "", "äöü€𝄞…"))

    def test_short_text_stays(self) -> None:
        """What fits is not touched."""
        assert "€€".encode() == encoding.cut("€€", 6)

    def test_what_utf8_has_not(self) -> None:
        """A tag with a lone surrogate is recorded, not an error of ours."""
        assert b"a?b" == encoding.cut("a\ud800b", 10)


class TestGroupKey:
    def test_groups_have_names(self) -> None:
        """Different groups have different keys, and none is 0, which marks a free slot."""
        keys = {encoding.group_key(range(first, last)) for first in range(20) for last in range(first + 1, 40)}

        assert sum(39 - first for first in range(20)) == len(keys)
        assert 0 not in keys


class TestPoint:
    @pytest.mark.parametrize("world", [10, 64, 1000])
    def test_comes_back(self, world: int) -> None:
        """What is written is read, in worlds of any size."""
        data = encoding.pack_point(POINT, world).ljust(encoding.point_size(world), b"\0")

        assert encoding.point_size(world) == len(data)
        assert POINT == encoding.unpack_point(data, world)

    def test_memory_never_written_is_no_point(self) -> None:
        """Zeros are not taken for a position."""
        assert encoding.unpack_point(bytes(encoding.point_size(8)), 8) is None

    def test_longest_texts_fit(self) -> None:
        """Texts of any length fit beside each other."""
        point = dataclasses.replace(POINT, kind="k" * 999, tag="t" * 999, call="c" * 9999)
        data = encoding.pack_point(point, 16)
        back = encoding.unpack_point(data, 16)

        assert encoding.point_size(16) >= len(data)
        assert back is not None
        assert {"k", "…"} == set(back.kind)
