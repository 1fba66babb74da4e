from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def imported() -> None:
    """Import what the examples import before pytester takes its snapshot: a second import would take as long."""
    for name in ("lightning.pytorch", "sklearn.datasets", "sklearn.model_selection"):
        importlib.import_module(name)


@pytest.fixture
def copied(torch_loaded: bool, imported: None, pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with the examples."""
    shutil.copytree(EXAMPLES, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return pytester


def run(copied: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run them as the README says; what libraries warn of is theirs."""
    return copied.runpytest_inprocess("-Wignore", *args)


class TestExamples:
    def test_eight_cores(self, copied: pytest.Pytester) -> None:
        """All examples pass on eight emulated cores, on one core and on eight where they say so; none is skipped."""
        run(copied, "--tpu-cores=8", "--tpu-require").assert_outcomes(passed=16)

    def test_no_host(self, copied: pytest.Pytester) -> None:
        """Without a host all of them are skipped, and the reason says how to run them."""
        result = run(copied, "-rs")

        result.assert_outcomes(skipped=15)
        result.stdout.fnmatch_lines(["SKIPPED * needs a TPU host: *--tpu-cores=8 emulates one*"])

    def test_named(self) -> None:
        """The README of the examples names every file, and no other."""
        named = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())

        assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(named)

    @pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
    def test_a_page(self, path: Path) -> None:
        """An example is a page."""
        assert 80 > len(path.read_text().splitlines())
