from __future__ import annotations

import pickle
import warnings

import pytest

from pytest_tpu.model.reported import Recorded, is_plain, plain_properties


def recorded(category: type[Warning]) -> Recorded:
    """A warning as it comes out of the pipe."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("the text", category, stacklevel=1)
    copy: Recorded = pickle.loads(pickle.dumps(Recorded.of(caught[0])))
    return copy


class Demanding(UserWarning):
    def __init__(self, text: str, *, needed: int) -> None:
        super().__init__(f"{text} {needed}")


class TestRecorded:
    def test_round_trip(self) -> None:
        """A warning comes back with its class, text and line."""
        message = recorded(DeprecationWarning).message()

        assert DeprecationWarning is message.category
        assert "the text" == str(message.message)
        assert __file__ == message.filename
        assert 0 < message.lineno

    def test_local_class(self) -> None:
        """A class that can't be found again comes back as one of its name."""

        class Local(UserWarning):
            pass

        category = recorded(Local).message().category

        assert "Local" == category.__name__
        assert issubclass(category, UserWarning)

    def test_demanding_class(self) -> None:
        """A class that wants more than a text comes back as itself."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn(Demanding("the text", needed=3), stacklevel=1)
        message = Recorded.of(caught[0]).message()

        assert Demanding is message.category
        assert "the text 3" == str(message.message)

    def test_alike(self) -> None:
        """Two of one text and place are equal, so that they are shown once."""
        first, second = (recorded(UserWarning) for _ in range(2))

        assert 1 == len({first, second})


class Loss:
    def __str__(self) -> str:
        return "0.25"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1, True),
        ("text", True),
        (None, True),
        ([1.5, {"key": (True,)}], True),
        (Loss(), False),
        (b"bytes", False),
        ({"key": Loss()}, False),
    ],
)
def test_is_plain(value: object, plain: bool) -> None:
    """Numbers and texts may travel, alone and in lists and dicts; nothing else may."""
    assert plain == is_plain(value)


def test_is_plain_circular() -> None:
    """What contains itself is not plain."""
    value: list[object] = []
    value.append(value)

    assert not is_plain(value)


def test_plain_properties() -> None:
    """What is not plain travels as its text."""
    assert (("epoch", 3), ("loss", "0.25")) == plain_properties([("epoch", 3), ("loss", Loss())])
