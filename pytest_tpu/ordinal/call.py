"""Runs a callable inside an ordinal, and ships what it returned or raised."""

from __future__ import annotations

import time
import traceback
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_tpu.errors import MismatchError, ResultError, WorldStopped
from pytest_tpu.model.messages import Exited, Finished
from pytest_tpu.model.verdict import Outcome
from pytest_tpu.ordinal.frames import end_at_the_call, user_line
from pytest_tpu.ordinal.pickling import Shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The pickled result of one ordinal.

    Args:
        value: the bytes; a result is copied before the process ends, since handles to its memory would not outlive it.
    """

    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception of one ordinal.

    Args:
        error: pickled; empty if the object does not survive the round trip.
        text: its traceback, which always travels; empty for an exception of ours that says all by itself.
    """

    error: bytes
    text: str


def run(fn: Callable[[], Any], shared: Shared, to_host: Callable[[Any], Any]) -> Finished | Exited:
    """Call `fn` and describe the end of it; the body of an ordinal of `tpu_launch` and `torch_xla.launch`.

    Args:
        fn: called without arguments.
        shared: made before the fork.
        to_host: copies XLA tensors to CPU tensors.
    """
    try:
        value = fn()
    except KeyboardInterrupt:
        return Exited(at=time.monotonic(), reason="KeyboardInterrupt on an ordinal", returncode=None, interrupted=True)
    except pytest.exit.Exception as error:
        return Exited(at=time.monotonic(), reason=str(error.msg), returncode=error.returncode)
    except BaseException as error:
        return _raised(error, shared, to_host)
    at = time.monotonic()
    try:
        return Finished(at=at, outcome=Outcome.PASSED, data=Returned(value=shared.pack(value, to_host)))
    except Exception as error:
        return _unreturned(value, error, shared, at)


def _raised(error: BaseException, shared: Shared, to_host: Callable[[Any], Any]) -> Finished:
    at = time.monotonic()
    end_at_the_call(error)
    # Without the line of ours that called it.
    begin = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, begin))
    outcome = _outcome(error)
    reason = str(error)
    if outcome is Outcome.FAILED:
        reason = traceback.format_exception_only(type(error), error)[-1].strip()
    data = Raised(error=shared.pack_error(error, to_host), text=text)
    return Finished(at=at, outcome=outcome, reason=reason, where=user_line(begin, Path.cwd()), data=data)


def _unreturned(value: Any, error: Exception, shared: Shared, at: float) -> Finished:
    kind = type(value).__name__
    reason = f"a result of type {kind} can't be returned from an ordinal: {type(error).__name__}: {error}"
    data = Raised(error=shared.pack_error(ResultError(reason), lambda value: value), text="")
    return Finished(at=at, outcome=Outcome.FAILED, reason=reason, data=data)


def _outcome(error: BaseException) -> Outcome:
    if isinstance(error, WorldStopped):
        return Outcome.STOPPED
    if isinstance(error, MismatchError):
        return Outcome.MISMATCHED
    if isinstance(error, (pytest.skip.Exception, unittest.SkipTest)):
        return Outcome.SKIPPED
    return Outcome.GAVE_UP if isinstance(error, pytest.xfail.Exception) else Outcome.FAILED


class OrdinalTraceback(Exception):
    """The traceback of an ordinal, as the cause of its exception in the controller."""

    def __str__(self) -> str:
        """Begin on a line of its own."""
        return f"\n{self.args[0]}"


def load_error(raised: Raised, ordinal: int, shared: Shared) -> BaseException | None:
    """Bring an exception back, with the ordinal's traceback as its cause; None if it could not travel."""
    if not raised.error:
        return None
    error: BaseException = shared.unpack(raised.error)
    # `pytest.fail(…, pytrace=False)` asks for no traceback.
    if raised.text and getattr(error, "pytrace", True):
        error.__cause__ = OrdinalTraceback(f"on ordinal {ordinal}:\n{raised.text}")
    return error
