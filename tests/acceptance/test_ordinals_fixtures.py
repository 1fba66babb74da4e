from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

ANY_KIND = """
    import threading

    import pytest

    @pytest.fixture(scope="session")
    def lock():
        return threading.Lock()

    @pytest.fixture
    def numbers():
        return (number for number in [3, 5])

    @pytest.fixture(scope="module")
    def text(tmp_path_factory):
        path = tmp_path_factory.mktemp("text") / "text"
        path.write_text("some text")
        with path.open() as file:
            yield file

    @pytest.fixture
    def double():
        return lambda x: 2 * x

    @pytest.fixture
    def local():
        class Local:
            value = 7
        return Local()

    def test_values(tpu_world, lock, numbers, text, double, local):
        with lock:
            assert [6, 10] == [double(number) for number in numbers]
        assert not text.closed
        assert 7 == local.value

    def test_one_fails(tpu_world, lock, local):
        local.value += tpu_world.ordinal
        assert 8 != local.value
"""


class TestValues:
    def test_any_kind(self, run_on_ordinals: RunOnOrdinals) -> None:
        """What fixtures give reaches every ordinal, picklable or not, and is each ordinal's own from then on."""
        result = run_on_ordinals(ANY_KIND, cores=3)

        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(["FAILED test_it.py::test_one_fails - RAISED: ordinal 1: assert 8 != 8*"])


LATE = """
    import os
    import unittest

    import pytest

    LOG = "log.txt"

    def note(text):
        with open(LOG, "a") as file:
            file.write(f"{text}\\n")

    @pytest.fixture
    def controller():
        return os.getpid()

    @pytest.fixture
    def late(tpu_world, controller):
        note(f"set up {tpu_world.ordinal} {os.getpid() == controller}")
        yield tpu_world.ordinal
        note(f"torn down {tpu_world.ordinal} {os.getpid() == controller}")

    @pytest.fixture
    def late_plain(controller):
        yield 5
        note(f"plain {os.getpid() == controller}")

    def test_late(tpu_world, controller, request):
        assert tpu_world.ordinal == request.getfixturevalue("late")
        assert 5 == request.getfixturevalue("late_plain")
        request.addfinalizer(lambda: note(f"added {tpu_world.ordinal} {os.getpid() == controller}"))

    @pytest.mark.tpu_multi_process
    def test_late_world(request):
        world = request.getfixturevalue("tpu_world")
        path = request.getfixturevalue("tmp_path")
        assert path == world.tmp_path
        (path / f"{world.ordinal}").touch()
        world.rendezvous("written")
        assert ["0", "1"] == sorted(path.name for path in path.iterdir())

    class TestLate(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def use_request(self, request):
            self.request = request

        @pytest.mark.tpu_multi_process
        def test_method(self):
            assert 2 == self.request.getfixturevalue("tpu_world").size
"""

DEFERRED = """
    import os

    import pytest

    def note(text):
        with open("log.txt", "a") as file:
            file.write(f"{text}\\n")

    @pytest.fixture
    def inner(tpu_world):
        note(f"set up {tpu_world.ordinal}")
        yield 10 * tpu_world.ordinal
        note(f"torn down {tpu_world.ordinal}")

    @pytest.fixture
    def outer(inner):
        yield inner + 1
        note(f"before it {inner // 10}")

    @pytest.fixture(autouse=True)
    def always(tpu_world):
        yield
        note(f"always {tpu_world.ordinal}")

    def test_deferred(outer, tpu_world):
        assert 10 * tpu_world.ordinal + 1 == outer
"""

LOOKS_BACK = """
    import logging
    import warnings

    import pytest

    @pytest.fixture
    def looks_back(tpu_world, capsys, caplog):
        with pytest.warns(UserWarning, match="warned"):
            yield
        assert f"printed {tpu_world.ordinal}\\n" == capsys.readouterr().out
        assert [f"logged {tpu_world.ordinal}"] == caplog.messages

    def test_body(looks_back, tpu_world):
        warnings.warn("warned")
        print("printed", tpu_world.ordinal)
        logging.warning("logged %s", tpu_world.ordinal)

    def test_silent_on_one(looks_back, tpu_world):
        warnings.warn("warned")
        print("printed", tpu_world.ordinal)
        if tpu_world.ordinal == 0:
            logging.warning("logged %s", tpu_world.ordinal)
"""

TEARDOWN = """
    import pytest

    @pytest.fixture
    def bad(tpu_world):
        yield
        if tpu_world.ordinal == 1:
            raise OSError("can't clean up")

    @pytest.fixture
    def broken(tpu_world):
        assert tpu_world.ordinal != 2, "no set-up here"

    def test_teardown(bad):
        pass

    def test_setup(broken):
        pass

    def test_late_teardown(tpu_world, request):
        request.getfixturevalue("bad")

    def test_next():
        pass
"""


