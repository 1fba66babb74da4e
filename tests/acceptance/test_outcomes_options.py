from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

SOURCE = """
    import pytest

    pytestmark = pytest.mark.tpu_multi_process

    def test_one(tpu_world):
        assert tpu_world.ordinal != 1, "on one"

    def test_two(tpu_world):
        assert tpu_world.ordinal != 0, "on zero"

    def test_three(tpu_world):
        print("hello")
        tpu_world.rendezvous("complete")
"""
ONE = "FAILED RAISED: ordinal 1: AssertionError: on one"
TWO = "FAILED RAISED: ordinal 0: AssertionError: on zero"


class TestSelection:
    @pytest.mark.parametrize(
        ("option", "lines"),
        [
            ("-x", {"test_one": ONE}),
            ("--maxfail=2", {"test_one": ONE, "test_two": TWO}),
            ("-ktwo or three", {"test_two": TWO, "test_three": "PASSED"}),
        ],
    )
    def test_some(self, run_on_ordinals: RunOnOrdinals, option: str, lines: dict[str, str]) -> None:
        """A failure on one ordinal counts as one, and names select tests as ever."""
        assert lines == summary(run_on_ordinals(SOURCE, option, *SHOW_ALL))

    def test_last_failed(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A test that failed on one ordinal is one that failed last."""
        run_on_ordinals(SOURCE)

        assert {"test_one": ONE, "test_two": TWO} == summary(run_on_ordinals(SOURCE, "--lf", *SHOW_ALL))


@pytest.mark.parametrize("style", ["auto", "long", "short", "line", "native", "no"])
def test_traceback_styles(run_on_ordinals: RunOnOrdinals, style: str) -> None:
    """Every style of traceback shows what failed, and the same short summary."""
    shown = {
        "auto": [">       assert x != 1", "E       assert 1 != 1", "test_it.py:3: AssertionError"],
        "long": ["tpu_world = <World of 2, ordinal 1>", ">       assert x != 1", "test_it.py:3: AssertionError"],
        "short": ["test_it.py:3: in test_fails", "    assert x != 1", "E   assert 1 != 1"],
        "line": ["*test_it.py:3: RAISED: ordinal 1: assert 1 != 1"],
        "native": ["Traceback (most recent call last):", '  File "*test_it.py", line 3, in test_fails'],
        "no": [],
    }
    result = run_on_ordinals(
        """
        def test_fails(tpu_world):
            x = tpu_world.ordinal
            assert x != 1

        def test_diverges(tpu_world, request):
            import pytest
            if tpu_world.ordinal == 1:
                pytest.skip("here")
        """,
        f"--tb={style}",
        *SHOW_ALL,
    )
    table = [] if style in ("line", "no") else ["ordinal *outcome*", "1 *failed*<- first"]

    result.stdout.fnmatch_lines([*shown[style], *table, "*short test summary*"])
    assert {
        "test_fails": "FAILED RAISED: ordinal 1: assert 1 != 1",
        "test_diverges": "FAILED DIVERGED: ordinal 0 passed, ordinal 1 skipped (here)",
    } == summary(result)


class TestOutput:
    SOURCE = """
        import os, sys
        import pytest

        pytestmark = pytest.mark.tpu_multi_process

        def test_prints(tpu_world):
            for number in range(20):
                print(f"line {number} of {tpu_world.ordinal}")
            print("to stderr", file=sys.stderr)
            os.write(1, b"by descriptor\\n")
            os.system("echo from a program")
            print("no end of line", end="")
            tpu_world.rendezvous("all have printed")
            assert tpu_world.ordinal != 1
    """

    def lines(self) -> list[str]:
        """What every ordinal writes to standard output."""
        numbered = [f"line {number}" for number in range(20)]
        return [*numbered, "by descriptor", "from a program", "no end of line"]

    @pytest.mark.parametrize("option", ["-s", "--capture=tee-sys"])
    def test_live(self, run_on_ordinals: RunOnOrdinals, option: str) -> None:
        """Where output is shown, whole lines come with their ordinal in front."""
        result = run_on_ordinals(self.SOURCE, option)
        live = result.outlines[: next(index for index, line in enumerate(result.outlines) if "= FAILURES =" in line)]
        expected = [*self.lines(), "to stderr"]

        for ordinal in range(2):
            prefix = f"[ordinal {ordinal}] "
            mine = [line.removeprefix(prefix) for line in live if line.startswith(prefix)]
            assert sorted(expected) == sorted(line.removesuffix(f" of {ordinal}") for line in mine)
            assert [line for line in mine if line.startswith("line ")] == mine[:20]
        assert 2 * len(expected) == sum("[ordinal " in line for line in live)

    def test_live_means_now(self, run_on_ordinals: RunOnOrdinals) -> None:
        """With -s a line is there while the body still runs."""
        result = run_on_ordinals(
            """
            import time
            from pathlib import Path

            def test_waits_for_a_reader(tpu_world):
                print("ready")
                end = time.monotonic() + 30
                while time.monotonic() < end:
                    if Path("seen").exists():
                        return
                    time.sleep(0.02)
                raise AssertionError("nobody saw the line")
            """,
            "-s",
            conftest="""
            import pytest
            from pathlib import Path

            @pytest.hookimpl(trylast=True)
            def pytest_configure(config):
                writer = config.get_terminal_writer()
                line = writer.line

                def seen(text="", **markup):
                    line(text, **markup)
                    if text == "[ordinal 1] ready":
                        Path("seen").touch()

                writer.line = seen
            """,
        )

        result.assert_outcomes(passed=1)

    @pytest.mark.parametrize("option", ["--capture=fd", "--capture=sys"])
    def test_captured(self, run_on_ordinals: RunOnOrdinals, option: str) -> None:
        """Captured output is a section for each ordinal, and nothing of it is shown before."""
        result = run_on_ordinals(self.SOURCE, option)
        sections = "\n".join(result.outlines).partition("Captured stdout (ordinal 0)")[2]
        first, _, rest = sections.partition("Captured stderr (ordinal 0)")
        _, _, second = rest.partition("Captured stdout (ordinal 1)")

        assert self.lines() == [line.removesuffix(" of 0") for line in first.splitlines()[1:-1]]
        assert self.lines() == [line.removesuffix(" of 1") for line in second.splitlines()[1:24]]


@pytest.mark.parametrize(
    "plugins",
    [
        ("timeout",),
        ("xdist",),
        ("cacheprovider",),
        ("logging",),
        ("warnings",),
        ("faulthandler",),
        ("capture",),
        ("subtests",),
        ("timeout", "xdist", "cacheprovider", "logging", "warnings", "faulthandler", "subtests", "junitxml"),
    ],
    ids=lambda plugins: plugins[0] if len(plugins) == 1 else "several",
)
def test_without_plugin(run_on_ordinals: RunOnOrdinals, plugins: tuple[str, ...]) -> None:
    """Tests run alike without the plugins of pytest that a user may turn off."""
    options = [f"-pno:{name}" for name in plugins]
    result = run_on_ordinals(SOURCE, *options, *SHOW_ALL)

    assert {"test_one": ONE, "test_two": TWO, "test_three": "PASSED"} == summary(result)


def test_without_terminal(run_on_ordinals: RunOnOrdinals) -> None:
    """A run without a terminal reporter ends with the status that it should have, with live output too."""
    assert pytest.ExitCode.TESTS_FAILED == run_on_ordinals(SOURCE, "-pno:terminal", "-pno:faulthandler").ret
    assert pytest.ExitCode.OK == run_on_ordinals(SOURCE, "-pno:terminal", "-kthree", "-s").ret


def test_import_mode(run_on_ordinals: RunOnOrdinals) -> None:
    """Modules that stand on no path, as with --import-mode=importlib, run on ordinals."""
    result = run_on_ordinals(SOURCE, "--import-mode=importlib", *SHOW_ALL)

    assert {"test_one": ONE, "test_two": TWO, "test_three": "PASSED"} == summary(result)


def test_xdist(run_on_ordinals: RunOnOrdinals) -> None:
    """Under xdist the workers are the controllers, and the reports are the same."""
    result = run_on_ordinals(SOURCE, "-n2", *SHOW_ALL)

    assert {"test_one": ONE, "test_two": TWO, "test_three": "PASSED"} == summary(result)
    result.stdout.fnmatch_lines(["1 *failed*<- first"])


class TestCoroutines:
    SOURCE = """
        import asyncio
        import pytest
        import pytest_tpu

        @pytest_tpu.multi_process
        {mark}
        async def test_on_ordinals():
            raise AssertionError

        @pytest_tpu.isolated
        {mark}
        async def test_isolated():
            await asyncio.sleep(0)
            raise KeyError("was run")
        """
    REFUSED = (
        "FAILED REFUSED: test_on_ordinals is a coroutine, and its event loop belongs to pytest's process, where"
        " ordinals can't share it: use @pytest_tpu.isolated, or run a loop inside a plain test function"
    )

    def test_with_asyncio(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        """With pytest-asyncio a coroutine is refused on ordinals, by its name, and runs when it is isolated."""
        pytest.importorskip("pytest_asyncio")
        monkeypatch.delenv("PYTEST_ADDOPTS")
        monkeypatch.setenv("COLUMNS", "300")
        pytester.makepyfile(self.SOURCE.format(mark="@pytest.mark.asyncio"))
        pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
        result = pytester.runpytest_inprocess("--tpu-cores=2", *SHOW_ALL)

        assert {"test_on_ordinals": self.REFUSED, "test_isolated": "FAILED KeyError: 'was run'"} == summary(result)

    def test_without_asyncio(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Without a plugin that runs coroutines, ours is refused by name, and isolated it is pytest's own failure."""
        lines = summary(run_on_ordinals(self.SOURCE.format(mark=""), *SHOW_ALL))

        assert self.REFUSED[:100] == lines["test_on_ordinals"][:100]
        assert "FAILED Failed: async def functions are not natively supported." == lines["test_isolated"]
