"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pytest_tpu.model.verdict import VerdictKind
from pytest_tpu.options import OPTIONS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(comment: str, language: str) -> str:
    """The block of code that stands below an HTML comment."""
    found = re.search(rf"<!-- {re.escape(comment)} -->\n```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None, comment
    return found[1]


def essence(line: str) -> str:
    """A line of output without what differs from run to run: process ids, times, the width of rules."""
    line = re.sub(r"\d+(\.\d+)? s\b", "T s", line)
    line = re.sub(r"^(\d+) +\d+ ", r"\1 PID ", line)
    line = re.sub(r"(?<!\w)[-=_]{2,}(?!\w)|^[-=_ ]+|[-=_ ]+$", "", line)
    return re.sub(r" +", " ", line).strip()


def test_the_failing_test_prints_what_the_readme_shows(pytester: pytest.Pytester) -> None:
    """The first example fails with the output that is printed below it, line by line where no dots stand."""
    pytester.makepyfile(test_shards=block("shown: test_shards.py", "python"))
    command = re.search(r"<!-- output of: pytest (.*) -->", README)
    assert command is not None
    shown = block(f"output of: pytest {command[1]}", "text")

    result = pytester.runpytest_inprocess(*shlex.split(command[1]))

    printed = [essence(line) for line in result.outlines]
    position = 0
    for line in map(essence, shown.splitlines()):
        if line and line != "...":
            assert line in printed[position:], f"{line!r} is not printed, or not there"
            position = printed.index(line, position) + 1


def test_the_launching_tests_pass(pytester: pytest.Pytester) -> None:
    """The second example passes on eight cores: once per world size, and once with tpu_launch."""
    pytester.makepyfile(block("passes on eight cores", "python"))

    result = pytester.runpytest_inprocess("--tpu-cores=8")

    result.assert_outcomes(passed=3)


def test_the_table_of_options_is_the_table_of_options() -> None:
    """Every option stands in the README with all its spellings and the text of --help, and no other does."""
    shown = re.findall(r"^\| `(--tpu-[^`]+)` \| `([^`]+)` \| `([^`]+)` \| (.*) \|$", README, re.MULTILINE)

    def flag(option: object) -> str:
        metavar = getattr(option, "metavar", "")
        return f"{getattr(option, 'flag', '')}={metavar}" if metavar else str(getattr(option, "flag", ""))

    assert [(flag(o).replace("|", "\\|"), o.ini, o.variable, o.help) for o in OPTIONS] == shown


def test_the_table_of_verdicts_names_every_kind() -> None:
    """Every kind of verdict is explained, and no other."""
    table = README.partition("## Verdicts")[2].partition("## ")[0]

    assert [kind.value for kind in VerdictKind] == re.findall(r"^\| ([A-Z]+) \|", table, re.MULTILINE)


def test_ci_runs_the_command_of_the_readme() -> None:
    """What the README says runs all checks, and what CONTRIBUTING.md says, is what CI runs."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    python3 -m venv .* && \.venv/bin/tox (.*)$", README, re.MULTILINE)
    # The other one is for the examples.
    (command,) = [arguments for arguments in shown if " examples" not in arguments]

    assert [command] == re.findall(r'"\$venv/bin/tox" ([^<|>]*) <', script)
    assert f"\n    .venv/bin/tox {command}\n" in contributing
