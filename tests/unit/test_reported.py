from __future__ import annotations

import pickle
import warnings
from enum import Enum

import pytest

from pytest_tpu.model.reported import Recorded, plain, plain_fields, plain_properties


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


class Number(float):
    """As NumPy's are."""


class Kind(str, Enum):
    TRAIN = "train"


class Step(int):
    pass


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (1, 1),
        (True, True),
        ("text", "text"),
        (None, None),
        ([1.5, {"key": (True,)}], [1.5, {"key": (True,)}]),
        (0.25, Number(0.25)),
        (3, Step(3)),
        ([str(Kind.TRAIN)], [Kind.TRAIN]),
    ],
)
def test_plain(expected: object, value: object) -> None:
    """Numbers and texts may travel, alone and in lists and dicts; what was derived from them becomes what it is."""
    assert repr(expected) == repr(plain(value))
    assert type(expected) is type(plain(value))


@pytest.mark.parametrize("value", [Loss(), b"bytes", {"key": Loss()}, [Loss()]])
def test_not_plain(value: object) -> None:
    """Nothing else may."""
    with pytest.raises(TypeError):
        plain(value)


def test_plain_fields() -> None:
    """Of a report only what may travel does; what contains itself can't."""
    value: list[object] = []
    value.append(value)

    assert {"when": "call"} == plain_fields({"when": "call", "loss": Loss(), "circle": value})


def test_plain_properties() -> None:
    """What is not plain travels as its text."""
    given: list[tuple[str, object]] = [("epoch", 3), ("loss", Loss()), (Kind.TRAIN, Number(0.5))]
    expected = (("epoch", 3), ("loss", "0.25"), (str(Kind.TRAIN), 0.5))

    assert repr(expected) == repr(plain_properties(given))
