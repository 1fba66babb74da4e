from __future__ import annotations

from pytest_tpu.ledger.encoding import Entry, fingerprint
from pytest_tpu.ledger.mismatch import mismatch
from pytest_tpu.model.place import Call


def entry(call: Call, text: str | None = None) -> Entry:
    """What an ordinal that calls `call` writes."""
    return Entry(number=1, fingerprint=fingerprint(call), text=text or str(call))


SUM = Call(kind="all_reduce", dtype="float32", shape="4x2", reduction="sum")
MAX = Call(kind="all_reduce", dtype="float32", shape="4x2", reduction="max")
GATHER = Call(kind="all_gather", dtype="int32", shape="3", detail="dim=0")


class TestMismatch:
    def test_agreement_says_nothing(self) -> None:
        """Calls that agree are no mismatch."""
        assert mismatch({0: entry(SUM), 1: entry(SUM)}) is None

    def test_both_sides_are_shown(self) -> None:
        """The text names the ordinals and the whole call of each side."""
        text = mismatch({0: entry(SUM), 1: entry(MAX), 2: entry(SUM)})

        assert (
            "ordinals 0, 2 called all_reduce(sum, float32[4x2]); ordinal 1 called all_reduce(max, float32[4x2])" == text
        )

    def test_three_sides(self) -> None:
        """As many sides as there are are shown, in the order of their first ordinals."""
        text = mismatch({0: entry(GATHER), 1: entry(MAX), 2: entry(SUM), 3: entry(MAX)})

        assert (
            "ordinal 0 called all_gather(int32[3], dim=0); ordinals 1, 3 called all_reduce(max, float32[4x2]); "
            "ordinal 2 called all_reduce(sum, float32[4x2])" == text
        )

    def test_a_rendezvous_shows_its_tag(self) -> None:
        """A tag that differs is shown as the user wrote it."""
        sides = {0: entry(Call(kind="rendezvous", tag="best")), 1: entry(Call(kind="rendezvous", tag="end"))}

        assert "ordinal 0 called rendezvous 'best'; ordinal 1 called rendezvous 'end'" == mismatch(sides)

    def test_what_is_cut_may_differ(self) -> None:
        """Calls that look alike because they were cut are told apart by their fingerprints."""
        text = mismatch({0: entry(SUM, "all_reduce(…)"), 1: entry(MAX, "all_reduce(…)")})

        assert text is not None
        assert text.endswith("they differ in the part that is left out")
        assert fingerprint(MAX).hex()[:8] in text
