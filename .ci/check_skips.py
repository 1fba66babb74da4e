"""Fail on any skipped test that the committed list does not have.

Usage: check_skips.py LIST JUNIT_XML...
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """A line of the list.

    Args:
        pattern: a node id, in which ``*`` stands for anything; brackets are brackets.
        reason: why the test may be skipped.
    """

    pattern: str
    reason: str

    def matches(self, node: str) -> bool:
        """Whether it is about this test."""
        return re.fullmatch(".*".join(map(re.escape, self.pattern.split("*"))), node) is not None


@dataclass(frozen=True, kw_only=True)
class Case:
    """A test of the run: its node id, and why it was skipped, or None."""

    node: str
    skipped: str | None


def parse_list(text: str) -> list[Allowed]:
    """Read the list; a line without a reason is an error."""
    allowed = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition("  # ")
        if not reason.strip():
            raise ValueError(f"line {number} has no reason, after two blanks and '# ': {line}")
        allowed.append(Allowed(pattern=pattern.strip(), reason=reason.strip()))
    return allowed


def parse_junit(text: str) -> list[Case]:
    """Read the tests of a run of pytest; an xfail is in JUnit's words a skip, and is none here."""
    cases = []
    for element in ElementTree.fromstring(text).iter("testcase"):
        skips = [skip for skip in element.iter("skipped") if skip.get("type") != "pytest.xfail"]
        reasons = [skip.get("message") if skip.get("type") else skip.text for skip in skips]
        cases.append(Case(node=_node(element), skipped=reasons[0] or "no reason" if reasons else None))
    return cases


def _node(element: ElementTree.Element) -> str:
    """The node id that pytest had, which JUnit keeps as a file, a dotted class and a name.

    A file that is skipped as a whole, when it is collected, has no class and no name of its own.
    """
    classname, name, file = element.get("classname", ""), element.get("name", ""), element.get("file", "")
    if not classname:
        return file or name
    module = file.removesuffix(".py").replace("/", ".")
    classes = classname.removeprefix(module).strip(".").split(".")
    return "::".join([file, *filter(None, classes), name])


def complaints(cases: list[Case], allowed: list[Allowed]) -> list[str]:
    """What is wrong with a run, a line each."""
    if all(case.skipped is not None for case in cases):
        return [f"no test ran: {len(cases)} collected, all of them skipped"]
    return [
        f"skipped, and not in the list: {case.node}: {case.skipped}"
        for case in cases
        if case.skipped is not None and not any(entry.matches(case.node) for entry in allowed)
    ]


def main(arguments: list[str]) -> int:
    """Check the files; returns the exit code."""
    list_file, *junit_files = map(Path, arguments)
    allowed = parse_list(list_file.read_text(encoding="utf-8"))
    cases = [case for file in junit_files for case in parse_junit(file.read_text(encoding="utf-8"))]
    lines = complaints(cases, allowed)
    skipped = sum(case.skipped is not None for case in cases)
    summary = f"{len(cases)} tests, {skipped} skipped, {len(allowed)} entries in {list_file}"
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, f"skips: {summary}: {'refused' if lines else 'fine'}"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
