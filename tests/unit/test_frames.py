"""Which lines of a traceback are shown."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import cast

import pytest

import pytest_tpu
from pytest_tpu.errors import MismatchError
from pytest_tpu.ordinal.frames import end_at_the_call, user_line


def failed_in(path: str, error: Exception) -> Exception:
    """Raise `error` in a function whose file is `path`, and catch it."""
    names: dict[str, object] = {"error": error}
    exec(compile("def fail():\n    raise error", path, "exec"), names)
    try:
        names["fail"]()  # type: ignore[operator]
    except Exception as caught:
        return caught
    raise AssertionError


def shown(error: Exception) -> list[str]:
    """The files of its traceback."""
    return [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]


INSIDE = str(Path(pytest_tpu.__file__).parent / "backend" / "cpu" / "inside.py")


def test_an_error_of_ours_ends_at_the_call() -> None:
    """What happens inside the bridge is not shown: the last line is the one that called it."""
    error = failed_in(INSIDE, MismatchError("they differ"))

    end_at_the_call(error)

    assert ["test_frames.py"] == shown(error)


def test_an_error_of_others_keeps_its_lines() -> None:
    """A fault of the bridge itself, or of torch below it, is shown to its last line."""
    error = failed_in(INSIDE, ValueError("a fault"))

    end_at_the_call(error)

    assert ["test_frames.py", "inside.py"] == shown(error)


def test_an_error_raised_outside_keeps_its_lines() -> None:
    """A user who raises our error keeps his line."""
    error = failed_in("user.py", MismatchError("mine"))

    end_at_the_call(error)

    assert ["test_frames.py", "user.py"] == shown(error)


INSTALLED = str(Path(sysconfig.get_paths()["purelib"]) / "library.py")


@pytest.mark.parametrize(
    ("expected", "path"),
    [
        ("tests/test_it.py:2", "/user/tests/test_it.py"),
        ("/elsewhere/helper.py:2", "/elsewhere/helper.py"),
        ("here", INSIDE),
        ("here", INSTALLED),
        ("here", "<string>"),
    ],
)
def test_user_line(expected: str, path: str) -> None:
    """The line that counts is the innermost that is neither installed nor ours, whoever runs it."""
    error = failed_in(path, ValueError("a fault"))
    line = user_line(error.__traceback__, Path("/user"))

    assert expected == ("here" if line.startswith(f"{__file__}:") else line)


def test_user_line_without_number() -> None:
    """A signal may arrive at an instruction that belongs to no line: its function is told then."""

    def code() -> None:
        """Stand for one."""

    class Entry:
        tb_frame = SimpleNamespace(f_code=code.__code__)
        tb_lineno = None
        tb_next = None

    entry = cast("TracebackType", Entry())

    assert f"{__file__}:{code.__code__.co_firstlineno}" == user_line(entry, Path("/user"))
