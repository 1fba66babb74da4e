from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals


def sections(result: pytest.RunResult, stream: str = "stdout") -> dict[int, list[str]]:
    """The lines of each ordinal's section of one stream, in a report of one test."""
    found: dict[int, list[str]] = {}
    current: list[str] = []
    for line in result.outlines:
        if title := re.fullmatch(rf"-+ Captured {stream} \(ordinal (\d+)\) call -+", line):
            current = found.setdefault(int(title[1]), [])
        elif re.match(r"(-{5}|={5})", line):
            current = []
        else:
            current.append(line)
    return found


READ = """
    import os
    import sys

    import pytest

    @pytest.fixture(params=["capsys", "capfd", "capsysbinary", "capfdbinary", "capteesys"])
    def name(request):
        return request.param

    @pytest.fixture
    def read(name, request):
        capture = request.getfixturevalue(name)
        print("from the fixture")
        print("its errors", file=sys.stderr)
        def read():
            out, err = capture.readouterr()
            return (out.decode(), err.decode()) if isinstance(out, bytes) else (out, err)
        return read

    def test_read(tpu_world, name, read):
        print(f"from {tpu_world.ordinal}")
        if "fd" in name:
            os.write(2, b"written\\n")
        tpu_world.rendezvous("printed")
        out, err = read()
        assert f"from the fixture\\nfrom the hook\\nfrom {tpu_world.ordinal}\\n" == out
        assert ("its errors\\nwritten\\n" if "fd" in name else "its errors\\n") == err
        print("again")
        assert ("again\\n", "") == read()

    def test_late(tpu_world, name, request):
        print("before")
        capture = request.getfixturevalue(name)
        print(f"after {tpu_world.ordinal}")
        assert f"after {tpu_world.ordinal}" in str(capture.readouterr().out)

    def test_differs(tpu_world, name, read):
        print(f"from {tpu_world.ordinal}")
        assert "1" not in read()[0]
"""

# Runs in the controller, around the launch, and on each ordinal.
CALL = """
    import pytest

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(item):
        if item.name.startswith("test_read"):
            print("from the hook")
        return (yield)
"""

LEFT = """
    import pytest

    @pytest.fixture
    def early(CAPTURE):
        print("from the fixture")

    def test_left(tpu_world, early, CAPTURE):
        print(f"left by {tpu_world.ordinal}")
        assert tpu_world.ordinal

    def test_disabled(tpu_world, CAPTURE):
        print("read")
        with CAPTURE.disabled():
            print(f"not captured {tpu_world.ordinal}")
        assert "read\\n" == CAPTURE.readouterr().out
        assert tpu_world.ordinal
"""


