from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_tpu.backend.chips import find_chips
from pytest_tpu.options import OPTIONS

# Asks in the process that runs the test: the xdist worker, if there is one.
SHOW = """
    import os
    from pathlib import Path

    from pytest_tpu.options import resolve

    def test_show(pytestconfig):
        settings = resolve(pytestconfig, os.environ)
        (pytestconfig.rootpath / "settings.txt").write_text(str(settings))
"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project with a test that writes down the settings that it runs with."""

    pytester: pytest.Pytester

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest with the plugin."""
        return self.pytester.runpytest(*args)

    def settings(self, *args: str) -> str:
        """Run the test and give its settings."""
        self.run(*args).assert_outcomes(passed=1)
        return (self.pytester.path / "settings.txt").read_text()


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A project in a folder of its own."""
    pytester.makepyfile(test_show=SHOW)
    return Project(pytester=pytester)


class TestPlaces:
    def test_command_line(self, project: Project) -> None:
        """Every option is taken from the command line."""
        text = project.settings(
            "--tpu-cores=3",
            "--tpu-backend=cpu",
            "--tpu-timeout=20",
            "--tpu-grace=0",
            "--tpu-require",
            "--tpu-isolate-marked=slow or (tpu and not fast)",
        )

        assert (
            "Settings(cores=3, backend='cpu', timeout=20.0, stall_timeout=60.0, grace=0.0, isolate=False,"
            " isolate_marked='slow or (tpu and not fast)', require=True)"
        ) == text

    def test_separate_value(self, project: Project) -> None:
        """A value may stand in the next argument."""
        assert "cores=3," in project.settings("--tpu-cores", "3")

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("pytest.ini", "[pytest]\ntpu_cores = 3\ntpu_require = yes\n"),
            ("pyproject.toml", "[tool.pytest.ini_options]\ntpu_cores = 3\ntpu_require = true\n"),
            ("pyproject.toml", '[tool.pytest]\ntpu_cores = "3"\ntpu_require = "true"\n'),
            ("tox.ini", "[pytest]\naddopts = --tpu-cores=3 --tpu-require\n"),
        ],
        ids=["ini", "toml-ini", "toml", "addopts"],
    )
    def test_ini(self, project: Project, name: str, content: str) -> None:
        """Options are taken from every kind of ini file that pytest reads."""
        (project.pytester.path / name).write_text(content)
        text = project.settings()

        assert "cores=3," in text
        assert "require=True" in text

    def test_native_toml(self, project: Project) -> None:
        """Native TOML takes numbers and booleans without quotes; older releases of pytest want quotes, and say so."""
        project.pytester.makepyprojecttoml("[tool.pytest]\ntpu_cores = 3\ntpu_timeout = 1.5\ntpu_require = true\n")
        if pytest.version_tuple < (9, 2):
            project.run().stderr.fnmatch_lines(["ERROR: *'tpu_cores' expects a string, got int: 3: give *, in quotes"])
            return
        text = project.settings()

        assert "cores=3," in text
        assert "timeout=1.5," in text
        assert "require=True" in text

    def test_precedence(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        """The ini file gives way to the environment, and both to the command line."""
        project.pytester.makeini("[pytest]\ntpu_cores = 2\ntpu_timeout = 2\ntpu_grace = 3\n")
        monkeypatch.setenv("PYTEST_TPU_CORES", "4")
        monkeypatch.setenv("PYTEST_TPU_TIMEOUT", "4")

        assert "cores=6, backend='auto', timeout=4.0, stall_timeout=60.0, grace=3.0," in project.settings(
            "--tpu-cores=6"
        )

    @pytest.mark.parametrize("place", ["ini", "environment", "command line"])
    def test_xdist(self, project: Project, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        """An xdist worker runs with the settings of the run, wherever they were made."""
        args = ["-n1"]
        if place == "ini":
            project.pytester.makeini("[pytest]\ntpu_cores = 3\n")
        elif place == "environment":
            monkeypatch.setenv("PYTEST_TPU_CORES", "3")
        else:
            args.append("--tpu-cores=3")

        assert "cores=3," in project.settings(*args)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arg", "allowed"),
        [
            ("--tpu-cores=0", "a whole number from 1"),
            ("--tpu-cores=x", "a whole number from 1"),
            ("--tpu-cores=-1", "a whole number from 1"),
            ("--tpu-timeout=-1", "a number of seconds from 0, where 0 means none"),
            ("--tpu-grace=nan", "a number of seconds from 0, where 0 means none"),
            ("--tpu-backend=gpu", "auto, tpu or cpu"),
        ],
    )
    def test_command_line(self, project: Project, arg: str, allowed: str) -> None:
        """A mistake on the command line ends the run with one sentence, before any conftest is loaded."""
        project.pytester.makeconftest("raise RuntimeError('loaded')")
        flag, _, value = arg.partition("=")
        result = project.run(arg)

        assert pytest.ExitCode.USAGE_ERROR == result.ret
        assert [f"ERROR: {flag}='{value}' on the command line is not allowed: give {allowed}", ""] == result.errlines

    def test_ini(self, project: Project) -> None:
        """A mistake in the ini file names the file and the key."""
        ini = project.pytester.makeini("[pytest]\ntpu_timeout = soon\n")
        result = project.run()

        assert pytest.ExitCode.USAGE_ERROR == result.ret
        result.stderr.fnmatch_lines([f"ERROR: tpu_timeout = 'soon' in {ini} is not allowed: give a number of seconds*"])

    def test_override(self, project: Project) -> None:
        """A mistake in -o is not looked for in the ini file."""
        project.pytester.makeini("[pytest]\ntpu_timeout = 5\n")
        result = project.run("-o", "tpu_timeout=soon")

        assert pytest.ExitCode.USAGE_ERROR == result.ret
        result.stderr.fnmatch_lines(["ERROR: tpu_timeout='soon' of -o on the command line is not allowed: *"])

    def test_environment(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        """A mistake in the environment names the variable."""
        monkeypatch.setenv("PYTEST_TPU_REQUIRE", "perhaps")
        result = project.run()

        assert pytest.ExitCode.USAGE_ERROR == result.ret
        result.stderr.fnmatch_lines(
            ["ERROR: PYTEST_TPU_REQUIRE='perhaps' in the environment is not allowed: give one of *"]
        )

    def test_native_type(self, project: Project) -> None:
        """Native TOML of a type that no option has is a mistake with the file, the key and the value."""
        project.pytester.makepyprojecttoml("[tool.pytest]\ntpu_cores = [1, 8]\n")
        result = project.run()

        assert pytest.ExitCode.USAGE_ERROR == result.ret
        result.stderr.fnmatch_lines(["ERROR: *pyproject.toml*tpu_cores*[[]1, 8]*give a whole number from 1*"])


MARKED = """
    import unittest

    import pytest
    import pytest_tpu
    from pytest_tpu.markers import isolated, multi_process

    @multi_process(cores=(1, 8), timeout=5)
    def test_function():
        pass

    @multi_process
    @pytest.mark.parametrize("value", [0, pytest.param(1, marks=multi_process(2))])
    def test_parametrized(value):
        pass

    @multi_process(1)
    class TestBase:
        def test_method(self):
            pass

        @isolated
        def test_isolated(self):
            pass

    @multi_process(8)
    class TestDerived(TestBase):
        pass

    @multi_process(4)
    class TestOld(unittest.TestCase):
        def test_method(self):
            pass

        @pytest.mark.tpu_multi_process(2, timeout=0)
        def test_marker(self):
            pass

    @pytest.mark.tpu
    def test_label():
        pass
"""


READ = """
    from pytest_tpu.markers import launch_of

    def pytest_collection_modifyitems(items):
        for item in items:
            print(f"{item.nodeid}: {launch_of(item)}")
"""


class TestMarkers:
    def test_read(self, project: Project) -> None:
        """Markers are read on functions, cases, methods, classes and TestCase methods, and the closest holds."""
        project.pytester.makepyfile(test_marked=MARKED, conftest=READ)
        result = project.run(
            "-s", "--collect-only", "-q", "test_marked.py", "-Wignore::pytest.PytestUnknownMarkWarning"
        )
        lines = dict(line.split(": ", 1) for line in result.outlines if ": " in line)

        def multi(cores: str = "None", timeout: str = "None") -> str:
            return (
                f"MarkedLaunch(kind=<LaunchKind.MULTI_PROCESS: 'multi_process'>, cores={cores}, timeout={timeout},"
                " stall_timeout=None)"
            )

        assert {
            "test_function[1core]": multi("(1, 8)", "5.0"),
            "test_function[8cores]": multi("(1, 8)", "5.0"),
            "test_parametrized[0]": multi(),
            "test_parametrized[1]": multi("(2,)"),
            "TestBase::test_method": multi("(1,)"),
            "TestBase::test_isolated": multi().replace("MULTI_PROCESS: 'multi_process'", "ISOLATED: 'isolated'"),
            "TestDerived::test_method": multi("(8,)"),
            "TestDerived::test_isolated": multi().replace("MULTI_PROCESS: 'multi_process'", "ISOLATED: 'isolated'"),
            "TestOld::test_method": multi("(4,)"),
            "TestOld::test_marker": multi("(2,)", "0.0"),
            "test_label": "None",
        } == {node.partition("::")[2]: launch for node, launch in lines.items()}

    @pytest.mark.parametrize(
        ("marker", "text"),
        [
            (
                "multi_process(cores=0)",
                "tpu_multi_process(cores=0) on {node} is not allowed: give a whole number from 1*",
            ),
            ("isolated(timeout=-1)", "tpu_isolated(timeout=-1) on {node} is not allowed: give a number of seconds*"),
            (
                "pytest.mark.tpu_multi_process(core=8)",
                "tpu_multi_process on {node}: got an unexpected keyword argument 'core', the arguments are cores, *",
            ),
            (
                "multi_process(cores=(1, 8))",
                "tpu_multi_process(cores=(1, 8)) on {node} is not allowed, since *TestCase*",
            ),
        ],
    )
    def test_mistakes(self, project: Project, marker: str, text: str) -> None:
        """A mistake in a marker is an error of the collection, in one sentence that names the test; nothing is run."""
        project.pytester.makepyfile(
            test_wrong=f"""
            import unittest

            import pytest
            from pytest_tpu.markers import isolated, multi_process

            class TestOld(unittest.TestCase):
                @{marker}
                def test_it(self):
                    pass
            """
        )
        result = project.run()

        assert pytest.ExitCode.INTERRUPTED == result.ret
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([text.format(node="test_wrong.py::TestOld::test_it")])

    def test_sweep_on_a_case(self, project: Project) -> None:
        """Several world sizes on one case of a parametrization are refused rather than run with the first."""
        project.pytester.makepyfile(
            test_wrong="""
            import pytest
            import pytest_tpu

            @pytest.mark.parametrize("value", [0, pytest.param(1, marks=pytest_tpu.multi_process(cores=(1, 8)))])
            def test_it(value):
                pass
            """
        )
        result = project.run()

        assert pytest.ExitCode.INTERRUPTED == result.ret
        result.stdout.fnmatch_lines(
            ["tpu_multi_process(cores=(1, 8)) on test_wrong.py::test_it[[]1] is not allowed, *"]
        )

    def test_fixture(self, project: Project) -> None:
        """A fixture can't be decorated, and pytest says so."""
        project.pytester.makepyfile(
            test_wrong="""
            import pytest
            from pytest_tpu.markers import multi_process

            @multi_process
            @pytest.fixture
            def value():
                pass
            """
        )
        result = project.run()

        result.stdout.fnmatch_lines(["*Marks *applied to fixtures*"])


NEEDS = """
    import pytest
    import pytest_tpu

    @pytest_tpu.multi_process(2)
    def test_two():
        raise AssertionError("never run")

    @pytest.mark.tpu
    def test_label():
        pass
"""

NO_TPU = pytest.mark.skipif(find_chips().count > 0, reason="there is a TPU in this machine")


class TestHost:
    @NO_TPU
    def test_none(self, project: Project) -> None:
        """Without a TPU and --tpu-cores marked tests are skipped, labelled ones run, and the reason says why."""
        project.pytester.makepyfile(test_needs=NEEDS)
        result = project.run("-rs", "test_needs.py", "-Wignore::pytest.PytestUnknownMarkWarning")

        result.assert_outcomes(passed=1, skipped=1)
        result.stdout.fnmatch_lines(["tpu: no host, *--tpu-cores=8 *", "SKIPPED * needs a TPU host: *--tpu-cores=8 *"])

    @NO_TPU
    def test_required(self, project: Project) -> None:
        """With --tpu-require what would be skipped fails, for the same reason, and labelled tests are left alone."""
        project.pytester.makepyfile(test_needs=NEEDS)
        result = project.run("--tpu-require", "test_needs.py", "-Wignore::pytest.PytestUnknownMarkWarning")

        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(["REFUSED: needs a TPU host: *--tpu-cores=8 *"])

    def test_emulated(self, project: Project, torch_loaded: bool) -> None:
        """The header says in plain words that the host is emulated, and a test that needs more cores is skipped."""
        if not torch_loaded:
            pytest.skip("torch_xla is not installed")
        project.pytester.makepyfile(test_needs=NEEDS)
        result = project.run(
            *("--tpu-cores=1", "--tpu-backend=cpu", "--tpu-timeout=0", "-rs"),
            *("test_needs.py", "-Wignore::pytest.PytestUnknownMarkWarning"),
        )

        result.assert_outcomes(passed=1, skipped=1)
        result.stdout.fnmatch_lines(
            [
                "tpu: emulated TPU host * with 1 core *; timeout none, stall timeout 60 s, grace 2 s",
                "SKIPPED * needs 2 cores and this run has 1; --tpu-cores=2 emulates them",
            ]
        )


class TestTexts:
    def test_help(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        """--help shows each option in a group of our own, with its default, and each ini key."""
        monkeypatch.setenv("COLUMNS", "200")
        text = project.run("--help").stdout.str()

        for option in OPTIONS:
            assert f"  {option.flag}" in text
            assert f"  {option.ini} (" in text
        assert "TPU (each also as ini key" in text
        assert "0 means no limit. Default: 300." in text

    def test_markers(self, project: Project) -> None:
        """--markers explains both markers."""
        project.run("--markers").stdout.fnmatch_lines(
            [
                "@pytest.mark.tpu_multi_process(cores=None, [*], timeout=None, stall_timeout=None): run the body *",
                "@pytest.mark.tpu_isolated(cores=None, [*], timeout=None, stall_timeout=None): run the test once, *",
            ]
        )
