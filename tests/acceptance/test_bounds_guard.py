from __future__ import annotations

import pytest

from tests.acceptance.forked import run_forked
from tests.summary import SHOW_ALL, summary

OPTIONS = ("--tpu-cores=2", *SHOW_ALL)
ON_ORDINALS = """
    import pytest
    import torch
    import torch_xla
    import pytest_tpu

    @pytest_tpu.multi_process
    def test_on_ordinals(tpu_world):
        assert 2 == tpu_world.size

    @pytest.mark.xfail
    @pytest_tpu.multi_process
    def test_marked():
        assert False

    def test_launches(tpu_launch):
        assert [1, 1] == tpu_launch(lambda: 1)

    def test_launches_as_programs_do():
        torch_xla.launch(print, ("by an ordinal",))
"""
FIXTURE = """
    @pytest.fixture(scope="session")
    def model():
        return torch.ones(2, device=torch_xla.device())

    def test_uses(model):
        assert 2.0 == model.sum().item()
"""
TEST = """
    def test_touches():
        assert 2.0 == torch.ones(2, device=torch_xla.device()).sum().item()
"""
MOVE = "move it into the body of a test on ordinals, or into a fixture that asks for tpu_world"
REMEDY = f"run pytest --tpu-isolate, or {MOVE}"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave lines whole."""
    monkeypatch.setenv("COLUMNS", "400")


@pytest.mark.parametrize(
    ("source", "step", "remedy", "passed"),
    [
        (FIXTURE, "the fixture 'model' (test_it.py)", REMEDY, "test_uses"),
        (TEST, "the test test_it.py::test_touches", REMEDY, "test_touches"),
        (
            "    DEVICE = torch_xla.device()\n    def test_other():\n        pass\n",
            "the collection of test_it.py",
            "move it from the import of test_it.py into a test or a fixture, and run those with --tpu-isolate",
            "test_other",
        ),
    ],
    ids=["fixture", "test", "collection"],
)
def test_runtime_in_the_controller(pytester: pytest.Pytester, source: str, step: str, remedy: str, passed: str) -> None:
    """Who brings the runtime up in pytest's process is named at once, with the remedy, and launches are refused."""
    # First in the file, so that all that follows comes too late.
    imports, _, tests = ON_ORDINALS.partition("    @pytest_tpu.multi_process")
    pytester.makepyfile(test_it=f"{imports}{source}\n    @pytest_tpu.multi_process{tests}")
    result = run_forked(pytester, *OPTIONS)
    why = f"{step} initialised the XLA runtime in pytest's own process: {remedy}"
    refused = f"REFUSED: no ordinal can be forked, since {why}"

    assert {
        passed: "PASSED",
        "test_on_ordinals": f"FAILED {refused}",
        "test_marked": f"FAILED {refused}",
        "test_launches": f"FAILED pytest_tpu.LaunchError: {refused}",
        "test_launches_as_programs_do": "FAILED RuntimeError: Runtime is already initialized."
        " Do not use the XLA device before calling xmp.spawn.",
    } == summary(result)
    result.stdout.fnmatch_lines([f"*RuntimeTouchedWarning: {glob(why)}; tests on ordinals are refused from now on"])
    assert 1 == result.stdout.str().count("RuntimeTouchedWarning")


def glob(text: str) -> str:
    """Take the special meaning from a text that is matched."""
    return text.replace("[", "[[]")


def test_warning_is_never_an_error(pytester: pytest.Pytester) -> None:
    """With -W error the warning stays one: it is no fault of the test that runs just then."""
    pytester.makepyfile(test_it="    import torch, torch_xla\n" + TEST)
    result = run_forked(pytester, *OPTIONS, "-Werror")

    assert {"test_touches": "PASSED"} == summary(result)
    result.assert_outcomes(passed=1, warnings=1)


