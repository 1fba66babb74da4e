"""What is published: the metadata, the files, and the check that CI makes of skipped tests."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent


@pytest.fixture
def distribution() -> importlib.metadata.Distribution:
    """The installed package."""
    try:
        return importlib.metadata.distribution("pytest-tpu")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pytest-tpu is not installed here; tox installs its wheel")


def _requirements(distribution: importlib.metadata.Distribution) -> list[Requirement]:
    return [Requirement(line) for line in distribution.requires or []]


def _names(distribution: importlib.metadata.Distribution, extra: str = "", **machine: str) -> set[str]:
    """The packages that are installed with an extra on a machine, beyond those that every user gets."""
    linux = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.12"}
    return {
        requirement.name
        for requirement in _requirements(distribution)
        if _wanted(requirement, {**linux, **machine, "extra": extra})
    }


def _wanted(requirement: Requirement, environment: dict[str, str]) -> bool:
    """Whether a requirement holds in an environment; one without a marker belongs to no extra."""
    if requirement.marker is None:
        return environment["extra"] == ""
    return requirement.marker.evaluate(environment)


class TestMetadata:
    """What an installer and PyPI read."""

    def test_fields(self, distribution: importlib.metadata.Distribution) -> None:
        """The name, the oldest Python and the licence are what the README promises."""
        metadata = distribution.metadata

        assert "pytest-tpu" == metadata["Name"]
        assert ">=3.10" == metadata["Requires-Python"]
        assert "Apache-2.0" == metadata["License-Expression"]
        assert "Framework :: Pytest" in metadata.get_all("Classifier", [])

    def test_entry_point(self, distribution: importlib.metadata.Distribution) -> None:
        """Pytest finds the plugin under the name `tpu`, so that `-p no:tpu` switches it off."""
        (entry,) = distribution.entry_points.select(group="pytest11")

        assert ("tpu", "pytest_tpu.plugin") == (entry.name, entry.value)

    def test_changelog_has_version(self, distribution: importlib.metadata.Distribution) -> None:
        """The version is in the changelog, or still to be released."""
        headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

        assert {distribution.version, "Unreleased"} & set(headings)


class TestRequirements:
    """What is installed with it."""

    def test_plain(self, distribution: importlib.metadata.Distribution) -> None:
        """Without an extra neither torch nor torch_xla is installed."""
        assert {"pytest", "pytest-timeout", "pytest-xdist", "psutil", "wrapt", "cloudpickle"} == _names(distribution)

    @pytest.mark.parametrize("extra", ["xla", "tpu"])
    def test_pair(self, extra: str, distribution: importlib.metadata.Distribution) -> None:
        """An extra brings torch and torch_xla of one release, since torch_xla's metadata does not name torch."""
        pair = [entry for entry in _requirements(distribution) if entry.marker and f'"{extra}"' in str(entry.marker)]

        assert {"torch", "torch-xla"} == {entry.name.replace("_", "-") for entry in pair}
        assert 1 == len({str(entry.specifier) for entry in pair})

    @pytest.mark.parametrize("extra", ["xla", "tpu"])
    @pytest.mark.parametrize(
        "machine",
        [
            {"sys_platform": "darwin"},
            {"sys_platform": "win32"},
            {"platform_machine": "aarch64"},
            {"python_version": "3.14"},
        ],
        ids=["macos", "windows", "arm", "too-new"],
    )
    def test_no_wheels(
        self, extra: str, machine: dict[str, str], distribution: importlib.metadata.Distribution
    ) -> None:
        """Where torch_xla has no wheels, its extras install nothing rather than fail."""
        assert set() == _names(distribution, extra, **machine)

    def test_tpu_brings_libtpu(self, distribution: importlib.metadata.Distribution) -> None:
        """The extra `tpu` asks torch_xla for its own extra `tpu`, without which there is no libtpu."""
        extras = [entry.extras for entry in _requirements(distribution) if entry.name.replace("_", "-") == "torch-xla"]

        assert {"tpu"} in extras


class TestFiles:
    """What is in the wheel."""

    def test_contents(self, distribution: importlib.metadata.Distribution) -> None:
        """The wheel has the types' marker and the licence, and nothing outside the package."""
        files = [str(file) for file in distribution.files or []]
        if not any(file.endswith("plugin.py") for file in files):
            pytest.skip("an editable install lists no files; tox installs the wheel")
        tops = {file.split("/")[0] for file in files if not file.startswith("..")}

        assert "pytest_tpu/py.typed" in files
        assert any(file.endswith("licenses/LICENSE") for file in files)
        assert {"pytest_tpu", f"pytest_tpu-{distribution.version}.dist-info"} == tops


