"""A test file without tpu tests, to see what the plugin costs those who don't use it."""

from __future__ import annotations


def test_plain() -> None:
    """Nothing."""
