from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_tpu.ordinal.pickling import Shared


class Several(Exception):
    """Made from more than it passes on."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"failed with {code} in {where}")
        self.code = code


class Wrapping(Exception):
    """Made from one thing and passes on another: calling the class again would wrap twice."""

    def __init__(self, text: str) -> None:
        super().__init__(f"<{text}>")


class OfFile(OSError):
    """With the state of a class that is written in C."""

    def __init__(self, path: str, *, tries: int) -> None:
        super().__init__(2, "not found", path)
        self.tries = tries


class Slotted(Exception):
    """With its own way of being pickled."""

    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    def __reduce__(self) -> Any:
        return _slotted, (self.code,)


def _slotted(code: int) -> Slotted:
    return Slotted(code=code)


class Local(Exception):
    """Stands in for a class that can't be imported."""


Local.__qualname__ = "somewhere.<locals>.Local"


def as_it_is(value: Any) -> Any:
    """In the place of the copy to the host."""
    return value


@pytest.fixture
def shared() -> Shared:
    """The classes that are there now."""
    return Shared()


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            Several(7, "here"),
            Wrapping("text"),
            OfFile("name", tries=3),
            Slotted(code=3),
            Local("local"),
            FileNotFoundError(2, "not found", "name"),
            KeyError("key"),
            SystemExit(3),
            UnicodeDecodeError("utf8", b"a", 0, 1, "because"),
            ImportError("no", name="module", path="path"),
            StopIteration(4),
            pytest.skip.Exception("skipped"),
            pytest.fail.Exception("failed", pytrace=False),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_round_trip(self, shared: Shared, error: BaseException) -> None:
        """An exception comes back with its class, text, arguments and attributes, whatever its constructor takes."""
        copy = shared.unpack(shared.pack_error(error, as_it_is))

        assert type(error) is type(copy)
        assert str(error) == str(copy)
        assert error.args == copy.args
        assert vars(error) == vars(copy)
        for name in ("errno", "filename", "code", "name", "path", "value", "reason"):
            assert getattr(error, name, None) == getattr(copy, name, None)

    def test_notes(self, shared: Shared) -> None:
        """What was added to an exception travels with it."""
        error = ValueError("wrong")
        error.__notes__ = ["in epoch 3"]  # type: ignore[attr-defined]

        assert ["in epoch 3"] == shared.unpack(shared.pack_error(error, as_it_is)).__notes__

    def test_cannot_travel(self, shared: Shared) -> None:
        """An exception that can't be pickled gives nothing."""
        error = ValueError("holds a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]

        assert b"" == shared.pack_error(error, as_it_is)


class TestValues:
    def test_known_class(self) -> None:
        """An object of a local class is one of that very class on the other side."""

        @dataclass
        class Point:
            x: int

        shared = Shared()

        assert [Point(3)] == shared.unpack(shared.pack([Point(3)], as_it_is))

    def test_class_made_later(self, shared: Shared) -> None:
        """A class that was made after the fork comes over by value."""

        @dataclass
        class Point:
            x: int

        assert 3 == shared.unpack(shared.pack(Point(3), as_it_is)).x

    def test_closure(self, shared: Shared) -> None:
        """A function comes over with what it closes over."""
        offset = 4

        assert 7 == shared.unpack(shared.pack(lambda x: x + offset, as_it_is))(3)
