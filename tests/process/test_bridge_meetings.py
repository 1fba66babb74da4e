from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from typing import Any

import pytest

from pytest_tpu.errors import MismatchError, WorldStopped
from pytest_tpu.ledger import Ledger
from pytest_tpu.model.place import Call, Place
from tests.process.bridge_worlds import raising, run

pytestmark = pytest.mark.process

SUM = Call(kind="all_reduce", dtype="float32", shape="4x2", reduction="sum")


def numbered(number: int) -> Call:
    """A call that is like no other, and longer the higher its number."""
    return Call(kind="all_reduce", detail=f"{number} " + "x" * (number % 700))


@pytest.mark.parametrize("futex", [True, False], ids=["futex", "sleeps"])
def test_many_meetings_of_many_groups(futex: bool) -> None:
    """However unevenly ordinals run, and in groups that overlap, each call meets the call of its number."""
    size, rounds = 4, 150
    groups = [group for count in (2, 3, 4) for group in itertools.combinations(range(size), count)]

    def body(place: Place) -> int:
        dice, calls = random.Random(place.ordinal), random.Random(0)
        count = 0
        for number in range(rounds):
            group = calls.choice(groups)
            if place.ordinal in group:
                if dice.random() < 0.1:
                    time.sleep(dice.random() / 1000)  # to be uneven, not to wait for something
                place.meetings.meet(group, numbered(number))
                count += 1
        return count

    ledger = Ledger.create(size, futex=futex)
    counts = run(size, body, ledger=ledger)
    left = ledger.snapshot()
    ledger.close()

    assert 2 * rounds <= sum(counts)
    assert [False] * size == [position.inside for position in left]


def test_threads_of_an_ordinal_keep_one_order() -> None:
    """Threads that call in the same group get numbers in an order that all ordinals see alike."""

    def body(place: Place) -> list[int]:
        numbers: list[int] = []

        def calls() -> None:
            numbers.extend(place.meetings.meet((0, 1), SUM) for _ in range(50))

        threads = [threading.Thread(target=calls) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return sorted(numbers)

    assert [list(range(1, 151))] * 2 == run(2, body)


def test_every_ordinal_gets_the_mismatch() -> None:
    """One of four calls something else: all four raise, and say the same."""

    def body(place: Place) -> str:
        texts: list[str] = []
        call = Call(kind="all_reduce", dtype="float32", shape="4x2", reduction="max" if place.ordinal == 1 else "sum")
        with raising(MismatchError, texts):
            place.meetings.meet(range(4), call)
        return texts[0]

    expected = "ordinals 0, 2-3 called all_reduce(sum, float32[4x2]); ordinal 1 called all_reduce(max, float32[4x2])"

    assert [expected] * 4 == run(4, body)


@pytest.mark.parametrize("futex", [True, False], ids=["futex", "sleeps"])
def test_a_signal_ends_the_wait_at_once(futex: bool) -> None:
    """A handler that raises gets out of a wait for an ordinal that never comes, and the group stays usable."""

    class AlarmError(Exception):
        pass

    def interrupt(number: int, frame: Any) -> None:
        raise AlarmError

    def body(place: Place) -> float:
        if place.ordinal == 1:
            return 0.0
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begun = time.monotonic()
        with raising(AlarmError, []):
            place.meetings.meet((0, 1), SUM)
        took = time.monotonic() - begun - 0.2
        assert 1 == place.meetings.meet((0,), SUM)
        return took

    ledger = Ledger.create(2, futex=futex)
    took = run(2, body, ledger=ledger)[0]
    ledger.close()

    # Far below any limit, and far above the noise of a machine that others use too.
    assert 0.0 <= took < 1.0


def test_waiting_costs_nothing() -> None:
    """Eight ordinals that wait for half a second use next to no processor time."""
    size = 8

    def body(place: Place) -> float:
        place.meetings.meet(range(size), SUM)
        used = time.process_time()
        if place.ordinal == 0:
            time.sleep(0.5)  # what the others wait for
        place.meetings.meet(range(size), SUM)
        return time.process_time() - used

    assert 0.05 > max(run(size, body))


def test_stop_reaches_a_thread_while_the_main_thread_is_elsewhere() -> None:
    """Whoever stops the world ends the wait of a thread that signals don't reach."""
    ledger = Ledger.create(3)

    def body(place: Place) -> str:
        if place.ordinal == 2:
            deadline = time.monotonic() + 30
            while not all(position.inside for position in ledger.snapshot()[:2]):
                assert time.monotonic() < deadline
                time.sleep(0.001)
            ledger.stop()
            return "stopped"
        said: list[str] = []

        def wait() -> None:
            with raising(WorldStopped, said):
                place.meetings.meet(range(3), SUM)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(30)
        return said[0]

    said = run(3, body, ledger=ledger)
    ledger.close()

    assert ["the world is being stopped", "the world is being stopped", "stopped"] == said


def test_the_record_of_a_killed_ordinal_stays() -> None:
    """A process that is killed inside a call leaves its position, and the snapshot waits for nobody."""
    ledger = Ledger.create(2)
    positions: list[Any] = []

    def body(place: Place) -> int:
        if place.ordinal == 0:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
        place.meetings.meet((0,) if place.ordinal else (0, 1), SUM)
        return 0

    with pytest.raises(AssertionError, match="ordinal 0:\nended without a word"):
        run(2, body, ledger=ledger)
    positions.extend(ledger.snapshot())
    ledger.close()

    assert (True, 1, (0, 1)) == (positions[0].inside, positions[0].sequence, positions[0].group)
    assert 0 == positions[1].sequence
