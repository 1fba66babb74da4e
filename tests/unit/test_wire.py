from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from pytest_tpu.errors import MessageError
from pytest_tpu.wire import Reader, Writer


@pytest.fixture
def ends() -> Iterator[tuple[Reader, Writer, int]]:
    """A pipe with a reader, a writer, and the descriptor of the writer."""
    receive, send = os.pipe()
    reader = Reader(receive)
    yield reader, Writer(send), send
    reader.close()
    os.close(send)


Ends = tuple[Reader, Writer, int]


def frame(message: object) -> bytes:
    """The bytes of one message."""
    receive, send = os.pipe()
    Writer(send).send(message)
    os.close(send)
    with os.fdopen(receive, "rb") as file:
        return file.read()


def test_order(ends: Ends) -> None:
    """Messages come whole and in order, and each once."""
    reader, writer, _ = ends
    for message in ("one", {"two": 2}, None):
        writer.send(message)

    assert ["one", {"two": 2}, None] == reader.receive()
    assert [] == reader.receive()


def test_nothing_yet(ends: Ends) -> None:
    """Reading never waits."""
    assert [] == ends[0].receive()
    assert not ends[0].at_end


@pytest.mark.parametrize("cut", [0, 3, 8, 9, -1])
def test_pieces(ends: Ends, cut: int) -> None:
    """A message that comes in pieces is delivered with the last of them."""
    reader, _, send = ends
    data = frame("first") + frame("second")
    os.write(send, data[: len(frame("first")) + cut] if cut >= 0 else data[:-1])
    first = reader.receive()
    os.write(send, data[len(frame("first")) + cut :] if cut >= 0 else data[-1:])

    assert (["first"], ["second"]) == (first, reader.receive())


def test_every_byte(ends: Ends) -> None:
    """However small the pieces, nothing is lost."""
    reader, _, send = ends
    got = []
    for byte in frame("first") + frame("second"):
        os.write(send, bytes([byte]))
        got += reader.receive()

    assert ["first", "second"] == got


def test_writer_dies_in_the_middle() -> None:
    """Half a message at the end is never delivered, and the end is noted."""
    receive, send = os.pipe()
    reader = Reader(receive)
    os.write(send, frame("whole") + frame("half")[:-1])
    os.close(send)

    assert ["whole"] == reader.receive()
    assert reader.at_end
    assert [] == reader.receive()
    reader.close()


def test_larger_than_the_pipe(ends: Ends) -> None:
    """A message that is larger than a pipe goes out while it is read."""
    reader, writer, _ = ends
    thread = threading.Thread(target=writer.send, args=(bytes(1_000_000),))
    thread.start()
    got: list[bytes] = []
    while thread.is_alive() or not got:
        got += reader.receive()
        thread.join(0.001)

    assert [1_000_000] == [len(message) for message in got]


def test_threads(ends: Ends) -> None:
    """Messages of several threads do not mix."""
    reader, writer, _ = ends
    threads = [threading.Thread(target=writer.send, args=(bytes([number]) * 50_000,)) for number in range(8)]
    for thread in threads:
        thread.start()
    got: list[bytes] = []
    while len(got) < 8:
        got += reader.receive()
        threads[0].join(0.001)
    for thread in threads:
        thread.join()

    assert [bytes([number]) * 50_000 for number in range(8)] == sorted(got)


def test_reader_is_gone() -> None:
    """A writer whose reader has gone hears of it."""
    receive, send = os.pipe()
    Reader(receive).close()

    with pytest.raises(BrokenPipeError):
        Writer(send).send("message")
    os.close(send)


def test_what_cannot_be_sent(ends: Ends) -> None:
    """What can't be pickled is an error that says so, before anything is written."""
    reader, writer, _ = ends
    with pytest.raises(MessageError, match=r"^lock can't be sent from an ordinal: TypeError: cannot pickle '_thread"):
        writer.send(threading.Lock())
    writer.send("next")

    assert ["next"] == reader.receive()


class Stopped(BaseException):
    """As a handler raises it."""


class TestInterrupt:
    def test_outside(self, ends: Ends) -> None:
        """Outside a message an interrupt raises at once."""
        with pytest.raises(Stopped):
            ends[1].interrupt(Stopped())

    def test_in_the_middle(self, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the middle of a message the interrupt waits for its end, so that the next one can be read."""
        reader, writer, _ = ends
        write = os.write

        def in_two(descriptor: int, data: bytes) -> int:
            count = write(descriptor, bytes(data)[:5])
            if len(data) > 5:
                writer.interrupt(Stopped())
            return count

        monkeypatch.setattr(os, "write", in_two)
        with pytest.raises(Stopped):
            writer.send("first")
        monkeypatch.undo()
        writer.send("second")

        assert ["first", "second"] == reader.receive()

    def test_by_another_thread(self, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
        """While another thread writes, the one that is interrupted is not kept."""
        reader, writer, _ = ends
        entered, leave = threading.Event(), threading.Event()
        write = os.write

        def slow(descriptor: int, data: bytes) -> int:
            entered.set()
            leave.wait(10)
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", slow)
        thread = threading.Thread(target=writer.send, args=("message",))
        thread.start()
        entered.wait(10)
        with pytest.raises(Stopped):
            writer.interrupt(Stopped())
        leave.set()
        thread.join(10)

        assert ["message"] == reader.receive()