class TestCaptureFixtures:
    def test_read(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Capture fixtures read what the fixtures printed before the body, and then their own ordinal's output only."""
        result = run_on_ordinals(READ, conftest=CALL)

        result.assert_outcomes(passed=10, failed=5)
        result.stdout.fnmatch_lines(
            [f"FAILED test_it.py::test_differs[[]{name}] - RAISED: ordinal 1: *" for name in ("capsys", "capfd")]
        )

    def test_left(self, run_on_ordinals: RunOnOrdinals, subtests: pytest.Subtests) -> None:
        """What nobody read is shown at the end, with the ordinal that wrote it; what was not captured too."""
        for capture in ("capsys", "capfd"):
            with subtests.test(capture=capture):
                source = LEFT.replace("CAPTURE", capture)

                result = run_on_ordinals(source, "-k", "test_left")
                assert {k: [f"left by {k}"] for k in (0, 1)} == sections(result)
                assert 1 == result.outlines.count("from the fixture")

                result = run_on_ordinals(source, "-k", "test_disabled")
                assert {k: [f"not captured {k}"] for k in (0, 1)} == sections(result)


MANY = """
    import os
    import sys

    def test_many(tpu_world):
        text = str(tpu_world.ordinal) * 200
        tpu_world.rendezvous("start")
        for number in range(250):
            print(text)
            os.write(1, f"{text}\\n".encode())
            print(text, file=sys.stderr)
        assert tpu_world.ordinal != 3
"""

KILLED = """
    import logging
    import os
    import signal
    import sys

    def test_killed(tpu_world):
        print(f"stdout of {tpu_world.ordinal}", end="")
        print(f"stderr of {tpu_world.ordinal}", file=sys.stderr)
        logging.warning("log of %s", tpu_world.ordinal)
        tpu_world.rendezvous("printed")
        if tpu_world.ordinal == 1:
            os.kill(os.getpid(), signal.SIGKILL)
"""

NATIVE = """
    import ctypes
    import subprocess

    c = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(4096)

    def test_native(tpu_world):
        fully_buffered = 0
        c.setvbuf(ctypes.c_void_p.in_dll(c, "stdout"), buffer, fully_buffered, len(buffer))
        c.printf(b"printed by C %d\\n", tpu_world.ordinal)
        subprocess.run(["echo", f"printed by a child {tpu_world.ordinal}"])
        assert tpu_world.ordinal
"""


KEPT = """
    import logging
    import sys

    stdout = sys.stdout
    logger = logging.getLogger("kept")
    logger.handlers = [logging.StreamHandler()]
    logger.propagate = False

    def test_kept(tpu_world):
        print(f"by a stream that was kept {tpu_world.ordinal}", file=stdout)
        logger.warning("by a handler that was kept %s", tpu_world.ordinal)
        assert tpu_world.ordinal
"""


class TestSections:
    def test_never_interleaved(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Ordinals that write much at one time have a section each, with every line whole and in order."""
        result = run_on_ordinals(MANY, cores=4)

        assert {k: [str(k) * 200] * 500 for k in range(4)} == sections(result)
        assert {k: [str(k) * 200] * 250 for k in range(4)} == sections(result, "stderr")

    def test_killed(self, run_on_ordinals: RunOnOrdinals) -> None:
        """What an ordinal had written is kept when it is killed, a line without an end too."""
        result = run_on_ordinals(KILLED)

        result.assert_outcomes(failed=1)
        assert {k: [f"stdout of {k}"] for k in (0, 1)} == sections(result)
        assert {k: [f"stderr of {k}"] for k in (0, 1)} == sections(result, "stderr")
        assert [True] * 2 == [lines[0].endswith(f"log of {k}") for k, lines in sections(result, "log").items()]

    def test_native(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Output of C code and of child processes is in the section of its ordinal."""
        result = run_on_ordinals(NATIVE)
        lines = {k: sorted(lines) for k, lines in sections(result).items()}

        assert {k: [f"printed by C {k}", f"printed by a child {k}"] for k in (0, 1)} == lines

    @pytest.mark.parametrize("method", ["fd", "sys", "tee-sys"])
    def test_kept_streams(self, run_on_ordinals: RunOnOrdinals, method: str) -> None:
        """Streams that were kept at import lead to the ordinal's section too."""
        result = run_on_ordinals(KEPT, f"--capture={method}")

        assert {k: [f"by a stream that was kept {k}"] for k in (0, 1)} == sections(result)
        assert {k: [f"by a handler that was kept {k}"] for k in (0, 1)} == sections(result, "stderr")

    def test_passed(self, run_on_ordinals: RunOnOrdinals) -> None:
        """The output of tests that pass is there for -rP, and nowhere else."""
        source = """
            def test_passes(tpu_world):
                print(f"from {tpu_world.ordinal}")
        """

        assert {0: ["from 0"], 1: ["from 1"]} == sections(run_on_ordinals(source, "-rP"))
        run_on_ordinals(source).stdout.no_fnmatch_line("*from [01]*")

    def test_added(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A section that the test adds to its report is there, with the ordinal that added it."""
        source = """
            def test_adds(tpu_world, request):
                request.node.add_report_section("call", "metrics", f"loss of {tpu_world.ordinal}")
                assert tpu_world.ordinal
        """
        result = run_on_ordinals(source)

        result.stdout.fnmatch_lines(
            [
                "-* Captured metrics (ordinal 0) call -*",
                "loss of 0",
                "-* Captured metrics (ordinal 1) call -*",
                "loss of 1",
            ]
        )

    def test_junit(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """JUnit XML has the output of every ordinal."""
        source = """
            import logging
            import sys

            def test_prints(tpu_world):
                print(f"stdout of {tpu_world.ordinal}")
                print(f"stderr of {tpu_world.ordinal}", file=sys.stderr)
                logging.warning("log of %s", tpu_world.ordinal)
                assert tpu_world.ordinal
        """
        run_on_ordinals(source, "--junit-xml=junit.xml", "-o", "junit_logging=all")
        (case,) = ElementTree.parse(pytester.path / "junit.xml").iter("testcase")

        text = {name: case.findtext(f"system-{name}") or "" for name in ("out", "err")}
        for ordinal in (0, 1):
            assert 1 == text["out"].count(f"stdout of {ordinal}")
            assert 1 == text["out"].count(f"log of {ordinal}")
            assert 1 == text["err"].count(f"stderr of {ordinal}")
        (failure,) = case.iter("failure")
        assert failure.attrib["message"].startswith("RAISED: ordinal 0: ")


STDIN = """
    import io
    import os
    import sys

    import pytest

    @pytest.fixture
    def answer(monkeypatch):
        monkeypatch.setattr(sys, "stdin", io.StringIO("yes\\n"))

    def test_asks(tpu_world):
        with pytest.raises((EOFError, OSError)):
            input()
        assert b"" == os.read(0, 1)

    def test_answered(tpu_world, answer):
        assert "yes" == input()
        assert tpu_world.ordinal != 1
"""


TERMINAL = """
    import pytest

    @pytest.fixture
    def deferred(tpu_world):
        return tpu_world

    def test_writes(deferred, pytestconfig, tpu_world):
        pytestconfig.get_terminal_writer().line(f"to the terminal {tpu_world.ordinal}")
        pytestconfig.pluginmanager.getplugin("terminalreporter").write_line("to the reporter")
        assert tpu_world.ordinal
"""


class TestTerminal:
    def test_kept_apart(self, run_on_ordinals: RunOnOrdinals) -> None:
        """What is written to the terminal on ordinals, by pytest or the test, is in their sections."""
        lines = sections(run_on_ordinals(TERMINAL, "--setup-show"))

        for ordinal in (0, 1):
            assert "SETUP    F deferred (fixtures used: tpu_world)" in "\n".join(lines[ordinal])
            assert 1 == sum(line.endswith(f"to the terminal {ordinal}") for line in lines[ordinal])
            assert 1 == lines[ordinal].count("to the reporter")


@pytest.fixture
def typed_input() -> Iterator[None]:
    """Something to read on this process's standard input."""
    receive, send = os.pipe()
    kept = os.dup(0)
    os.write(send, b"typed\n")
    os.dup2(receive, 0)
    yield
    os.dup2(kept, 0)
    for descriptor in (receive, send, kept):
        os.close(descriptor)


class TestStandardInput:
    @pytest.mark.usefixtures("typed_input")
    def test_nothing_to_read(self, run_on_ordinals: RunOnOrdinals, subtests: pytest.Subtests) -> None:
        """Ordinals never take the terminal's input; what a fixture put in its place they read."""
        for args in ((), ("-s",)):
            with subtests.test(args=args):
                result = run_on_ordinals(STDIN, *args)

                result.assert_outcomes(passed=1, failed=1)
                result.stdout.fnmatch_lines(["FAILED test_it.py::test_answered - RAISED: ordinal 1: *"])