def test_isolate(pytester: pytest.Pytester) -> None:
    """With --tpu-isolate the same tests pass, since each that touches the device has a process of its own."""
    imports, _, tests = ON_ORDINALS.partition("    @pytest_tpu.multi_process")
    pytester.makepyfile(test_it=f"{imports}{FIXTURE}{TEST}\n    @pytest_tpu.multi_process{tests}")
    result = pytester.runpytest_inprocess("--tpu-isolate", *OPTIONS)

    assert {
        "test_uses": "PASSED",
        "test_touches": "PASSED",
        "test_on_ordinals": "PASSED",
        "test_marked": "XFAIL",
        "test_launches": "PASSED",
        "test_launches_as_programs_do": "PASSED",
    } == summary(result)
    result.stdout.no_fnmatch_line("*RuntimeTouchedWarning*")


CLEAN_UP = """
    import pytest, torch, torch_xla

    @pytest.fixture
    def model():
        yield
        torch.ones(2, device=torch_xla.device()).sum().item()

    def test_first(model):
        pass

    def test_on_ordinals(tmp_path, tpu_world):
        pass
"""
BUILT_IN = """
    import pytest, torch, torch_xla

    def test_first(touching):
        pass

    def test_on_ordinals(tpu_world):
        pass
"""
ONE = "    def test_first(): pass\n    def test_on_ordinals(tpu_world): pass\n"
TOUCH = "import torch, torch_xla; torch.ones(2, device=torch_xla.device()).sum().item()"


@pytest.mark.parametrize(
    ("conftest", "source", "step"),
    [
        ("", CLEAN_UP, "the teardown of the fixture 'model' (test_it.py)"),
        (TOUCH, ONE, "the import of conftest.py"),
        (f"def pytest_sessionstart(): {TOUCH}", ONE, "something before the collection of . initialised"),
        (f"def pytest_runtest_setup(): {TOUCH}", ONE, "something before the test test_it.py::test_first"),
        (f"import pytest\n@pytest.fixture\ndef touching(): {TOUCH}", BUILT_IN, "the fixture 'touching'"),
    ],
    ids=["teardown", "conftest", "hook", "hook of a test", "fixture of all"],
)
def test_the_right_one_is_named(pytester: pytest.Pytester, conftest: str, source: str, step: str) -> None:
    """Nobody is accused of what happened before, and what is cleaned up, or imported for all, is named as such."""
    pytester.makeconftest(conftest)
    pytester.makepyfile(test_it=source)
    result = run_forked(pytester, *OPTIONS)

    refused = summary(result)["test_on_ordinals"]
    assert refused.startswith(f"FAILED REFUSED: no ordinal can be forked, since {step}")
    assert " initialised the XLA runtime in pytest's own process: " in refused
    assert "()" not in refused
    assert 1 == result.stdout.str().count("RuntimeTouchedWarning")


def test_without_ordinals(pytester: pytest.Pytester) -> None:
    """A run that has no host is free to use the runtime, and hears nothing from us."""
    pytester.makepyfile(test_it="    import torch, torch_xla\n" + TEST)
    result = run_forked(pytester, *SHOW_ALL)

    assert {"test_touches": "PASSED"} == summary(result)
    result.stdout.no_fnmatch_line("*RuntimeTouchedWarning*")


def test_isolate_is_no_remedy_for_itself(pytester: pytest.Pytester) -> None:
    """A fixture of a test on ordinals is set up in pytest's process, isolation or not: the remedy is another one."""
    pytester.makepyfile(
        test_it="""
        import pytest
        import pytest_tpu
        import torch
        import torch_xla

        @pytest.fixture
        def model():
            return torch.ones(2, device=torch_xla.device())

        @pytest_tpu.multi_process
        def test_uses(model):
            pass
        """
    )
    result = run_forked(pytester, "--tpu-isolate", *OPTIONS)
    why = f"the fixture 'model' (test_it.py) initialised the XLA runtime in pytest's own process: {MOVE}"

    assert {"test_uses": f"FAILED REFUSED: no ordinal can be forked, since {why}"} == summary(result)
