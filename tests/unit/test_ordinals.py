from __future__ import annotations

import pytest

from pytest_tpu.model.ordinals import join_ordinals, name_ordinals


@pytest.mark.parametrize(
    ("text", "ordinals"),
    [
        ("", []),
        ("3", [3]),
        ("0-1", [0, 1]),
        ("0-3, 6", [6, 0, 1, 2, 3]),
        ("0, 2, 4-5", [4, 0, 5, 2]),
        ("9-11", [9, 10, 11]),
    ],
)
def test_join_ordinals(text: str, ordinals: list[int]) -> None:
    """Ordinals are written in order, neighbours as ranges."""
    assert text == join_ordinals(ordinals)


@pytest.mark.parametrize(
    ("text", "ordinals"),
    [("ordinal 1", [1]), ("ordinals 0-1", [0, 1]), ("ordinals 0, 2", [2, 0]), ("ordinals 0-3, 5", [0, 1, 2, 3, 5])],
)
def test_name_ordinals(text: str, ordinals: list[int]) -> None:
    """One ordinal is named as one, and several as several."""
    assert text == name_ordinals(ordinals)
