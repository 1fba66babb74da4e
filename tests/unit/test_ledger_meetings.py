from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pytest_tpu.errors import MismatchError, TpuError, WorldStopped
from pytest_tpu.ledger import Ledger
from pytest_tpu.ledger.doorbell import Doorbell
from pytest_tpu.ledger.meeting import OrdinalMeetings
from pytest_tpu.ledger.record import Record, layout
from pytest_tpu.model.place import Call
from pytest_tpu.model.position import Position

SUM = Call(kind="all_reduce", dtype="float32", shape="4x2", reduction="sum")
MAX = Call(kind="all_reduce", dtype="float32", shape="4x2", reduction="max")
LIMIT = 20.0


@pytest.fixture(params=[True, False], ids=["futex", "sleeps"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """Give the ledger of a world of three, whose ordinals are threads here."""
    ledger = Ledger.create(3, futex=request.param)
    yield ledger
    ledger.stop()
    ledger.close()


@pytest.fixture
def threads(ledger: Ledger) -> Iterator[ThreadPoolExecutor]:
    """Give threads that end before the ledger does."""
    pool = ThreadPoolExecutor(8)
    yield pool
    ledger.stop()
    pool.shutdown()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a bound."""
    tick = threading.Event()
    for _ in range(2000):
        if condition():
            return
        tick.wait(0.01)
    raise AssertionError("the condition did not come true")


class TestMeet:
    def test_all_go_on_together(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """Nobody passes before everyone has come; then all do, with the same number."""
        first = [threads.submit(ledger.meetings(ordinal).meet, range(3), SUM) for ordinal in (0, 1)]
        until(lambda: all(position.inside for position in ledger.snapshot()[:2]))
        passed = [future.done() for future in first]
        last = ledger.meetings(2).meet(range(3), SUM)

        assert [False, False] == passed
        assert [1, 1, 1] == [*(future.result(LIMIT) for future in first), last]

    def test_everyone_gets_the_mismatch(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """Every ordinal of the group raises, with the same text, and meets the others again afterwards."""

        def twice(ordinal: int) -> tuple[str, int]:
            meetings = ledger.meetings(ordinal)
            with pytest.raises(MismatchError) as caught:
                meetings.meet(range(3), MAX if ordinal == 1 else SUM)
            return str(caught.value), meetings.meet(range(3), SUM)

        said = list(threads.map(twice, range(3), timeout=LIMIT))

        assert {2} == {number for _, number in said}
        assert {
            "ordinals 0, 2 called all_reduce(sum, float32[4x2]); ordinal 1 called all_reduce(max, float32[4x2])"
        } == {text for text, _ in said}

    def test_groups_have_their_own_numbers(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """Numbers count per group: calls in one leave another's alone."""

        def calls(ordinal: int) -> list[int]:
            meetings = ledger.meetings(ordinal)
            small = [meetings.meet((0, 2), SUM) for _ in range(3)] if ordinal != 1 else []
            return [*small, meetings.meet(range(3), SUM)]

        assert [[1, 2, 3, 1], [1], [1, 2, 3, 1]] == list(threads.map(calls, range(3), timeout=LIMIT))

    def test_threads_share_one_order(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """The threads of an ordinal get numbers that are each given once."""
        waiting: list[Future[int]] = [
            threads.submit(ledger.meetings(ordinal).meet, (0, 1), SUM) for ordinal in (0, 1) for _ in range(3)
        ]

        assert [1, 1, 2, 2, 3, 3] == sorted(future.result(LIMIT) for future in waiting)

    def test_an_ordinal_alone(self, ledger: Ledger) -> None:
        """A group of one never waits."""
        assert [1, 2] == [ledger.meetings(1).meet((1,), SUM), ledger.meetings(1).meet((1,), MAX)]

    @pytest.mark.parametrize("group", [(1, 2), (2, 0), (0, 0, 1)])
    def test_wrong_group(self, ledger: Ledger, group: tuple[int, ...]) -> None:
        """A group without the ordinal, or not ascending, is the caller's mistake."""
        with pytest.raises(ValueError, match="ordinal 0 can't meet in the group"):
            ledger.meetings(0).meet(group, SUM)

    def test_stop_ends_the_wait(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """A world that is stopped ends waits, and lets no new one begin."""
        waiting = threads.submit(ledger.meetings(0).meet, range(3), SUM)
        until(lambda: ledger.snapshot()[0].inside)
        ledger.stop()

        assert isinstance(waiting.exception(LIMIT), WorldStopped)
        with pytest.raises(WorldStopped):
            ledger.meetings(1).meet(range(3), SUM)

    def test_one_that_did_not_wait(self, ledger: Ledger) -> None:
        """An ordinal whose wait was broken off and that goes on is noticed, whatever it has overwritten."""
        interrupted = OrdinalMeetings(0, ledger._records, lambda: True)
        for call in (SUM, SUM, MAX):
            with pytest.raises(WorldStopped):
                interrupted.meet((0, 1), call)

        with pytest.raises(MismatchError, match=r"ordinal 0 left call #1 .* went on to #3, all_reduce\(max"):
            ledger.meetings(1).meet((0, 1), SUM)

    def test_too_many_groups(self, ledger: Ledger) -> None:
        """When the ledger has no room for more groups it says so."""
        shape = layout(3)
        record = Record(memoryview(bytearray(shape.stride)), shape, futex=False)

        with pytest.raises(TpuError, match="more than 262 groups"):
            record.take_slot(1, shape.slots)


class TestSnapshot:
    def test_nobody_came_yet(self, ledger: Ledger) -> None:
        """An ordinal that has entered nothing has a position without a call."""
        assert (Position(ordinal=0), Position(ordinal=1), Position(ordinal=2)) == ledger.snapshot()

    def test_inside_and_left(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """A position shows the call, whether it was left, and since when."""
        call = Call(kind="rendezvous", tag="save")
        waiting = threads.submit(ledger.meetings(0).meet, (0, 2), call)
        until(lambda: ledger.snapshot()[0].inside)
        inside = ledger.snapshot()[0]
        ledger.meetings(2).meet((0, 2), call)
        waiting.result(LIMIT)
        left = ledger.snapshot()[0]

        assert ("rendezvous", "save", 1, (0, 2), True, "rendezvous 'save'") == (
            inside.kind,
            inside.tag,
            inside.sequence,
            inside.group,
            inside.inside,
            inside.call,
        )
        assert (False, 1) == (left.inside, left.sequence)
        assert inside.since < left.since

    def test_the_longest_wait_is_shown(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """With two threads inside, the position is that of the one that waits longer, until it is free."""
        old = threads.submit(ledger.meetings(0).meet, (0, 1), SUM)
        until(lambda: ledger.snapshot()[0].inside)
        young = threads.submit(ledger.meetings(0).meet, (0, 2), MAX)
        ledger.meetings(2).meet((0, 2), MAX)
        young.result(LIMIT)
        between = ledger.snapshot()[0]
        ledger.meetings(1).meet((0, 1), SUM)
        old.result(LIMIT)

        assert (True, (0, 1)) == (between.inside, between.group)
        assert not ledger.snapshot()[0].inside

    def test_a_mismatch_is_left(self, ledger: Ledger, threads: ThreadPoolExecutor) -> None:
        """An ordinal that got the error stands outside."""
        waiting = threads.submit(ledger.meetings(0).meet, (0, 1), SUM)
        with pytest.raises(MismatchError):
            ledger.meetings(1).meet((0, 1), MAX)

        assert isinstance(waiting.exception(LIMIT), MismatchError)
        assert [False, False] == [position.inside for position in ledger.snapshot()[:2]]

    def test_a_dead_writer_leaves_its_last_word(self, ledger: Ledger) -> None:
        """What a writer was about to write when it died does not hide what it wrote before."""
        shape = layout(3)
        data = memoryview(bytearray(shape.stride))
        record = Record(data, shape, futex=False)
        Ledger.meetings(ledger, 1).meet((1,), SUM)
        point = ledger._records[1].point()
        assert point is not None
        record.set_point(point)
        for at in range(shape.points, shape.points + shape.point, 8):  # the other of the two places, half-written
            data[at : at + 4] = b"torn"

        assert point == record.point()


class TestDoorbell:
    @pytest.mark.parametrize("futex", [True, False])
    def test_a_ring_before_the_wait_is_not_lost(self, futex: bool) -> None:
        """Whoever read the count before the ring does not wait."""
        bell = Doorbell(memoryview(bytearray(8)), 4, futex=futex)
        rings = bell.rings
        bell.ring()
        bell.wait(rings, 3600.0)

        assert 1 == bell.rings

    @pytest.mark.parametrize("futex", [True, False])
    def test_the_limit_ends_the_wait(self, futex: bool) -> None:
        """A bell that does not ring is waited for no longer than the limit."""
        bell = Doorbell(memoryview(bytearray(8)), 4, futex=futex)
        bell.wait(bell.rings, 0.001)

        assert 0 == bell.rings
