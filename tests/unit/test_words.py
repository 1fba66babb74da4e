from __future__ import annotations

import signal

import pytest

from pytest_tpu.diagnose.words import process_end, seconds
from pytest_tpu.model.verdict import UNKNOWN_END


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [
        ("exit code 0", 0),
        ("exit code 3", 3),
        ("killed by SIGSEGV (11)", -signal.SIGSEGV),
        ("killed by SIGTERM (15)", -signal.SIGTERM),
        ("killed by signal 43", -43),
        ("exit code lost", UNKNOWN_END),
    ],
)
def test_process_end(text: str, exit_code: int) -> None:
    """Exit codes are numbers, signals have their names where they have any."""
    assert text == process_end(exit_code)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0 s", 0.0),
        ("0.04 s", 0.04),
        ("0.50 s", 0.5),
        ("1 s", 1.0),
        ("2.5 s", 2.5),
        ("60.2 s", 60.24),
        ("100 s", 99.96),
        ("300 s", 300.0),
        ("123 s", 123.4),
    ],
)
def test_seconds(text: str, value: float) -> None:
    """Times are written with the digits that matter."""
    assert text == seconds(value)