@pytest.fixture
def check_skips(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The check of `.ci/run`, which is a script and not on any path."""
    path = ROOT / ".ci" / "check_skips.py"
    spec = importlib.util.spec_from_file_location("check_skips", path)

    assert spec is not None
    assert spec.loader is not None

    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "check_skips", module)
    spec.loader.exec_module(module)
    return module


class TestSkips:
    """The check that nothing is skipped which nobody decided on."""

    SKIPPING = """
        import pytest

        class TestGroup:
            @pytest.mark.parametrize("case", ["1core", "a.b::c"])
            def test_late(self, case):
                pytest.skip("no chips")

        @pytest.mark.skip(reason="marked")
        def test_early(): pass

        @pytest.mark.xfail
        def test_known(): assert False

        def test_fine(): pass
    """

    def _run(self, pytester: pytest.Pytester, check_skips: Any, allowed: str) -> tuple[int, list[str]]:
        """Skip some tests for real, then check them against a list."""
        folder = pytester.mkdir("suite")
        source = "\n".join(line.removeprefix("        ") for line in self.SKIPPING.splitlines())
        (folder / "test_some.py").write_text(source, encoding="utf-8")
        (folder / "test_none.py").write_text(
            "import pytest\npytest.skip('not here', allow_module_level=True)\n", encoding="utf-8"
        )
        junit, entries = pytester.path / "junit.xml", pytester.path / "skips.txt"
        pytester.runpytest_inprocess(f"--junitxml={junit}", "-o", "junit_family=xunit1")
        entries.write_text(allowed, encoding="utf-8")
        cases = check_skips.parse_junit(junit.read_text(encoding="utf-8"))
        lines = check_skips.complaints(cases, check_skips.parse_list(allowed))
        return check_skips.main([str(entries), str(junit)]), lines

    def test_unlisted(self, pytester: pytest.Pytester, check_skips: Any) -> None:
        """Every skipped test that the list lacks is told by its node id and fails the check; an xfail is no skip."""
        code, lines = self._run(pytester, check_skips, "# nothing is allowed\n")
        nodes = {re.split(r": (?!:)", line)[1] for line in lines}
        late = "suite/test_some.py::TestGroup::test_late"

        assert 1 == code
        assert {
            "suite/test_none.py",
            "suite/test_some.py::test_early",
            f"{late}[1core]",
            f"{late}[a.b::c]",
        } == nodes

    def test_listed(self, pytester: pytest.Pytester, check_skips: Any) -> None:
        """A list that has every skipped test, by name or by a pattern, makes the check pass."""
        allowed = """
suite/test_none.py  # needs chips
suite/test_some.py::test_early  # needs chips
suite/test_some.py::TestGroup::test_late[*]  # needs chips
"""

        assert (0, []) == self._run(pytester, check_skips, allowed)

    def test_brackets_are_brackets(self, pytester: pytest.Pytester, check_skips: Any) -> None:
        """Brackets in a pattern stand for themselves, so that one parameter does not allow another."""
        allowed = """
suite/test_none.py  # needs chips
suite/test_some.py::test_early  # needs chips
suite/test_some.py::TestGroup::test_late[1core]  # needs chips
"""
        code, lines = self._run(pytester, check_skips, allowed)

        assert 1 == code
        assert ["skipped, and not in the list: suite/test_some.py::TestGroup::test_late[a.b::c]: no chips"] == lines

    def test_reason_is_asked_for(self, check_skips: Any) -> None:
        """A line without a reason is an error that names the line."""
        with pytest.raises(ValueError, match="line 2 has no reason"):
            check_skips.parse_list("# why not\ntests/test_a.py::test_b\n")

    def test_all_skipped(self, check_skips: Any) -> None:
        """A run in which no test ran fails, whatever the list allows."""
        cases = [check_skips.Case(node="test_a.py::test_b", skipped="no chips")]
        allowed = check_skips.parse_list("*  # anything goes")

        assert ["no test ran: 1 collected, all of them skipped"] == check_skips.complaints(cases, allowed)

    def test_list_is_readable(self, check_skips: Any) -> None:
        """The committed list has a reason in each line, and every line is about a file that exists."""
        entries = check_skips.parse_list((ROOT / ".ci" / "skips.txt").read_text(encoding="utf-8"))

        assert [] == [entry.pattern for entry in entries if not (ROOT / entry.pattern.split("::")[0]).is_file()]
