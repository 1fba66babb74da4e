"""Reads the short summary of an inner run of pytest: what a user sees of each test at one glance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SHOW_ALL = ("-rA", "--no-fold-skipped")
"""The options with which every test has its line."""

_LINE = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS|RERUN) (?:at (\w+) of )?(\S+?)(?: - (.*))?")


def summary(result: pytest.RunResult) -> dict[str, str]:
    """Give, by the name of the test, its word and its headline: ``{"test_a": "FAILED RAISED: ordinal 1: …"}``.

    A name that has several lines (the failure and an error at its teardown) has them joined by line ends.
    """
    found: dict[str, list[str]] = {}
    begins = next((index for index, line in enumerate(result.outlines) if "short test summary info" in line), None)
    for line in [] if begins is None else result.outlines[begins:]:
        if match := _LINE.fullmatch(line):
            word, _, node, text = match.groups()
            found.setdefault(node.partition("::")[2], []).append(f"{word} {text}" if text else word)
    return {name: "\n".join(lines) for name, lines in found.items()}
