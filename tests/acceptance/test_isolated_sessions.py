from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

# The `finally` and the `with` run when a generator is collected, too.
SHARED = """
    import contextlib
    import os
    import shutil
    from pathlib import Path

    import pytest
    import pytest_tpu

    CONTROLLER = os.getpid()
    LOG = Path(__file__).with_name("log.txt")

    def note(text):
        where = "controller" if os.getpid() == CONTROLLER else "process"
        with LOG.open("a") as file:
            file.write(f"{text} in the {where}\\n")

    @contextlib.contextmanager
    def noted(name):
        note(f"{name} set up")
        try:
            yield
        finally:
            note(f"{name} torn down")

    @pytest.fixture(scope="session")
    def folder(request, tmp_path_factory):
        path = tmp_path_factory.mktemp("shared")
        if os.getpid() == CONTROLLER:
            request.node.addfinalizer(lambda: note("session torn down"))
            note("session set up")
        with noted("folder"):
            yield path
            shutil.rmtree(path)

    @pytest.fixture(scope="module")
    def module(folder):
        with noted("module"):
            yield folder

    @pytest.fixture(scope="class")
    def of_class(folder):
        with noted("class"):
            yield folder

    @pytest.fixture
    def function(folder):
        with noted("function"):
            yield folder

    class TestFirst:
        def test_here(self, folder):
            assert folder.is_dir()

    class TestSecond:
        @pytest_tpu.isolated
        def test_isolated(self, folder, module, of_class, function):
            assert folder.is_dir()

        @pytest_tpu.isolated
        def test_that_fails(self, folder, module, of_class, function):
            assert not folder.is_dir()

    class TestThird:
        def test_here(self, folder, of_class):
            assert folder.is_dir()

        @pytest_tpu.isolated
        def test_isolated(self, folder, of_class, function):
            assert folder.is_dir()

        def test_here_again(self, folder, of_class):
            assert folder.is_dir()
"""

PARAMETERS = """
    import os

    import pytest
    import pytest_tpu

    CONTROLLER = os.getpid()

    @pytest.fixture(scope="session")
    def opened(request, tmp_path_factory):
        path = tmp_path_factory.getbasetemp() / f"opened {request.param}"
        path.touch()
        try:
            yield path
        finally:
            path.unlink()

    @pytest.fixture(scope="session")
    def around(opened):
        yield opened
        assert opened.exists()

    @pytest.mark.parametrize("opened", [1], indirect=True)
    def test_one(around):
        assert around.exists()

    @pytest.mark.parametrize("opened", [2], indirect=True)
    @pytest_tpu.isolated
    def test_two(opened, around):
        assert "opened 2" == opened.name
        assert opened == around
        assert opened.exists()

    @pytest.mark.parametrize("opened", [1, 2], indirect=True)
    def test_last(around):
        assert around.exists()
"""

FLAKY = """
    from pathlib import Path

    import pytest
    import pytest_tpu

    TRIES = Path(__file__).with_name("tries.txt")

    def fails_once(name):
        with TRIES.open("a+") as file:
            file.seek(0)
            first = name not in file.read().split()
            file.write(f"{name} ")
        return first

    @pytest.fixture
    def fixture():
        assert not fails_once("fixture")

    @pytest_tpu.isolated
    def test_fixture(fixture):
        pass

    @pytest_tpu.isolated
    def test_body():
        assert not fails_once("body")

    @pytest_tpu.isolated
    def test_always():
        assert False
"""


def log(pytester: pytest.Pytester) -> list[str]:
    """What the fixtures noted."""
    return (pytester.path / "log.txt").read_text().splitlines()


ONCE = ["function set up in the process", "function torn down in the process"]


class TestSharedFixtures:
    @pytest.mark.parametrize("reruns", [[], ["--reruns=1"]], ids=["once", "reruns"])
    def test_one_session(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester, reruns: list[str]) -> None:
        """A process finishes what it set up, inner scopes first, and never what it inherited; reruns change nothing."""
        result = run_on_ordinals(SHARED, *reruns)

        result.assert_outcomes(passed=5, failed=1)
        own = [
            "module set up in the process",
            "class set up in the process",
            *ONCE,
            "class torn down in the process",
            "module torn down in the process",
        ]
        assert [
            "session set up in the controller",
            "folder set up in the controller",
            *own,
            *own * (2 if reruns else 1),
            "class set up in the controller",
            *ONCE,
            "class torn down in the controller",
            "folder torn down in the controller",
            "session torn down in the controller",
        ] == log(pytester)

    def test_xdist(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """Under xdist it holds in each worker, with reruns too, and the words are the same."""
        result = run_on_ordinals(SHARED, "-n2", "--reruns=1", *SHOW_ALL)

        result.assert_outcomes(passed=5, failed=1)
        assert "FAILED AssertionError: assert not True" in summary(result)["TestSecond::test_that_fails"]
        # Which worker gets which test is left to chance, and so is who sets the folder up.
        lines = Counter(log(pytester))
        assert dict.fromkeys(ONCE, 4) == {line: lines[line] for line in ONCE}
        begun = {line.replace(" set up", ""): lines[line] for line in lines if " set up" in line}
        ended = {line.replace(" torn down", ""): lines[line] for line in lines if " torn down" in line}
        assert begun == ended

    def test_parameters(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A fixture that is needed with another parameter is set up again, and the inherited one stays open."""
        run_on_ordinals(PARAMETERS).assert_outcomes(passed=4)


class TestReruns:
    def test_reruns(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """Each rerun of an isolated test is a process of its own, whose word counts."""
        result = run_on_ordinals(FLAKY, "--reruns=2")

        result.assert_outcomes(passed=2, failed=1)
        result.stdout.fnmatch_lines(["*1 failed, 2 passed, 4 rerun*"])
        assert Counter(fixture=2, body=2) == Counter((pytester.path / "tries.txt").read_text().split())