class TestWhere:
    def test_late(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """A fixture that the body asks for is set up on each ordinal, and torn down there."""
        run_on_ordinals(LATE).assert_outcomes(passed=3)
        log = sorted((pytester.path / "log.txt").read_text().splitlines())

        expected = [f"{act} {ordinal} False" for act in ("set up", "torn down") for ordinal in (0, 1)]
        added = [f"added {ordinal} False" for ordinal in (0, 1)]
        assert [*added, "plain False", "plain False", *expected] == log

    def test_depends_on_the_world(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """Function-scope fixtures that use tpu_world, directly or not, live on each ordinal, in pytest's order."""
        run_on_ordinals(DEFERRED).assert_outcomes(passed=1)
        log = (pytester.path / "log.txt").read_text().splitlines()

        for ordinal in (0, 1):
            own = [line for line in log if line.endswith(f" {ordinal}")]
            assert [f"set up {ordinal}", f"before it {ordinal}", f"torn down {ordinal}", f"always {ordinal}"] == own

    def test_looks_back(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Such a fixture sees at its end what the body printed, logged and warned of on its ordinal."""
        result = run_on_ordinals(LOOKS_BACK)

        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(["FAILED test_it.py::test_silent_on_one - RAISED: ordinal 1: teardown: *logged 1*"])

    def test_errors(self, run_on_ordinals: RunOnOrdinals) -> None:
        """An error in such a fixture, before or after the body, fails the test with its ordinal and its phase."""
        result = run_on_ordinals(TEARDOWN, cores=3)

        result.assert_outcomes(passed=1, failed=3)
        result.stdout.fnmatch_lines(
            [
                "FAILED test_it.py::test_teardown - RAISED: ordinal 1: teardown: OSError: can't clean up",
                "FAILED test_it.py::test_setup - RAISED: ordinal 2: AssertionError: no set-up here*",
                "FAILED test_it.py::test_late_teardown - RAISED: ordinal 1: teardown: OSError: can't clean up",
            ]
        )


WORLD = """
    import pytest

    @pytest.fixture
    def keeper():
        class Keeper:
            world = None
        return Keeper()

    @pytest.fixture
    def holder(tpu_world, keeper):
        return {"world": tpu_world}

    @pytest.fixture
    def in_class(request):
        return request.getfixturevalue("tpu_world")

    def test_same_object(tpu_world, holder):
        assert tpu_world is holder["world"]
        assert holder["world"].size == 2
        assert [b"0", b"1"] == tpu_world.rendezvous("here", str(holder["world"].ordinal).encode())

    @pytest.mark.tpu_multi_process
    def test_kept_by_the_controller(in_class):
        assert in_class.ordinal in (0, 1)
        assert 2 == in_class.size

    @pytest.fixture(scope="module")
    def wide(tpu_world):
        return tpu_world

    def test_wide(wide):
        pass

    @pytest.fixture
    def reader(request):
        return request.getfixturevalue("tpu_world").ordinal

    @pytest.fixture
    def asks(request):
        return request.getfixturevalue("reader")

    @pytest.mark.tpu_multi_process
    def test_reader(asks):
        pass
"""


class TestWorld:
    def test_object(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Whoever holds tpu_world sees its ordinal's; in a wider scope, or read in the controller, it is an error."""
        result = run_on_ordinals(WORLD)

        result.assert_outcomes(passed=2, errors=2)
        result.stdout.fnmatch_lines(
            [
                "*ScopeMismatch*tpu_world*",
                "ERROR test_it.py::test_wide*",
                "ERROR test_it.py::test_reader - *NotAnOrdinalError: in the fixture 'reader', tpu_world.ordinal *",
            ]
        )


FINALIZERS = """
    import atexit
    import os
    import unittest

    import pytest

    def note(text):
        with open("log.txt", "a") as file:
            file.write(f"{text}\\n")

    @pytest.fixture(scope="session")
    def whole():
        owner = os.getpid()
        yield
        note(f"session {os.getpid() == owner}")

    @pytest.fixture
    def each(request):
        owner = os.getpid()
        request.addfinalizer(lambda: note(f"added {os.getpid() == owner}"))
        request.node.addfinalizer(lambda: note(f"node {os.getpid() == owner}"))
        yield
        note(f"function {os.getpid() == owner}")

    @pytest.mark.tpu_multi_process
    class TestIt:
        @classmethod
        def setup_class(cls):
            note("setup_class")

        @classmethod
        def teardown_class(cls):
            note("teardown_class")

        def test_first(self, whole, each):
            pass

        def test_second(self, whole, each, tpu_world):
            assert tpu_world.ordinal == 0
"""


class TestFinalizers:
    def test_once(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """What the controller set up it finishes itself, once, whatever becomes of the ordinals."""
        run_on_ordinals(FINALIZERS).assert_outcomes(passed=1, failed=1)
        log = (pytester.path / "log.txt").read_text().splitlines()

        each = ["function True", "added True", "node True"]
        assert ["setup_class", *each, *each, "teardown_class", "session True"] == log


DIRECTORIES = """
    import os
    from unittest import mock

    import pytest
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    @pytest.fixture
    def home(monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr(os, "sep", "!")

    def test_shared(tpu_world, tmp_path, tmp_path_factory):
        (tmp_path / f"{tpu_world.ordinal}").touch()
        assert tmp_path == tpu_world.tmp_path
        tpu_world.rendezvous("written")
        assert ["0", "1"] == sorted(path.name for path in tmp_path.iterdir())
        assert tmp_path.parent == tmp_path_factory.getbasetemp()

    def test_kept(tpu_world, tmp_path):
        (tmp_path / f"evidence-{tpu_world.ordinal}").touch()
        assert tpu_world.ordinal == 0

    @pytest.mark.tpu_multi_process
    def test_factory_in_the_body(tmp_path_factory):
        assert tmp_path_factory.mktemp("mine", numbered=True).is_dir()

    def test_patched(tpu_world, home, monkeypatch, tmp_path):
        assert str(tmp_path) == os.environ["HOME"]
        assert "!" == os.sep
        monkeypatch.setenv("ORDINAL", str(tpu_world.ordinal))
        monkeypatch.setattr(os, "linesep", str(tpu_world.ordinal))
        tpu_world.rendezvous("patched")
        assert str(tpu_world.ordinal) == os.environ["ORDINAL"] == os.linesep
        if tpu_world.ordinal:
            monkeypatch.delenv("HOME")
        assert "HOME" in os.environ

    @pytest.fixture
    def bare_environment():
        with mock.patch.dict(os.environ, {"LEFT": "1"}, clear=True):
            yield

    def test_bare_environment(bare_environment, tpu_world):
        assert "1" == os.environ["LEFT"]
        total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(1, device=tpu_world.device))
        assert tpu_world.size == total.item()
        assert "TPU" == xr.device_type()
        assert tpu_world.ordinal == 0

    def test_unpatched(tpu_world, tmp_path):
        assert str(tmp_path) != os.environ.get("HOME")
        assert "/" == os.sep
        assert "ORDINAL" not in os.environ
"""


class TestBuiltIn:
    def test_directories_and_patches(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """tmp_path is one directory for all ordinals, kept if one failed; what monkeypatch does holds on ordinals."""
        base = pytester.path / "base"
        base.mkdir()
        result = run_on_ordinals(DIRECTORIES, "-o", "tmp_path_retention_policy=failed", f"--basetemp={base}/run")

        result.assert_outcomes(passed=3, failed=3)
        result.stdout.fnmatch_lines(
            [
                "FAILED test_it.py::test_kept - RAISED: ordinal 1: *",
                "FAILED test_it.py::test_patched - RAISED: ordinal 1: *'HOME' in *",
                "FAILED test_it.py::test_bare_environment - RAISED: ordinal 1: *assert 1 == 0*",
            ]
        )
        assert ["evidence-0", "evidence-1"] == sorted(path.name for path in (base / "run" / "test_kept0").iterdir())
        assert not (base / "run" / "test_shared0").exists()
        assert not (base / "run" / "test_unpatched0").exists()

    @pytest.mark.parametrize("override", [False, True], ids=["none", "theirs"])
    def test_no_tmp_path_of_pytest(self, run_on_ordinals: RunOnOrdinals, override: bool) -> None:
        """The world has its directory without pytest's tmp_path too, and no test gets one that it did not ask for."""
        conftest = """
            import pytest

            @pytest.fixture
            def tmp_path():
                raise AssertionError("nobody asked for it")
        """
        source = """
            from pathlib import Path
            import pytest

            @pytest.mark.tpu_multi_process
            def test_marked():
                pass

            def test_world(tpu_world):
                (tpu_world.tmp_path / str(tpu_world.ordinal)).touch()
                tpu_world.rendezvous("written")
                assert ["0", "1"] == sorted(path.name for path in tpu_world.tmp_path.iterdir())
                Path("note").write_text(str(tpu_world.tmp_path))

            def test_gone(pytestconfig):
                path = Path(Path("note").read_text())
                assert pytestconfig.pluginmanager.hasplugin("tmpdir") == path.is_dir()
        """
        options = () if override else ("-p", "no:tmpdir")

        run_on_ordinals(source, *options, conftest=conftest if override else "").assert_outcomes(passed=3)

    def test_no_base_for_each_ordinal(
        self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A factory that is first used on ordinals makes one base directory, and leaves no lock of another process."""
        monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(pytester.path))
        source = """
            import pytest

            @pytest.mark.tpu_multi_process
            def test_late(request):
                request.getfixturevalue("tmp_path_factory").mktemp("mine")
        """
        run_on_ordinals(source).assert_outcomes(passed=1)
        (root,) = pytester.path.glob("pytest-of-*")

        assert ["pytest-0", "pytest-current"] == sorted(path.name for path in root.iterdir())
        # Where there is a lock at all, it goes with the process that made it; an ordinal's would stay.
        assert {lock.read_text() for lock in root.glob("pytest-0/.lock")} <= {str(os.getpid())}
