from __future__ import annotations

import textwrap

import pytest

from pytest_tpu.diagnose.table import table
from pytest_tpu.model.verdict import OrdinalState, Outcome, VerdictKind
from tests.fakes import died, runs, said, verdict


def lines(text: str) -> str:
    """Take the indentation of the test from a table."""
    return textwrap.dedent(text).strip("\n")


def test_whole() -> None:
    """There is a line for each ordinal, in aligned columns, and the first event is marked."""
    states = (
        said(0, Outcome.PASSED, at=0.04),
        said(1, Outcome.FAILED, "KeyError: x\nand more", at=12.34, where="test_a.py:41"),
        died(2, -11),
        said(10, Outcome.SKIPPED, "why", at=2, where="test_a.py:3", exit_code=-15, stopped=True),
    )

    assert lines(
        """
        ordinal  pid   outcome  after   process                                   reason
        0        4100  passed   0.04 s  ended
        1        4101  failed   12.3 s  ended                                     KeyError: x in test_a.py:41  <- first
        2        4102  none     -       killed by SIGSEGV (11)
        10       4110  skipped  2 s     killed by SIGTERM (15) by the controller  why in test_a.py:3
        """
    ) == table(verdict(VerdictKind.RAISED, *states, first=1))


@pytest.mark.parametrize(
    ("row", "state"),
    [
        pytest.param("0 4100 none - survived SIGKILL", runs(0), id="nothing ended it"),
        pytest.param("0 4100 none - exit code 0", died(0, 0), id="left without a word"),
        pytest.param("0 4100 none - ended", died(0, 0, stopped=True), id="ended before its body"),
        pytest.param("0 4100 passed 1 s exit code 3", said(0, Outcome.PASSED, exit_code=3), id="left badly"),
        pytest.param("0 4100 passed 1 s ended", said(0, Outcome.PASSED, where="test_a.py:3"), id="no place of a pass"),
        pytest.param("0 4100 mismatched 1 s ended", said(0, Outcome.MISMATCHED, "in the headline"), id="mismatched"),
        pytest.param("0 4100 passed 0 s ended", said(0, Outcome.PASSED, at=-0.1), id="never before the launch"),
        pytest.param(
            "0 4100 stopped 1 s ended in test_a.py:3",
            said(0, Outcome.STOPPED, "by us", where="test_a.py:3"),
            id="stopped",
        ),
        pytest.param(
            f"0 4100 failed 1 s ended {'x' * 71}…", said(0, Outcome.FAILED, "x" * 80), id="a long reason is cut"
        ),
    ],
)
def test_row(row: str, state: OrdinalState) -> None:
    """A line says what is known, and no more."""
    text = table(verdict(VerdictKind.LOST, state)).splitlines()[1]

    assert row == " ".join(text.split())


def test_one_needs_no_mark() -> None:
    """Where there is only one, it is not marked as the first."""
    assert "first" not in table(verdict(VerdictKind.LOST, died(0, -9), first=0))
