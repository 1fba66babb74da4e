"""How numbers and signals read."""

from __future__ import annotations

import signal

from pytest_tpu.model.verdict import UNKNOWN_END


def process_end(exit_code: int) -> str:
    """Write the end of a process: ``"killed by SIGSEGV (11)"``, ``"killed by signal 43"`` or ``"exit code 3"``."""
    if exit_code == UNKNOWN_END:
        return "exit code lost"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name} ({-exit_code})"
    except ValueError:
        # A real-time signal between the first and the last.
        return f"killed by signal {-exit_code}"


def seconds(value: float) -> str:
    """Write a time with the digits that matter: ``"0.04 s"``, ``"2.5 s"``, ``"300 s"``."""
    if round(value, 1) >= 100 or value == int(value):
        return f"{value:.0f} s"
    return f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"
